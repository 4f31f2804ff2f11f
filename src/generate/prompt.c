#include "generate/prompt.h"

#include "base/error.h"

bool prompt_tokenize(const struct lrnn_model * model, const char * text, size_t size, bool follows,
        bool special, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err) {
    const unsigned flags = (follows ? 0u : (unsigned) LRNN_TOKENIZE_ADD_BOS) |
                           (special ? (unsigned) LRNN_TOKENIZE_PARSE_SPECIAL : 0u);
    return lrnn_tokenize(model, text, size, flags, tokens, n_tokens, err);
}

int32_t prompt_first_token(const struct lrnn_model_info * info, struct lrnn_error * err) {
    const int32_t token = info->bos >= 0 ? info->bos : info->eos;
    if (token < 0) {
        error_bad_input(
                err, "the prompt is empty, and the model has neither bos nor eos to begin with");
    }
    return token;
}
