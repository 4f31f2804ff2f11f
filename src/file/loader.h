#pragma once

// Reads the keys and tensors of a model file while a model is loaded. Every value is checked; an
// error names the key or tensor, the value found and the value expected. Errors are sticky: after
// the first one, all calls do nothing and return false, NULL or a valid value, so that a family can
// read everything it needs and check l->failed once at the end.

#include "base/slice.h"
#include "run/model.h"

struct loader {
    struct lrnn_model * model;
    const char *        arch;      // general.architecture: the prefix of the model's keys
    bool                llama_cpp; // a file of llama.cpp: arch is not "lrnn"
    int32_t             device;    // for the tensors that are read next
    bool                failed;
    char *              err;
    size_t              err_size;
    char                key[128]; // the result of loader_key
};

enum tensor_need {
    TENSOR_REQUIRED = 0,
    TENSOR_OPTIONAL = 1 << 0, // the result is NULL if there is none
    TENSOR_F32      = 1 << 1, // must be F32: only weights of matrix products may have other types

    // Values outside these ranges would violate the eigenvalue range that the file states.
    TENSOR_DECAY = 1 << 2, // values up to 0: A of exp(Δ A)
    TENSOR_SHARE = 1 << 3, // values from 0 to 1: a lower bound of gates
};

// Reports an error, unless there is one already. Returns false.
bool loader_fail(struct loader * l, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;

// Allocates zeroed memory that lives as long as the model.
void * loader_alloc(struct loader * l, size_t size);

// Keys, by their full names: "general.name", "lrnn.head_count", "tokenizer.ggml.tokens". Without
// _or, a missing key is an error; with it, a missing key has the value `absent`.
int64_t loader_int(struct loader * l, const char * key, int64_t min, int64_t max);
int64_t loader_int_or(
        struct loader * l, const char * key, int64_t min, int64_t max, int64_t absent);
float loader_float(struct loader * l, const char * key, float min, float max);
float loader_float_or(struct loader * l, const char * key, float min, float max, float absent);
bool loader_bool_or(struct loader * l, const char * key, bool absent);
int loader_flag(struct loader * l, const char * key); // 1, 0, or -1 if absent

// The string is terminated and lives as long as the model.
const char * loader_string(struct loader * l, const char * key);
const char * loader_string_or(struct loader * l, const char * key, const char * absent);

// Returns the index of the value in `words`, which ends with NULL. Any other value is an error.
int loader_word(struct loader * l, const char * key, const char * const * words);
int loader_word_or(struct loader * l, const char * key, const char * const * words, int absent);

// Arrays of *n elements, for the caller to free; NULL and 0 if absent. The strings themselves are
// in the file. Every number must be in min .. max.
struct slice * loader_strings(struct loader * l, const char * key, size_t * n);
int32_t * loader_ints(struct loader * l, const char * key, int32_t min, int32_t max, size_t * n);
float * loader_floats(struct loader * l, const char * key, float min, float max, size_t * n);

// Fails unless the value of `key` is a multiple, or a divisor, of n, the value of key `of`.
bool loader_multiple(
        struct loader * l, const char * key, int64_t value, const char * of, int64_t n);
bool loader_divisor(struct loader * l, const char * key, int64_t value, const char * of, int64_t n);

// The full name of a key that files of lrnn and of llama.cpp both have: "lrnn.block_count",
// "mamba.block_count". Valid until the next call.
const char * loader_key(struct loader * l, const char * name);

// Tensors. `name` is without "blk.N."; il is the layer, or −1 for a tensor outside the layers. A
// length of 0 accepts any length. Marks the tensor as used.
struct ggml_tensor * loader_tensor_1d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0);
struct ggml_tensor * loader_tensor_2d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0, int64_t ne1);
struct ggml_tensor * loader_tensor_nd(
        struct loader * l, int32_t il, const char * name, int need, int n_dims, const int64_t * ne);

// Marks the tensors of n layers as used without reading them, and reports it.
void loader_skip_layers(struct loader * l, int32_t first, int64_t n);

// Fails if the file has tensors that were not read.
bool loader_all_used(struct loader * l);

// Declares the state of the recurrence: n_head heads of d_k × d_v + extra floats. Must be the first
// state of the layer.
void loader_recurrence(struct loader * l, struct layer * layer, int64_t n_head, int64_t d_k,
        int64_t d_v, int64_t extra);

// Declares a state of `size` floats and returns its number in the layer.
int32_t loader_state(struct loader * l, struct layer * layer, int64_t size);
