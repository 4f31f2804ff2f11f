#pragma once

// What a prompt becomes, in every program.

#include "lrnn.h"

// Tokenizes a text. It begins with bos if the model wants that, and never ends with eos, because it
// continues. The names of special tokens are text, unless `special` is set. The caller frees
// *tokens.
// - follows: the prompt follows other tokens and has no bos
bool prompt_tokenize(const struct lrnn_model * model, const char * text, size_t size, bool follows,
        bool special, int32_t ** tokens, int64_t * n_tokens, struct lrnn_error * err);

// The token that stands for an empty prompt in an empty sequence: bos, or eos if the model has no
// bos. -1: error.
int32_t prompt_first_token(const struct lrnn_model_info * info, struct lrnn_error * err);
