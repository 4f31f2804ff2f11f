// The public functions for text and chat that take a model: those of its tokenizer.

#include "base/error.h"
#include "file/model-file.h"
#include "model/model.h"
#include "text/chat.h"
#include "text/tokenizer.h"

static const char NO_TOKENIZER[] = "the model has no tokenizer; it works on token ids only";

bool lrnn_tokenize(const struct lrnn_model * model, const char * text, size_t size, unsigned flags,
        int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err) {
    *tokens = NULL;
    *n_tokens = 0;
    if (model->tokenizer == NULL) {
        return error_bad_input(err, NO_TOKENIZER);
    }
    struct token_ids ids = { 0 };
    if (!tokenizer_encode(model->tokenizer, text, size, flags, &ids, err)) {
        token_ids_free(&ids);
        return false;
    }
    *tokens = ids.data;
    *n_tokens = (int64_t) ids.n;
    return true;
}

const char * lrnn_token_bytes(const struct lrnn_model * model, int32_t token, size_t * size) {
    *size = 0;
    if (model->tokenizer == NULL || token < 0 || token >= tokenizer_n_tokens(model->tokenizer)) {
        return NULL;
    }
    const struct slice bytes = tokenizer_token_bytes(model->tokenizer, token);
    *size = bytes.size;
    return bytes.data;
}

bool lrnn_token_is_special(const struct lrnn_model * model, int32_t token) {
    return model->tokenizer != NULL && tokenizer_is_special(model->tokenizer, token);
}

size_t lrnn_token_text_size(const struct lrnn_model * model, int32_t token) {
    return model->tokenizer != NULL ? tokenizer_text_size(model->tokenizer, token) : 0;
}

bool lrnn_token_spans(const struct lrnn_model * model, const char * text, size_t size,
        const int32_t * tokens, int64_t n_tokens, size_t * n_bytes, struct lrnn_error * err) {
    if (model->tokenizer == NULL) {
        return error_bad_input(err, NO_TOKENIZER);
    }
    return tokenizer_spans(model->tokenizer, text, size, tokens, n_tokens, n_bytes, err);
}

struct lrnn_decoder * lrnn_decoder_new(
        const struct lrnn_model * model, bool continues, struct lrnn_error * err) {
    if (model->tokenizer == NULL) {
        error_bad_input(err, NO_TOKENIZER);
        return NULL;
    }
    struct lrnn_decoder * decoder = decoder_new(model->tokenizer, continues);
    if (decoder == NULL) {
        error_no_memory(err, "a decoder");
    }
    return decoder;
}

void lrnn_model_get_tokenizer_hash(const struct lrnn_model * model, char hex[65]) {
    tokenizer_hash(model->tokenizer, model->file, hex);
}

struct lrnn_chat * lrnn_chat_new(
        const struct lrnn_model * model, const char * format, struct lrnn_error * err) {
    return chat_new(model->tokenizer, model->file, model->info.n_vocab, format, err);
}
