#pragma once

// A model file: a GGUF file, mapped and checked (gguf-check.c), with typed access to keys and
// tensors.
//
// Bad files and wrong keys never abort the process. They result in a status and in a message in
// `err` that names the file, the key or tensor, the value found and the value expected.
//
// The mapping is shared and read-only. Pointers into it are valid until model_file_free. If another
// process truncates the file, this process ends with SIGBUS, as with every mapped file.
//
//     struct model_file * f = model_file_open(path, err);
//     int64_t n_layer;
//     int64_t width = 0; // the default if the key is absent
//     if (model_file_int(f, "lrnn.block_count", 1, 1024, &n_layer, err) != KEY_OK ||
//         model_file_int(f, "lrnn.conv_width",  0,   16, &width,   err) == KEY_BAD) {
//         goto fail; // err has the message in both cases
//     }

#include "lrnn.h"
#include "base/slice.h"
#include "ggml.h"
#include "gguf.h" // enum gguf_type; none of its functions

struct model_file;

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

// Maps and checks a regular file. Returns NULL on failure.
struct model_file * model_file_open(const char * path, struct lrnn_error * err);

// The same for bytes in memory, which must stay valid until model_file_free. `name` replaces the
// path in messages.
struct model_file * model_file_from_memory(
        const char * name, const void * data, size_t size, struct lrnn_error * err);

void model_file_free(struct model_file * f); // f may be NULL

const char * model_file_path(const struct model_file * f);
const void * model_file_bytes(const struct model_file * f, size_t * size); // the whole file
size_t model_file_alignment(const struct model_file * f);                  // of tensor data
const char * model_file_warning(const struct model_file * f);              // NULL: none

// Identifies the model, for files that belong to it. A hash of the metadata, the file size, and the
// first and last 64 bytes of every tensor, so that two trainings of one configuration differ.
// Reading all data would take too long. This detects mistakes, not attacks.
uint64_t model_file_identity(const struct model_file * f);

// ---- Keys ---------------------------------------------------------------------------------------

// ABSENT and BAD set `err` and leave `value` unchanged, so that it can hold a default.
enum key_status {
    KEY_OK,
    KEY_ABSENT,
    KEY_BAD, // wrong type, or not in min .. max
};

// Any of the eight integer types.
enum key_status model_file_int(const struct model_file * f, const char * key, int64_t min,
        int64_t max, int64_t * value, struct lrnn_error * err);

// f32 or f64. NaN is never in min .. max.
enum key_status model_file_float(const struct model_file * f, const char * key, double min,
        double max, double * value, struct lrnn_error * err);

enum key_status model_file_bool(
        const struct model_file * f, const char * key, bool * value, struct lrnn_error * err);

// Points into the file; may contain NUL.
enum key_status model_file_text(const struct model_file * f, const char * key, struct slice * value,
        struct lrnn_error * err);

// One of `words`, which ends with NULL. The value is its index.
enum key_status model_file_choice(const struct model_file * f, const char * key,
        const char * const * words, int * value, struct lrnn_error * err);

// Arrays of any length, including 0: check (*array)->n. Every element must be in min .. max. Read
// the elements with model_key_*.
enum key_status model_file_ints(const struct model_file * f, const char * key, int64_t min,
        int64_t max, const struct model_key ** array, struct lrnn_error * err);
enum key_status model_file_floats(const struct model_file * f, const char * key, double min,
        double max, const struct model_key ** array, struct lrnn_error * err);
enum key_status model_file_bools(const struct model_file * f, const char * key,
        const struct model_key ** array, struct lrnn_error * err);
enum key_status model_file_texts(const struct model_file * f, const char * key,
        const struct model_key ** array, struct lrnn_error * err);

enum lrnn_key_kind model_key_kind(const struct model_key * key); // of its value or elements

// Element i of an array, or element 0 of a scalar, in constant time. Returns 0, 0.0, false or ""
// if the type differs or i is out of range.
int64_t model_key_int(const struct model_key * key, size_t i); // u64 above INT64_MAX: INT64_MAX
double model_key_float(const struct model_key * key, size_t i);
bool model_key_bool(const struct model_key * key, size_t i);
struct slice model_key_text(const struct model_key * key, size_t i);

// Keys in the order of the file.
size_t model_file_n_keys(const struct model_file * f);
const struct model_key * model_file_key(const struct model_file * f, size_t i);
const struct model_key * model_file_find_key(
        const struct model_file * f, const char * key); // NULL if absent

// ---- Tensors ------------------------------------------------------------------------------------

// Tensors in the order of the file.
size_t model_file_n_tensors(const struct model_file * f);
const struct model_tensor * model_file_tensor(const struct model_file * f, size_t i);
const struct model_tensor * model_file_find_tensor(
        const struct model_file * f, const char * name); // NULL if absent

// Frees the memory that the data of a tensor uses. They are read again when somebody needs them.
void model_file_release(const struct model_file * f, const struct model_tensor * t);

// Like model_file_find_tensor, and marks the tensor as used. Not thread-safe.
const struct model_tensor * model_file_use_tensor(struct model_file * f, const char * name);

// Returns the index of the first value of an F32 tensor that is not in min .. max (NaN never is),
// or −1 if there is none. Reads the whole tensor.
int64_t model_tensor_outside(
        const struct model_tensor * tensor, float min, float max, float * found);

// Returns false if some tensor is not marked as used; `err` names the first ones.
bool model_file_all_used(const struct model_file * f, struct lrnn_error * err);

// ---- The check of the bytes of a file (gguf-check.c) --------------------------------------------

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
