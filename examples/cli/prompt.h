#pragma once

// Turns the prompt of the user into tokens.

#include "lrnn.h"

// Tokenizes a text, or parses decimal ids. The caller frees *tokens.
// - continues: the prompt follows other tokens; nothing is put before it, and it may be empty
// - special:   turn the names of special tokens into their ids
bool prompt_to_tokens(const struct lrnn_model * model, const char * text, size_t size, bool ids,
        bool continues, bool special, int32_t ** tokens, int64_t * n_tokens,
        struct lrnn_error * err);
