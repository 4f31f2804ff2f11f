#include "kit/tensors.h"

#include "ggml-cpu.h"
#include "kit/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

void test_arena_init(struct test_arena * a) {
    memset(a, 0, sizeof(*a));
    a->ctx = ggml_init((struct ggml_init_params) {
            .mem_size = 4u << 20, .mem_buffer = NULL, .no_alloc = true });
    a->backend = ggml_backend_cpu_init();
}

void test_arena_free(struct test_arena * a) {
    for (int i = 0; i < a->n_tensors; ++i) {
        ggml_backend_buffer_free(a->buffers[i]);
        free(a->memory[i]);
    }
    free(a->memory);
    free(a->buffers);
    ggml_backend_free(a->backend);
    ggml_free(a->ctx);
    memset(a, 0, sizeof(*a));
}

void test_alloc(struct test_arena * a, struct ggml_tensor * x) {
    const size_t size = ggml_nbytes(x);
    const size_t room =
            (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + (size == 0 ? ALIGNMENT : 0);

    if (a->n_tensors == a->max_tensors) {
        a->max_tensors = 2 * a->max_tensors + 16;
        a->memory = realloc(a->memory, a->max_tensors * sizeof(a->memory[0]));
        a->buffers = realloc(a->buffers, a->max_tensors * sizeof(a->buffers[0]));
    }
    char *                memory = aligned_alloc(ALIGNMENT, room);
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(memory, room);
    a->memory[a->n_tensors] = memory;
    a->buffers[a->n_tensors] = buffer;
    a->n_tensors++;
    ggml_backend_tensor_alloc(buffer, x, memory + room - size); // ends with its memory
}

struct ggml_tensor * test_tensor(struct test_arena * a, enum ggml_type type,
        enum test_layout layout, const char * name, int64_t ne0, int64_t ne1, int64_t ne2,
        int64_t ne3) {
    const int64_t ne[4] = { ne0, ne1, ne2, ne3 };

    if (layout == TEST_DENSE) {
        struct ggml_tensor * x = ggml_new_tensor(a->ctx, type, 4, ne);
        ggml_set_name(x, name);
        test_alloc(a, x);
        return x;
    }

    // dimensions from the innermost to the outermost, and the gap after each, in elements
    static const int order[TEST_LAYOUTS][4] = {
        [TEST_FUSED] = { 0, 1, 2, 3 },
        [TEST_GAPS] = { 0, 1, 2, 3 },
        [TEST_FACTORS_OUT] = { 0, 1, 3, 2 },
        [TEST_HEADS_OUT] = { 0, 2, 3, 1 },
        [TEST_REVERSED] = { 3, 2, 1, 0 },
    };
    static const int64_t gap[TEST_LAYOUTS][3] = {
        [TEST_FUSED] = { 0, 0, 8 },
        [TEST_GAPS] = { 3, 5, 1 },
        [TEST_FACTORS_OUT] = { 0, 2, 3 },
        [TEST_HEADS_OUT] = { 1, 0, 2 },
        [TEST_REVERSED] = { 0, 0, 1 },
    };
    int64_t stride[4];
    int64_t step = 1;
    int64_t end = 1;
    for (int i = 0; i < 4; ++i) {
        const int d = order[layout][i];
        stride[d] = step;
        end += (ne[d] - 1) * step;
        step *= ne[d];
        if (i < 3) {
            step += gap[layout][i];
        }
    }
    struct ggml_tensor * base = ggml_new_tensor_1d(a->ctx, type, end);
    test_alloc(a, base);
    for (int64_t i = 0; i < end; ++i) {
        ((float *) base->data)[i] = NAN;
    }
    struct ggml_tensor * x = ggml_view_1d(a->ctx, base, end, 0);
    for (int d = 0; d < 4; ++d) {
        x->ne[d] = ne[d];
        x->nb[d] = stride[d] * sizeof(float);
    }
    ggml_set_name(x, name);
    return x;
}

struct ggml_tensor * test_gather(struct test_arena * a, const struct ggml_tensor * x, int dim,
        const int64_t * idx, int64_t n) {
    int64_t ne[4] = { x->ne[0], x->ne[1], x->ne[2], x->ne[3] };
    ne[dim] = n;
    struct ggml_tensor * y =
            test_tensor(a, GGML_TYPE_F32, TEST_DENSE, x->name, ne[0], ne[1], ne[2], ne[3]);
    for (int64_t i = 0; i < ggml_nelements(y); ++i) {
        int64_t at[4] = { i % ne[0], i / ne[0] % ne[1], i / (ne[0] * ne[1]) % ne[2],
            i / (ne[0] * ne[1] * ne[2]) };
        at[dim] = idx[at[dim]];
        ((float *) y->data)[i] = test_get(x, at[0], at[1], at[2], at[3]);
    }
    return y;
}

float test_get(const struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return *(const float *) ((const char *) x->data + i0 * x->nb[0] + i1 * x->nb[1] +
                             i2 * x->nb[2] + i3 * x->nb[3]);
}

void test_set(struct ggml_tensor * x, int64_t i0, int64_t i1, int64_t i2, int64_t i3, float value) {
    *(float *) ((char *) x->data + i0 * x->nb[0] + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]) =
            value;
}

