#pragma once

// Builds GGUF files piece by piece, so that a test can make each piece wrong.

#include "lrnn.h"
#include "file/model-file.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bytes {
    unsigned char * data;
    size_t          n;
    size_t          cap;
};

void put(struct bytes * b, const void * data, size_t n);
void put_u32(struct bytes * b, uint32_t v);
void put_u64(struct bytes * b, uint64_t v);
void put_text(struct bytes * b, const char * text);
void put_text_n(struct bytes * b, const char * text, size_t n);
void put_zeros(struct bytes * b, size_t n);
void put_padding(struct bytes * b, size_t alignment);

void put_header(struct bytes * b, uint64_t n_tensors, uint64_t n_keys); // clears b first
void put_key(struct bytes * b, const char * name, uint32_t type);       // the value follows
void put_key_u32(struct bytes * b, const char * name, uint32_t value);
void put_array(
        struct bytes * b, const char * name, uint32_t type, uint64_t n); // the elements follow
void put_tensor(struct bytes * b, const char * name, uint32_t n_dims, int64_t ne0, int64_t ne1,
        uint32_t type, uint64_t offset);

// A complete file with a key of each type and two tensors.
void put_sample(struct bytes * b);

enum { SAMPLE_DATA = 96 + 8 }; // bytes of tensor data at its end

// Opens a copy of the bytes under the name "f.gguf". The copy is a heap block of exactly their
// size, so that the address sanitizer detects reads past the end. The caller frees it.
struct model_file * open_bytes(
        const struct bytes * b, unsigned char ** copy, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
