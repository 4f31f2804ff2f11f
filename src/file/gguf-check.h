#pragma once

// Checks the structure of a GGUF file completely before anything uses it.
//
// This replaces ggml's reader. That reader accepts shapes with a zero, empty tensor names, keys
// that contain NUL and bools with the value 2. It checks that tensor data is inside the file only
// if it copies the data. Its getters abort the process if a key has an unexpected type. And it
// copies every string of the vocabulary. This reader works on the mapped file, compares every
// length with the remaining bytes before using it, and rejects a bad file with a one-sentence
// error.
//
// Time is linear in the size of the metadata, and memory at most a small multiple of it. Names are
// sorted rather than hashed: this is n log n for every file, while a file with computed hash
// collisions could cause n².

#include "lrnn.h"
#include "ggml.h"
#include "gguf.h" // enum gguf_type; none of its functions
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A key with its value. A scalar is stored like an array of one element.
struct model_key {
    struct slice   name; // not empty, no control characters
    enum gguf_type type; // of the value or of the elements; never GGUF_TYPE_ARRAY
    bool           is_array;
    size_t         n;    // elements
    const char *   data; // the first element, not aligned; a string is a u64 length and its bytes
    const char **  strings; // start of each string of an array of strings; otherwise NULL
};

struct model_tensor {
    char           name[GGML_MAX_NAME]; // not empty, no control characters
    enum ggml_type type;                // supported by this ggml
    int            n_dims;              // 1 .. GGML_MAX_DIMS
    int64_t        ne[GGML_MAX_DIMS];   // all > 0; 1 from n_dims on
    size_t         size;                // bytes
    size_t         offset;              // from the start of the file
    const void *   data;                // inside the file
    bool           used;                // see model_file_use_tensor
};

// An entry of a sorted list of names, for lookups.
struct gguf_index_name {
    struct slice text;
    size_t       index;
};

// The keys and tensors of a checked file, in the order of the file.
struct gguf_index {
    size_t                   n_keys;
    struct model_key *       keys;
    struct gguf_index_name * key_names;
    size_t                   n_tensors;
    struct model_tensor *    tensors;
    struct gguf_index_name * tensor_names;
    size_t                   meta_size;    // bytes before the padding that precedes the data
    size_t                   alignment;    // of the data; a power of two
    char                     warning[256]; // about a harmless irregularity, or ""
};

// Checks the bytes of a GGUF v3 file. The index points into `data`. `file` is the name for error
// messages. Call gguf_index_free after success and failure.
bool gguf_check(struct gguf_index * g, const char * file, const void * data, size_t size,
        struct lrnn_error * err);
void gguf_index_free(struct gguf_index * g);

// The index of a name, or SIZE_MAX.
size_t gguf_index_find(const struct gguf_index_name * names, size_t n, const char * name);

// "u32", "string", ...; NULL if the type is invalid
const char * gguf_index_type_name(enum gguf_type type);

#ifdef __cplusplus
}
#endif
