// The public functions for text, except the decoder (decoder.c) and byte spans (token-spans.c).

#include "lrnn.h"
#include "run/model.h"
#include "text/tokenizer-impl.h"

bool lrnn_tokenize(const struct lrnn_model * model, const char * text, size_t size, unsigned flags,
        int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size) {
    *tokens   = NULL;
    *n_tokens = 0;
    if (model->tokenizer == NULL) {
        return error_set(err, err_size, NO_TOKENIZER);
    }
    struct token_ids ids = { 0 };
    if (!tokenizer_encode(model->tokenizer, text, size, flags, &ids, err, err_size)) {
        token_ids_free(&ids);
        return false;
    }
    *tokens   = ids.data;
    *n_tokens = (int64_t) ids.n;
    return true;
}

const char * lrnn_token_bytes(const struct lrnn_model * model, int32_t token, size_t * size) {
    *size = 0;
    if (model->tokenizer == NULL || token < 0 || token >= tokenizer_n_tokens(model->tokenizer)) {
        return NULL;
    }
    const struct slice bytes = tokenizer_token_bytes(model->tokenizer, token);
    *size                    = bytes.size;
    return bytes.data;
}

bool lrnn_token_is_special(const struct lrnn_model * model, int32_t token) {
    return model->tokenizer != NULL && tokenizer_is_special(model->tokenizer, token);
}

size_t lrnn_token_text_size(const struct lrnn_model * model, int32_t token) {
    const struct tokenizer * tok = model->tokenizer;
    if (tok == NULL || tokenizer_is_special(tok, token)) {
        return 0;
    }
    const size_t size = tokenizer_token_bytes(tok, token).size;
    return size > 0 && tok->kind == TOKENIZER_SYMBOLS ? size + 1
                                                      : size; // the space before a symbol
}
