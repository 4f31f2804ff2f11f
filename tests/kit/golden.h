#pragma once

// The golden models of tests/golden, each with tokens and golden logits: those of the library that
// defines the family.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct golden {
    char      name[64];
    char      path[1024]; // of the GGUF file
    int64_t   n_tokens;
    int64_t   n_vocab;
    int32_t * tokens; // [n_tokens]
    float *   logits; // [n_tokens][n_vocab]
};

struct golden_list {
    int             n;
    struct golden * models; // sorted by name
};

// Loads every *.gguf of the folder with its *.golden. An empty folder is an error.
bool golden_list_load(struct golden_list * list, struct lrnn_error * err);
void golden_list_free(struct golden_list * list);

// The functions below end the program if there is no such model.

const struct golden * golden_find(const struct golden_list * list, const char * name);

struct lrnn_model;
struct lrnn_model * golden_load_model(const char * name);

#ifdef __cplusplus
}
#endif
