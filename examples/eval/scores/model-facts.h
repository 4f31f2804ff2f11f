#pragma once

// Facts about a model that a report states.

#include "lrnn.h"

struct model_facts {
    char         hash[65];           // SHA-256 of the file
    char         tokenizer_hash[65]; // equal hash: equal tokens
    const char * quantization;       // type of most weights; lives as long as the model
    int64_t      parameters;
};

// Reads the whole model file for its hash.
// - path: of the model file
// - stop: called now and then, true stops; may be NULL
bool model_facts_get(const struct lrnn_model * model, const char * path, bool (*stop)(void),
        struct model_facts * facts, struct lrnn_error * err);

// The type of most weights, such as "q8_0", and the number of weights.
// - n_parameters: may be NULL
const char * model_type(const struct lrnn_model * model, int64_t * n_parameters);

// Compares the tokenizer keys of two models. Returns true if they differ, and the first such key.
bool model_tokenizers_differ(
        const struct lrnn_model * a, const struct lrnn_model * b, struct lrnn_key_info * key);
