// Symbols separated by white space (lrnn-symbols).

#include "base/error.h"
#include "text/tokenizer-impl.h"

bool symbols_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool symbols_init(struct tokenizer * tok, struct lrnn_error * err) {
    for (int32_t id = 0; id < tok->n_tokens; ++id) {
        char               quote[QUOTE_SIZE];
        const struct slice s = symbol_bytes(tok, id);
        if (tok->type[id] == TOKEN_UNUSED) {
            continue;
        }
        for (size_t i = 0; i < s.size; ++i) {
            if (symbols_is_space(s.data[i])) {
                return error_bad_model(err,
                        "tokenizer.ggml.tokens[%d] is the symbol %s; expected no white space in it",
                        (int) id, slice_quote(quote, sizeof(quote), s));
            }
        }
        if (!symbol_insert(tok, id, err)) {
            return false;
        }
    }
    return true;
}

bool symbols_encode(const struct tokenizer * tok, const char * text, size_t len, bool parse_special,
        struct tokenize_work * w, struct lrnn_error * err) {
    for (size_t i = 0; i < len;) {
        if (symbols_is_space(text[i])) {
            i++;
            continue;
        }
        const size_t start = i;
        while (i < len && !symbols_is_space(text[i])) {
            i++;
        }
        int32_t id = symbol_find(tok, text + start, i - start);
        if (id >= 0 && !parse_special &&
                (tok->type[id] == TOKEN_CONTROL || tok->type[id] == TOKEN_UNKNOWN)) {
            id = -1;
        }
        if (id < 0 && tok->unknown_id < 0) {
            char quote[QUOTE_SIZE];
            return error_bad_input(err,
                    "the text has the symbol %s at byte %zu, which is not in the vocabulary",
                    slice_quote(quote, sizeof(quote), (struct slice) { text + start, i - start }),
                    start);
        }
        work_push(w, id >= 0 ? id : tok->unknown_id);
    }
    return true;
}
