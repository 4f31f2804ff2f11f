#pragma once

// What a report says of a model, beyond what the library tells.

#include "lrnn.h"

struct model_facts {
    char hash[65];           // SHA-256 of the file
    char tokenizer_hash[65]; // SHA-256 over what the tokenizer is made of: equal hash, equal tokens
    const char * quantization; // type that most weights have; lives as long as the model
    int64_t      parameters;
};

// - path: where the model was loaded from; the file is read as a whole
// - go_on: asked now and then, false stops; may be NULL
bool model_facts_get(const struct lrnn_model * model, const char * path, bool (*go_on)(void),
        struct model_facts * facts, char * err, size_t err_size);
