#pragma once

// A model file: a GGUF, mapped and checked (gguf-check.h), with typed access to its keys and
// tensors.
//
// Whatever the file or the caller's choice of key can cause is answered with a status and one
// sentence in `err` that names the file, the key or tensor, what was found and what was expected.
// Nothing here aborts.
//
// The mapping is shared and read-only; pointers into it are valid until model_file_free. Who
// truncates the file meanwhile ends the process, as with every mapped file.
//
//     struct model_file * f = model_file_open(path, err, err_size);
//     int64_t n_layer;
//     int64_t width = 0;                                                              // stays 0 if the file has no such key
//     if (model_file_int(f, "lrnn.block_count", 1, 1024, &n_layer, err, err_size) != KEY_OK ||
//         model_file_int(f, "lrnn.conv_width",  0,   16, &width,   err, err_size) == KEY_BAD) {
//         goto fail;                                                                  // err has the sentence in both cases
//     }

#include "file/gguf-check.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_file;

// NULL with a sentence in `err` unless `path` is a regular file that passes every check.
struct model_file * model_file_open(const char * path, char * err, size_t err_size);

// The same on bytes in memory, which the caller keeps until model_file_free. `name` stands for
// the path in messages.
struct model_file * model_file_from_memory(
        const char * name, const void * data, size_t size, char * err, size_t err_size);

void model_file_free(struct model_file * f); // NULL is fine

const char * model_file_path(const struct model_file * f);
const void * model_file_bytes(const struct model_file * f,
        size_t * size); // the whole mapping, for buffers on host memory
size_t model_file_alignment(const struct model_file * f);     // of the data of tensors
const char * model_file_warning(const struct model_file * f); // NULL, or a sentence for the log

// Tells models apart, for files that belong to one: a hash of all metadata, of the size of the
// file, and of the first and last 64 bytes of every tensor, so that two trainings of one
// configuration differ. It reads a page or two of each tensor, never all of the data. It protects
// from mistakes, not from malice.
uint64_t model_file_identity(const struct model_file * f);

//
// Keys
//

// `err` is filled for both ABSENT and BAD, and `value` is left alone: a default put there before
// the call survives an absent key.
enum key_status {
    KEY_OK,
    KEY_ABSENT,
    KEY_BAD, // another type, or outside of min .. max
};

// any of the eight integer types
enum key_status model_file_int(const struct model_file * f, const char * key, int64_t min,
        int64_t max, int64_t * value, char * err, size_t err_size);

// f32 or f64; min ≤ value ≤ max, so a NaN never passes, nor an infinity with finite bounds
enum key_status model_file_float(const struct model_file * f, const char * key, double min,
        double max, double * value, char * err, size_t err_size);

enum key_status model_file_bool(
        const struct model_file * f, const char * key, bool * value, char * err, size_t err_size);

// points into the file; may contain NUL
enum key_status model_file_text(const struct model_file * f, const char * key, struct slice * value,
        char * err, size_t err_size);

// one of `words`, NULL-terminated; value is its index
enum key_status model_file_choice(const struct model_file * f, const char * key,
        const char * const * words, int * value, char * err, size_t err_size);

// Arrays of any length, 0 included: compare (*array)->n with what it should be. min and max are for
// every element. Elements are read with model_key_* below.
enum key_status model_file_ints(const struct model_file * f, const char * key, int64_t min,
        int64_t max, const struct model_key ** array, char * err, size_t err_size);
enum key_status model_file_floats(const struct model_file * f, const char * key, double min,
        double max, const struct model_key ** array, char * err, size_t err_size);
enum key_status model_file_bools(const struct model_file * f, const char * key,
        const struct model_key ** array, char * err, size_t err_size);
enum key_status model_file_texts(const struct model_file * f, const char * key,
        const struct model_key ** array, char * err, size_t err_size);

// Element i of an array, element 0 of a scalar, in constant time. Where the type is another or i is
// not below n: 0, 0.0, false, "".
int64_t model_key_int(const struct model_key * key, size_t i); // u64 above INT64_MAX: INT64_MAX
double model_key_float(const struct model_key * key, size_t i);
bool model_key_bool(const struct model_key * key, size_t i);
struct slice model_key_text(const struct model_key * key, size_t i);

// in the order of the file
size_t model_file_n_keys(const struct model_file * f);
const struct model_key * model_file_key(const struct model_file * f, size_t i);
const struct model_key * model_file_find_key(
        const struct model_file * f, const char * key); // NULL if absent

//
// Tensors
//

// in the order of the file
size_t model_file_n_tensors(const struct model_file * f);
const struct model_tensor * model_file_tensor(const struct model_file * f, size_t i);
const struct model_tensor * model_file_find_tensor(
        const struct model_file * f, const char * name); // NULL if absent

// The same lookup, and the tensor is marked as used. Not for two threads at once.
const struct model_tensor * model_file_use_tensor(struct model_file * f, const char * name);

// The index of the first number of an F32 tensor that is not in min .. max, which NaN never is; −1:
// there is none. Reads all of it.
int64_t model_tensor_outside(
        const struct model_tensor * tensor, float min, float max, float * found);

// False if tensors are left that nobody used; the sentence counts them and names the first ones.
bool model_file_all_used(const struct model_file * f, char * err, size_t err_size);

#ifdef __cplusplus
}
#endif
