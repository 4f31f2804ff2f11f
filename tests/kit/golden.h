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

// No test can continue without its models: if something is missing or fails, the functions below
// print a message and end the program.

// Every *.gguf of the folder with its *.golden
void golden_list_load(struct golden_list * list);
void golden_list_free(struct golden_list * list);

// One model, which may be in a folder: draft/ has models whose logits are guesses of a draft block.
void golden_read(struct golden * golden, const char * name);
void golden_free(struct golden * golden);

const struct golden * golden_find(const struct golden_list * list, const char * name);
struct lrnn_model * golden_load_model(const char * name);

struct lrnn_model * test_load_model(const char * path, const struct lrnn_model_params * params);
struct lrnn_session * test_session(
        struct lrnn_model * model, const struct lrnn_session_params * params);

// One call for one sequence
void test_eval(struct lrnn_session * session, int32_t seq, const int32_t * tokens, int64_t n,
        int64_t n_logits);

#ifdef __cplusplus
}
#endif
