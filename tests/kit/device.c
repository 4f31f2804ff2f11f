#include "kit/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 2 * GGML_MAX_SRC + 2 };

ggml_backend_t test_device(void) {
    static ggml_backend_t device;
    const char *          name = getenv("LRNN_TEST_DEVICE");
    if (name == NULL || device != NULL) {
        return device;
    }
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(name);
    if (dev == NULL) {
        printf("SKIPPED: there is no device %s\n", name);
        exit(0);
    }
    device = ggml_backend_dev_init(dev, NULL);
    printf("device %s: %s\n", name, ggml_backend_dev_description(dev));
    return device;
}

struct copies {
    struct ggml_context *      ctx;
    ggml_backend_t             device;
    int                        n;
    const struct ggml_tensor * of[MAX_TENSORS];
    struct ggml_tensor *       copy[MAX_TENSORS];
    ggml_backend_buffer_t      buffer[MAX_TENSORS]; // NULL: a view
};

// The same tensor on the device
static struct ggml_tensor * copy_of(struct copies * c, const struct ggml_tensor * x) {
    for (int i = 0; i < c->n; ++i) {
        if (c->of[i] == x) {
            return c->copy[i];
        }
    }
    struct ggml_tensor * base = x->view_src != NULL ? copy_of(c, x->view_src) : NULL;
    struct ggml_tensor * y = ggml_new_tensor(c->ctx, x->type, GGML_MAX_DIMS, x->ne);
    memcpy(y->nb, x->nb, sizeof(x->nb));
    const int i = c->n++;
    c->of[i] = x;
    c->copy[i] = y;
    if (base != NULL) {
        y->view_src = base;
        y->view_offs = x->view_offs;
        ggml_backend_view_init(y);
        return y;
    }
    const ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(c->device);
    c->buffer[i] = ggml_backend_buft_alloc_buffer(buft, ggml_backend_buft_get_alloc_size(buft, y));
    ggml_backend_tensor_alloc(c->buffer[i], y, ggml_backend_buffer_get_base(c->buffer[i]));
    ggml_backend_tensor_set(y, x->data, 0, ggml_nbytes(x));
    return y;
}

bool test_compute_on_device(ggml_backend_t device, struct ggml_tensor * op) {
    struct copies c = { .device = device };
    c.ctx = ggml_init((struct ggml_init_params) {
            .mem_size = (MAX_TENSORS + 1) * ggml_tensor_overhead() + ggml_graph_overhead(),
            .no_alloc = true });
    struct ggml_tensor * node = copy_of(&c, op);
    node->op = op->op;
    memcpy(node->op_params, op->op_params, sizeof(op->op_params));
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        node->src[i] = op->src[i] != NULL ? copy_of(&c, op->src[i]) : NULL;
    }
    struct ggml_cgraph * graph = ggml_new_graph(c.ctx);
    ggml_build_forward_expand(graph, node);
    const bool ok = ggml_backend_supports_op(device, node) &&
                    ggml_backend_graph_compute(device, graph) == GGML_STATUS_SUCCESS;
    ggml_backend_tensor_get(node, op->data, 0, ggml_nbytes(op));
    ggml_backend_tensor_get(node->src[0], op->src[0]->data, 0, ggml_nbytes(op->src[0]));
    for (int i = 0; i < c.n; ++i) {
        ggml_backend_buffer_free(c.buffer[i]);
    }
    ggml_free(c.ctx);
    return ok;
}
