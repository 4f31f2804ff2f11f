#include "prompt.h"

#include "base/error.h"

#include "token-ids.h"

#include <stdio.h>
#include <stdlib.h>

static bool ids_to_tokens(const struct lrnn_model_info * info, const char * text, size_t size,
        int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err) {
    struct lrnn_error why;

    *tokens = NULL;
    if (token_ids_parse(text, size, tokens, n_tokens, &why) &&
            token_ids_check(*tokens, *n_tokens, info->n_vocab, &why)) {
        return true;
    }
    error_set(err, why.kind, "the prompt must be token ids%s: %s",
            info->has_tokenizer ? "" : ", because the model has no tokenizer", why.text);
    free(*tokens);
    return false;
}

bool prompt_to_tokens(const struct lrnn_model * model, const char * text, size_t size, bool ids,
        bool continues, bool special, int32_t ** tokens, int64_t * n_tokens,
        struct lrnn_error * err) {
    const struct lrnn_model_info info = lrnn_model_get_info(model);

    if (ids) {
        if (!ids_to_tokens(&info, text, size, tokens, n_tokens, err)) {
            return false;
        }
    } else {
        // no eos, even if the model wants it after every text: this text continues
        const unsigned flags = (continues ? 0u : (unsigned) LRNN_TOKENIZE_ADD_BOS) |
                               (special ? (unsigned) LRNN_TOKENIZE_PARSE_SPECIAL : 0u);
        if (!lrnn_tokenize(model, text, size, flags, tokens, n_tokens, err)) {
            return false;
        }
    }
    if (*n_tokens > 0 || continues) {
        return true;
    }
    if (info.bos < 0) {
        error_set(err, LRNN_ERROR_BAD_INPUT,
                "the prompt is empty, and the model has no bos token; give a prompt");
        free(*tokens);
        return false;
    }
    int32_t * begin = realloc(*tokens, sizeof(*begin));
    if (begin == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for a token");
        free(*tokens);
        return false;
    }
    begin[0]  = info.bos;
    *tokens   = begin;
    *n_tokens = 1;
    return true;
}
