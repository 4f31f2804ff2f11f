// Bytes (lrnn-bytes): ids 0 to 255 are the bytes, all others are special tokens.

#include "base/error.h"
#include "text/tokenizer-impl.h"

bool bytes_init(struct tokenizer * tok, struct lrnn_error * err) {
    char quote[QUOTE_SIZE];
    if (tok->n_tokens < 256) {
        return error_bad_model(err,
                "tokenizer.ggml.tokens has %d tokens; expected at least the 256 bytes",
                (int) tok->n_tokens);
    }
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        const struct slice s = symbol_bytes(tok, id);
        const int          type = tok->type[id];
        if (id < 256 && (type != TOKEN_BYTE || (uint8_t) s.data[0] != id)) {
            return error_bad_model(err,
                    "tokenizer.ggml.tokens[%d] is %s of type %d; expected <0x%02X> of type %d",
                    (int) id, slice_quote(quote, sizeof(quote), s), type, (unsigned) id,
                    TOKEN_BYTE);
        }
        if (id >= 256 && (type == TOKEN_BYTE || type == TOKEN_NORMAL)) {
            return error_bad_model(err,
                    "tokenizer.ggml.tokens[%d] is %s of type %d; expected special tokens from 256",
                    (int) id, slice_quote(quote, sizeof(quote), s), type);
        }
    }
    return true;
}

void bytes_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    (void) tok;
    for (size_t i = 0; i < len; ++i) {
        work_push(w, (uint8_t) text[i]);
    }
}
