#include "model/context.h"

#include <stdlib.h>

struct ggml_context * context_new(size_t n_tensors, size_t n_nodes) {
    const size_t size = ggml_tensor_overhead() * n_tensors +
                        (n_nodes > 0 ? ggml_graph_overhead_custom(n_nodes, false) : 0);
    void * buffer = malloc(size);
    if (buffer == NULL) {
        return NULL;
    }
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) {
            .mem_size = size,
            .mem_buffer = buffer,
            .no_alloc = true,
    });
    if (ctx == NULL) {
        free(buffer);
    }
    return ctx;
}

void context_free(struct ggml_context * ctx) {
    if (ctx != NULL) {
        void * buffer = ggml_get_mem_buffer(ctx);
        ggml_free(ctx);
        free(buffer);
    }
}

bool memory_is_available(size_t size) {
    void * p = malloc(size);
    free(p);
    return p != NULL;
}
