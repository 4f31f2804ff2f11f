#pragma once

// Reads the keys of a model file while a model is loaded; model/load-tensors.h reads the tensors.
// Every value is checked; an error names the key, the value found and the value expected. Errors
// are sticky: after the first one, all calls do nothing and return false, NULL or a valid value, so
// that a family can read everything it needs and check l->failed once at the end.

#include "lrnn.h"
#include "base/arena.h"
#include "base/error.h"
#include "file/model-file.h"

struct loader {
    struct model_file * file;
    struct arena *      arena;     // of what lives as long as the model
    const char *        arch;      // general.architecture: the prefix of the model's keys
    bool                llama_cpp; // a file of llama.cpp: arch is not "lrnn"
    struct lrnn_model * model;     // what is loaded, and the device for the tensors that are read
    int32_t             device;    // next: for load-tensors.h
    bool                failed;
    struct lrnn_error * err;
    char                keys[4][128]; // the last results of loader_key
    int                 n_keys;
};

// Reports an error, unless there is one already. Returns false.
bool loader_fail(struct loader * l, const char * fmt, ...) ERROR_PRINTF(2, 3);

// The same for memory: "out of memory for <n> <what>".
bool loader_no_memory(struct loader * l, size_t n, const char * what);

// The same with the error of another function, after "<what>: " unless that is NULL.
bool loader_fail_with(struct loader * l, const struct lrnn_error * why, const char * what);

// Allocates zeroed memory that lives as long as the model.
void * loader_alloc(struct loader * l, size_t size);

// Keys, by their full names: "general.name", "lrnn.head_count", "tokenizer.ggml.tokens". Without
// _or, a missing key is an error; with it, a missing key has the value `absent`.
int64_t loader_int(struct loader * l, const char * key, int64_t min, int64_t max);
int64_t loader_int_or(
        struct loader * l, const char * key, int64_t min, int64_t max, int64_t absent);
// Element i of an array, or the value of a key that has one for all i. The key is required if
// `absent` is below min.
int64_t loader_int_at(
        struct loader * l, const char * key, size_t i, int64_t min, int64_t max, int64_t absent);

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
// "mamba.block_count". Valid until the fourth call after this one.
const char * loader_key(struct loader * l, const char * name);
