// The public functions for text.

#include "base/error.h"
#include "lrnn.h"
#include "run/model.h"
#include "text/tokenizer.h"

bool lrnn_tokenize(const struct lrnn_model * model, const char * text, size_t size, unsigned flags,
        int32_t ** tokens, int64_t * n_tokens, char * err, size_t err_size) {
    *tokens   = NULL;
    *n_tokens = 0;
    if (model->tokenizer == NULL) {
        return error_set(err, err_size, "the model has no tokenizer; it works on token ids only");
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
    return model->tokenizer != NULL ? tokenizer_text_size(model->tokenizer, token) : 0;
}
