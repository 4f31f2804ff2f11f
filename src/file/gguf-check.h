#pragma once

// The structure of a GGUF file, checked as a whole before anyone trusts a byte of it.
//
// This stands in place of ggml's own reader. That one takes shapes with a zero in them, empty
// tensor names, keys with a NUL inside and bools of 2; it does not ask whether the data of a tensor
// lies inside the file unless it copies them; its getters abort the process on a key of another
// type than expected; and it copies every string of the vocabulary. Here the file is looked at
// where it lies, every length is compared with the bytes that are left before it is used, and the
// answer to a bad file is one sentence.
//
// The walk is linear in the bytes of the metadata, and what it allocates is at most a few times
// those bytes. Names are sorted, not hashed: n log n for every file, where a hash whose collisions
// can be computed would let a file choose n².

#include "ggml.h"
#include "gguf.h" // enum gguf_type; none of its functions
#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A key with its value. A scalar is an array of one that says is_array = false.
struct model_key {
    struct slice   name; // at least one byte, no control characters
    enum gguf_type type; // of the value, or of the elements; never GGUF_TYPE_ARRAY
    bool           is_array;
    size_t         n;  // elements
    const char * data; // the first element, not aligned; a string is its length (u64) and its bytes
    const char ** strings; // for an array of strings: where each begins; otherwise NULL
};

struct model_tensor {
    char           name[GGML_MAX_NAME]; // at least one byte, no control characters
    enum ggml_type type;                // one that this ggml has
    int            n_dims;              // 1 .. GGML_MAX_DIMS
    int64_t        ne[GGML_MAX_DIMS];   // all > 0; 1 beyond n_dims
    size_t         size;                // bytes
    size_t         offset;              // from the start of the file
    const void *   data;                // inside the file
    bool           used;                // see model_file_use_tensor
};

// A name and where it belongs, in the sorted lists that serve lookups.
struct gguf_index_name {
    struct slice text;
    size_t       index;
};

// What a checked file contains, in the order of the file.
struct gguf_index {
    size_t                   n_keys;
    struct model_key *       keys;
    struct gguf_index_name * key_names;
    size_t                   n_tensors;
    struct model_tensor *    tensors;
    struct gguf_index_name * tensor_names;
    size_t                   meta_size;    // bytes before the padding that precedes the data
    size_t                   alignment;    // of the data; a power of two
    char                     warning[256]; // a sentence about something odd but harmless, or ""
};

// False with one sentence in `err` if the bytes are not a GGUF v3 that can be trusted. `file` names
// them in the sentence. What is returned points into `data`. Call gguf_index_free in either case.
bool gguf_check(struct gguf_index * g, const char * file, const void * data, size_t size,
        char * err, size_t err_size);
void gguf_index_free(struct gguf_index * g);

// The index of a name, or SIZE_MAX.
size_t gguf_index_find(const struct gguf_index_name * names, size_t n, const char * name);

// "u32", "string", ...; NULL for what is not a type
const char * gguf_index_type_name(enum gguf_type type);

#ifdef __cplusplus
}
#endif
