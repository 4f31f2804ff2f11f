#pragma once

// The models of tests/golden, each with tokens and the logits that the library which defines it
// gives for them.

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
    struct golden * models; // by name
};

// Every *.gguf of the folder with its *.golden; a folder without one is an error.
bool golden_list_load(struct golden_list * list, char * err, size_t err_size);
void golden_list_free(struct golden_list * list);

#ifdef __cplusplus
}
#endif
