#pragma once

// Reading a model out of its file: keys and tensors by name, each checked, each error naming the
// key or the tensor, what was found and what was expected. Errors are sticky: after the first one
// every call does nothing and returns false or NULL, so that a family reads all it needs and looks
// once, at the end.

#include "base/slice.h"
#include "run/model.h"

struct loader {
    struct lrnn_model * model;
    const char *        arch;      // general.architecture: the prefix of the model's keys
    bool                llama_cpp; // a file of llama.cpp: arch is not "lrnn"
    int32_t             device;    // of the tensors that are read now
    bool                failed;
    char *              err;
    size_t              err_size;
    char                key[128]; // of loader_key
};

enum tensor_need {
    TENSOR_REQUIRED = 0,
    TENSOR_OPTIONAL = 1 << 0, // NULL if there is none
    TENSOR_F32 =
            1
            << 1, // of this type only: not the weight of a matrix product, so that no op takes it otherwise
    TENSOR_DECAY =
            1
            << 2, // no number above 0: A of exp(Δ A), which would leave the range of eigenvalues that the file states
    TENSOR_SHARE = 1 << 3, // from 0 to 1: a lower bound of gates, for the same reason
};

// Says what is wrong; the first one counts. Returns false.
bool loader_fail(struct loader * l, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;

// Memory that lives as long as the model, zeroed.
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

// The full name of a key that files of lrnn and of llama.cpp both have: "lrnn.block_count",
// "mamba.block_count". Valid until the next call.
const char * loader_key(struct loader * l, const char * name);

// Tensors. ne0 = 0: any. `name` is without "blk.N."; il < 0: a tensor of the whole model. Each is
// marked as used.
struct ggml_tensor * loader_tensor_1d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0);
struct ggml_tensor * loader_tensor_2d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0, int64_t ne1);
struct ggml_tensor * loader_tensor_nd(
        struct loader * l, int32_t il, const char * name, int need, int n_dims, const int64_t * ne);

// False if the file has tensors that nobody read.
bool loader_all_used(struct loader * l);

// Adds the state of a recurrence, which comes first: heads of d_k × d_v, and what else a head has.
void loader_recurrence(struct loader * l, struct layer * layer, int64_t n_head, int64_t d_k,
        int64_t d_v, int64_t extra);

// Adds a state of `size` floats to the layer and returns its number.
int32_t loader_state(struct loader * l, struct layer * layer, int64_t size);
