#include "kit/gguf-bytes.h"

#include "lrnn.h"

#include <stdlib.h>
#include <string.h>

void put(struct bytes * b, const void * data, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n) + 256;
        b->data = realloc(b->data, b->cap);
    }
    if (n > 0) { // data may be NULL otherwise
        memcpy(b->data + b->n, data, n);
    }
    b->n += n;
}

void put_u32(struct bytes * b, uint32_t v) {
    put(b, &v, sizeof(v));
}

void put_u64(struct bytes * b, uint64_t v) {
    put(b, &v, sizeof(v));
}

void put_text_n(struct bytes * b, const char * text, size_t n) {
    put_u64(b, n);
    put(b, text, n);
}

void put_text(struct bytes * b, const char * text) {
    put_text_n(b, text, strlen(text));
}

void put_header(struct bytes * b, uint64_t n_tensors, uint64_t n_keys) {
    b->n = 0;
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}

void put_key(struct bytes * b, const char * name, uint32_t type) {
    put_text(b, name);
    put_u32(b, type);
}

void put_array(struct bytes * b, const char * name, uint32_t type, uint64_t n) {
    put_key(b, name, GGUF_TYPE_ARRAY);
    put_u32(b, type);
    put_u64(b, n);
}

void put_key_u32(struct bytes * b, const char * name, uint32_t value) {
    put_key(b, name, GGUF_TYPE_UINT32);
    put_u32(b, value);
}

void put_tensor(struct bytes * b, const char * name, uint32_t n_dims, int64_t ne0, int64_t ne1,
        uint32_t type, uint64_t offset) {
    put_text(b, name);
    put_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims; ++d) {
        put_u64(b, d == 0 ? (uint64_t) ne0 : d == 1 ? (uint64_t) ne1 : 1);
    }
    put_u32(b, type);
    put_u64(b, offset);
}

void put_zeros(struct bytes * b, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        put(b, "", 1);
    }
}

void put_padding(struct bytes * b, size_t alignment) {
    put_zeros(b, (alignment - b->n % alignment) % alignment);
}

void put_sample(struct bytes * b) {
    const float  f32[3] = { 0.5f, -2.0f, 1e-5f };
    const double f64 = 1e300;
    put_header(b, 2, 16);
    put_key(b, "u8", GGUF_TYPE_UINT8);
    put(b, "\310", 1);
    put_key(b, "i8", GGUF_TYPE_INT8);
    put(b, "\310", 1);
    put_key(b, "u16", GGUF_TYPE_UINT16);
    put(b, "\377\377", 2);
    put_key(b, "i16", GGUF_TYPE_INT16);
    put(b, "\376\377", 2);
    put_key_u32(b, "u32", UINT32_MAX);
    put_key(b, "i32", GGUF_TYPE_INT32);
    put_u32(b, (uint32_t) -7);
    put_key(b, "u64", GGUF_TYPE_UINT64);
    put_u64(b, UINT64_C(1) << 63);
    put_key(b, "i64", GGUF_TYPE_INT64);
    put_u64(b, (uint64_t) INT64_MIN);
    put_key(b, "f32", GGUF_TYPE_FLOAT32);
    put(b, f32, 4);
    put_key(b, "f64", GGUF_TYPE_FLOAT64);
    put(b, &f64, 8);
    put_key(b, "bool", GGUF_TYPE_BOOL);
    put(b, "\1", 1);
    put_key(b, "text", GGUF_TYPE_STRING);
    put_text(b, "silu");
    put_array(b, "ints", GGUF_TYPE_INT32, 3);
    put_u32(b, 1);
    put_u32(b, (uint32_t) -2);
    put_u32(b, 3);
    put_array(b, "floats", GGUF_TYPE_FLOAT32, 3);
    put(b, f32, sizeof(f32));
    put_array(b, "bools", GGUF_TYPE_BOOL, 2);
    put(b, "\0\1", 2);
    put_array(b, "texts", GGUF_TYPE_STRING, 3);
    put_text(b, "a");
    put_text(b, "");
    put_text(b, "größe");
    put_tensor(b, "w", 2, 32, 2, GGML_TYPE_Q8_0, 0);
    put_tensor(b, "bias", 1, 2, 1, GGML_TYPE_F32, 96);
    put_padding(b, 32);
    put_zeros(b, SAMPLE_DATA);
}

struct model_file * open_bytes(
        const struct bytes * b, unsigned char ** copy, struct lrnn_error * err) {
    *copy = malloc(b->n > 0 ? b->n : 1);
    memcpy(*copy, b->data, b->n);
    return model_file_from_memory("f.gguf", *copy, b->n, err);
}