void test_fill(struct ggml_tensor * x, float value) {
    test_fill_uniform(x, &(struct test_rng) { 0 }, value, value);
}

void test_fill_uniform(struct ggml_tensor * x, struct test_rng * r, double lo, double hi) {
    for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < x->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < x->ne[1]; ++i1) {
                for (int64_t i0 = 0; i0 < x->ne[0]; ++i0) {
                    test_set(x, i0, i1, i2, i3, (float) test_uniform(r, lo, hi));
                }
            }
        }
    }
}

void test_fill_normal(struct ggml_tensor * x, struct test_rng * r, double scale) {
    for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < x->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < x->ne[1]; ++i1) {
                for (int64_t i0 = 0; i0 < x->ne[0]; ++i0) {
                    test_set(x, i0, i1, i2, i3, (float) (scale * test_normal(r)));
                }
            }
        }
    }
}

void test_fill_unit(struct ggml_tensor * x, struct test_rng * r, double mean) {
    const int64_t n = x->ne[0];
    double *      e = malloc(n * sizeof(double));
    double *      row = malloc(n * sizeof(double));
    double        ee = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        e[i] = test_normal(r);
        ee += e[i] * e[i];
    }
    for (int64_t i3 = 0; i3 < x->ne[3]; ++i3) {
        for (int64_t i2 = 0; i2 < x->ne[2]; ++i2) {
            for (int64_t i1 = 0; i1 < x->ne[1]; ++i1) {
                double sum = 0.0;
                for (int64_t i = 0; i < n; ++i) {
                    row[i] = test_normal(r) / sqrt((double) n) + mean * e[i] / sqrt(ee);
                    sum += row[i] * row[i];
                }
                for (int64_t i = 0; i < n; ++i) {
                    test_set(x, i, i1, i2, i3, (float) (row[i] / sqrt(sum)));
                }
            }
        }
    }
    free(e);
    free(row);
}

bool test_is_weight(int type) {
    const struct ggml_type_traits * traits = ggml_get_type_traits((enum ggml_type) type);
    const bool                      is_slow = type == GGML_TYPE_IQ1_S || type == GGML_TYPE_IQ1_M ||
                         type == GGML_TYPE_IQ2_XXS || type == GGML_TYPE_IQ2_XS ||
                         type == GGML_TYPE_IQ2_S;
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ||
           (traits->is_quantized && traits->to_float != NULL && type != GGML_TYPE_Q8_1 &&
                   type != GGML_TYPE_Q8_K && !is_slow);
}

bool test_has_byte_kernels(void) {
    return ggml_cpu_has_avx2() || ggml_cpu_has_dotprod();
}

float * test_fill_weights(struct ggml_tensor * w, struct test_rng * r) {
    const int64_t n = ggml_nelements(w), K = w->ne[0];
    float *       rows = malloc((size_t) n * sizeof(float));
    float *       importance = malloc((size_t) K * sizeof(float));
    for (int64_t k = 0; k < K; ++k) {
        importance[k] = 1.0f;
    }
    for (int64_t i = 0; i < n; ++i) {
        rows[i] = (float) test_normal(r);
    }
    ggml_quantize_chunk(w->type, rows, w->data, 0, n / K, K, importance);
    if (w->type != GGML_TYPE_F32) {
        ggml_get_type_traits(w->type)->to_float(w->data, rows, n);
    }
    free(importance);
    return rows;
}

float * test_copy(const struct ggml_tensor * x) {
    float * data = malloc(ggml_nbytes(x) + 1);
    memcpy(data, x->data, ggml_nbytes(x));
    return data;
}

void test_restore(struct ggml_tensor * x, const float * data) {
    memcpy(x->data, data, ggml_nbytes(x));
}

bool test_compute(struct test_arena * a, struct ggml_tensor * op, int n_threads) {
    if (op->data == NULL) {
        test_alloc(a, op);
    }
    memset(op->data, 0x5a, ggml_nbytes(op));
    if (test_device() != NULL) {
        return test_compute_on_device(test_device(), op);
    }
    ggml_backend_cpu_set_n_threads(a->backend, n_threads);
    struct ggml_cgraph * graph = ggml_new_graph_custom(a->ctx, 32, false);
    ggml_build_forward_expand(graph, op);
    return ggml_backend_graph_compute(a->backend, graph) == GGML_STATUS_SUCCESS;
}
