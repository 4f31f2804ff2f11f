#include "text/tokenizer-impl.h"

// Bytes (lrnn-bytes): token ids 0 to 255 are the bytes.

bool bytes_init(struct tokenizer * tok, char * err, size_t err_size) {
    if (tok->n_tokens < 256) {
        return error_set(err, err_size,
                "tokenizer.ggml.tokens has %d tokens; expected the 256 bytes first",
                (int) tok->n_tokens);
    }
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        const bool is_byte = tok->type[id] == TOKEN_BYTE;
        if (id < 256 ? !is_byte || (uint8_t) symbol_bytes(tok, id).data[0] != id
                     : is_byte || tok->type[id] == TOKEN_NORMAL) {
            char               quote[QUOTE_SIZE];
            const struct slice s = symbol_bytes(tok, id);
            return id < 256
                           ? error_set(err, err_size,
                                     "tokenizer.ggml.tokens[%d] is %s of type %d; expected <0x%02X> of type %d",
                                     (int) id, slice_quote(quote, sizeof(quote), s), tok->type[id],
                                     (unsigned) id, TOKEN_BYTE)
                           : error_set(err, err_size,
                                     "tokenizer.ggml.tokens[%d] is %s of type %d; expected a special token behind the 256 bytes",
                                     (int) id, slice_quote(quote, sizeof(quote), s), tok->type[id]);
        }
    }
    return true;
}

bool bytes_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    (void) tok;
    for (size_t i = 0; i < len; ++i) {
        if (!token_ids_push(w->ids, (uint8_t) text[i])) {
            return false;
        }
    }
    return true;
}
