// RWKV World (rwkv): at each position the longest token that matches. Tokens and text are bytes;
// nothing is normalized.

#include "base/error.h"
#include "text/tokenizer-impl.h"

// The file has the inside of a Python bytes literal: \t, \n, \r and \xNN are escapes; after a
// backslash any other character means itself.
bool world_token(struct slice text, int32_t id, enum token_type type, struct buffer * out,
        struct lrnn_error * err) {
    if (type != TOKEN_NORMAL) {
        return buffer_append(out, text.data, text.size) || error_no_memory(err, "the tokens");
    }
    for (size_t i = 0; i < text.size; ++i) {
        char c = text.data[i];
        if (c == '\\') {
            const size_t left = text.size - ++i;
            c = left > 0 ? text.data[i] : 0;
            const bool is_hex = c == 'x' && left > 2 && hex_digit(text.data[i + 1]) >= 0 &&
                                hex_digit(text.data[i + 2]) >= 0;
            if (left == 0 || (c == 'x' && !is_hex)) {
                char quote[QUOTE_SIZE];
                return error_bad_model(err,
                        "tokenizer.ggml.tokens[%d] is %s, with an incomplete escape", (int) id,
                        slice_quote(quote, sizeof(quote), text));
            }
            if (is_hex) {
                c = (char) (hex_digit(text.data[i + 1]) * 16 + hex_digit(text.data[i + 2]));
                i += 2;
            } else {
                c = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
            }
        }
        if (!buffer_append(out, &c, 1)) {
            return error_no_memory(err, "the tokens");
        }
    }
    return true;
}

bool world_init(struct tokenizer * tok, struct lrnn_error * err) {
    if (!tokens_trie(tok, TOKEN_NORMAL, TOKEN_NORMAL, &tok->words, err)) {
        return false;
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
        const int32_t node = tok->words.root[byte];
        if (node == 0 || tok->words.id[node] < 0) {
            return error_bad_model(
                    err, "tokenizer.ggml.tokens has no token for the byte 0x%02X", byte);
        }
    }
    return true;
}

void world_encode(
        const struct tokenizer * tok, const char * text, size_t len, struct tokenize_work * w) {
    const char * end = text + len;
    while (text < end) {
        int32_t id = 0;
        text += trie_longest(&tok->words, text, end, &id);
        work_push(w, id);
    }
}
