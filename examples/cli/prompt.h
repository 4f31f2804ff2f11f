#pragma once

// From what the user wrote to the tokens that are fed.

#include "lrnn.h"

// The tokens of a prompt: of text, or of decimal ids. *tokens is made with malloc, the caller frees
// it.
// - continues: it goes on behind other tokens, so that nothing is put before it, and it may be
//   empty
// - special:   special tokens written out in the text become their ids
bool prompt_to_tokens(const struct lrnn_model * model, const char * text, size_t size, bool ids,
        bool continues, bool special, int32_t ** tokens, int64_t * n_tokens, char * err,
        size_t err_size);
