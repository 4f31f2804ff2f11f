#include "file/gguf-write.h"

#include "base/error.h"

#include <stdlib.h>

bool gguf_write_metadata(
        struct atomic_file * out, const struct gguf_context * gguf, struct lrnn_error * err) {
    const size_t size = gguf_get_meta_size(gguf);
    char *       meta = malloc(size);
    if (meta == NULL) {
        return error_no_memory(err, "%zu bytes of metadata", size);
    }
    gguf_get_meta_data(gguf, meta);
    const bool ok = atomic_file_write(out, meta, size, err);
    free(meta);
    return ok;
}

bool gguf_write_padding(
        struct atomic_file * out, size_t size, size_t alignment, struct lrnn_error * err) {
    static const char zeros[256] = { 0 };
    for (size_t left = GGML_PAD(size, alignment) - size; left > 0;) {
        const size_t n = left < sizeof(zeros) ? left : sizeof(zeros);
        if (!atomic_file_write(out, zeros, n, err)) {
            return false;
        }
        left -= n;
    }
    return true;
}

bool gguf_write_tensor(struct atomic_file * out, const void * data, size_t size, size_t alignment,
        struct lrnn_error * err) {
    return atomic_file_write(out, data, size, err) && gguf_write_padding(out, size, alignment, err);
}
