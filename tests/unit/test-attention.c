// Attention on the CPU against a double-precision loop, for every type of the cache, and the
// promises that ggml's own kernel does not make: a query gives the same bits alone as together with
// others, with any number of threads, and however many hidden rows follow. The device of
// LRNN_TEST_DEVICE computes instead if there is one; it must keep the same promises.

#include "kit/check.h"
#include "kit/device.h"
#include "kit/rng.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static struct test t;

struct shape {
    int64_t dk, dv, n, n_head, n_head_kv, rows;
    int64_t window; // rows that a query sees; 0: all until its own
    int     hidden; // rows hidden from every query at the end
};

// Inputs of one case: q [dk, n, H], k [dk, rows, HK], v [dv, rows, HK], and what k and v hold after
// rounding to the type of the cache.
struct inputs {
    struct shape   s;
    enum ggml_type type;
    float *        q, *k, *v;
    void *         k_data, *v_data;
};

static float * random_floats(struct test_rng * rng, int64_t n) {
    float * x = malloc((size_t) n * sizeof(*x));
    for (int64_t i = 0; i < n; ++i) {
        x[i] = (float) test_normal(rng);
    }
    return x;
}

// The rows of x in the type, and back.
static void * rounded(float * x, enum ggml_type type, int64_t width, int64_t n_rows) {
    void * data = malloc(ggml_row_size(type, width) * (size_t) n_rows);
    if (type == GGML_TYPE_F32) {
        memcpy(data, x, (size_t) (width * n_rows) * sizeof(*x));
    } else {
        ggml_quantize_chunk(type, x, data, 0, n_rows, width, NULL);
        ggml_get_type_traits(type)->to_float(data, x, width * n_rows);
    }
    return data;
}

static struct inputs make_inputs(const struct shape * s, enum ggml_type type, uint64_t seed) {
    struct test_rng rng = { seed };
    struct inputs   in = { .s = *s, .type = type };
    in.q = random_floats(&rng, s->dk * s->n * s->n_head);
    in.k = random_floats(&rng, s->dk * s->rows * s->n_head_kv);
    in.v = random_floats(&rng, s->dv * s->rows * s->n_head_kv);
    in.k_data = rounded(in.k, type, s->dk, s->rows * s->n_head_kv);
    in.v_data = rounded(in.v, type, s->dv, s->rows * s->n_head_kv);
    return in;
}

static void inputs_free(struct inputs * in) {
    free(in->q);
    free(in->k);
    free(in->v);
    free(in->k_data);
    free(in->v_data);
}

// Query i is the token at row rows − hidden − n + i.
static bool sees(const struct shape * s, int64_t i, int64_t row) {
    const int64_t now = s->rows - s->hidden - s->n + i;
    return row <= now && (s->window == 0 || row > now - s->window);
}

static double scale_of(const struct shape * s) {
    return 1.0 / sqrt((double) s->dk);
}

// Runs the op on queries first … first + n − 1 and the first `rows` rows → [dv, H, n]
static float * run(
        const struct inputs * in, int64_t first, int64_t n, int64_t rows, int n_threads) {
    const struct shape *  s = &in->s;
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { 256u << 20, NULL, false });
    struct ggml_tensor *  q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, s->dk, n, s->n_head);
    struct ggml_tensor *  k = ggml_new_tensor_3d(ctx, in->type, s->dk, s->rows, s->n_head_kv);
    struct ggml_tensor *  v = ggml_new_tensor_3d(ctx, in->type, s->dv, s->rows, s->n_head_kv);
    struct ggml_tensor *  m = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, rows, n);
    memcpy(k->data, in->k_data, ggml_nbytes(k));
    memcpy(v->data, in->v_data, ggml_nbytes(v));
    for (int64_t h = 0; h < s->n_head; ++h) {
        memcpy((char *) q->data + (size_t) h * q->nb[2], in->q + (h * s->n + first) * s->dk,
                (size_t) (n * s->dk) * sizeof(float));
    }
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t row = 0; row < rows; ++row) {
            ((ggml_fp16_t *) m->data)[i * rows + row] =
                    ggml_fp32_to_fp16(sees(s, first + i, row) ? 0.0f : -INFINITY);
        }
    }
    k = ggml_view_3d(ctx, k, s->dk, rows, s->n_head_kv, k->nb[1], k->nb[2], 0);
    v = ggml_view_3d(ctx, v, s->dv, rows, s->n_head_kv, v->nb[1], v->nb[2], 0);
    struct ggml_tensor * o = ggml_flash_attn_ext(ctx, q, k, v, m, (float) scale_of(s), 0.0f, 0.0f);
    struct ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, o);
    test_check(&t,
            test_device() != NULL
                    ? test_compute_on_device(test_device(), o)
                    : ggml_graph_compute_with_ctx(ctx, graph, n_threads) == GGML_STATUS_SUCCESS,
            "the op was not computed");
    float * out = malloc(ggml_nbytes(o));
    memcpy(out, o->data, ggml_nbytes(o));
    ggml_free(ctx);
    return out;
}

// The largest difference from the equation, in double precision.
static double against_equation(const struct inputs * in, const float * out) {
    const struct shape * s = &in->s;
    double *             p = malloc((size_t) s->rows * sizeof(*p));
    double               worst = 0.0;
    for (int64_t h = 0; h < s->n_head; ++h) {
        const int64_t hk = h / (s->n_head / s->n_head_kv);
        for (int64_t i = 0; i < s->n; ++i) {
            double sum = 0.0, most = -INFINITY;
            for (int64_t row = 0; row < s->rows; ++row) {
                p[row] = 0.0;
                for (int64_t d = 0; d < s->dk; ++d) {
                    p[row] += (double) in->q[(h * s->n + i) * s->dk + d] *
                              (double) in->k[(hk * s->rows + row) * s->dk + d];
                }
                p[row] = sees(s, i, row) ? p[row] * scale_of(s) : -INFINITY;
                most = fmax(most, p[row]);
            }
            for (int64_t row = 0; row < s->rows; ++row) {
                p[row] = exp(p[row] - most);
                sum += p[row];
            }
            for (int64_t d = 0; d < s->dv; ++d) {
                double o = 0.0;
                for (int64_t row = 0; row < s->rows; ++row) {
                    o += p[row] * (double) in->v[(hk * s->rows + row) * s->dv + d];
                }
                const double found = (double) out[(i * s->n_head + h) * s->dv + d];
                const double diff = fabs(found - o / sum);
                worst = diff <= worst ? worst : diff; // NaN wins
            }
        }
    }
    free(p);
    return worst;
}

static bool same(const float * a, const float * b, int64_t n) {
    return memcmp(a, b, (size_t) n * sizeof(*a)) == 0;
}

static void test_case(const struct shape * s, enum ggml_type type, double * worst) {
    struct inputs in = make_inputs(s, type, (uint64_t) (s->rows * 31 + s->n));
    const int64_t size = s->dv * s->n_head; // of one query
    float *       all = run(&in, 0, s->n, s->rows, 1);
    char          where[160];
    snprintf(where, sizeof(where), "%s, heads %lld and %lld of %lld and %lld, %lld of %lld rows",
            ggml_type_name(type), (long long) s->n_head, (long long) s->n_head_kv,
            (long long) s->dk, (long long) s->dv, (long long) s->n, (long long) s->rows);
    const double d = against_equation(&in, all);
    test_check(&t, d < 2e-6, "%s: differs from the equation by %.3g", where, d);
    *worst = d > *worst ? d : *worst;
    for (int n_threads = 2; n_threads <= 4 && test_device() == NULL; ++n_threads) {
        float * again = run(&in, 0, s->n, s->rows, n_threads);
        test_check(&t, same(all, again, s->n * size), "%s: other bits with %d threads", where,
                n_threads);
        free(again);
    }
    for (int64_t i = 0; i < s->n; i += s->n > 8 ? 7 : 1) {
        const int64_t rows = s->rows - s->hidden - s->n + i + 1; // none that is hidden
        float *       one = run(&in, i, 1, s->rows, 2);
        float *       few = run(&in, i, 1, rows, 1);
        test_check(&t, same(all + i * size, one, size), "%s: query %lld has other bits alone",
                where, (long long) i);
        test_check(&t, same(one, few, size), "%s: query %lld has other bits without hidden rows",
                where, (long long) i);
        free(one);
        free(few);
    }
    free(all);
    inputs_free(&in);
}

// Equal keys: the output is the mean of the values. A sum of so many terms in F16 would stop
// growing.
static void test_mean(enum ggml_type type) {
    const struct shape s = { 64, 64, 1, 1, 1, 8192, 0, 0 };
    struct inputs      in = make_inputs(&s, type, 1);
    memset(in.q, 0, (size_t) s.dk * sizeof(float));
    float * out = run(&in, 0, 1, s.rows, 1);
    double  worst = 0.0;
    for (int64_t d = 0; d < s.dv; ++d) {
        double mean = 0.0;
        for (int64_t row = 0; row < s.rows; ++row) {
            mean += (double) in.v[row * s.dv + d] / (double) s.rows;
        }
        const double diff = fabs(mean - (double) out[d]);
        worst = diff <= worst ? worst : diff;
    }
    test_check(&t, worst < 1e-6, "%s: a mean of %lld rows differs by %.3g", ggml_type_name(type),
            (long long) s.rows, worst);
    free(out);
    inputs_free(&in);
}

int main(void) {
    static const enum ggml_type types[] = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0 };
    static const struct shape   shapes[] = {
        // dk, dv, n, H, HK, rows, window, hidden
        { 64, 64, 1, 4, 4, 64, 0, 0 },
        { 128, 128, 1, 3, 3, 2500, 0, 36 },  // several chunks, the last one not full
        { 128, 128, 5, 4, 2, 1100, 0, 100 }, // grouped heads, drafts
        { 96, 160, 2, 12, 2, 1200, 0, 8 },   // six heads of a group, whose rows are not converted
        { 32, 96, 40, 8, 2, 300, 0, 20 },    // more queries than share a tile
        { 256, 256, 37, 4, 1, 330, 0, 2 },
        { 256, 256, 3, 2, 1, 70, 0, 6 },
        { 64, 64, 33, 2, 2, 1300, 50, 10 }, // a window that begins in the second chunk
        { 12, 20, 7, 2, 1, 45, 0, 3 },      // no multiple of a vector
        { 16, 16, 1, 1, 1, 1, 0, 0 },
    };
    ggml_backend_load_all();
    for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); ++k) {
        double worst = 0.0;
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); ++i) {
            const int64_t block = ggml_blck_size(types[k]);
            if (shapes[i].dk % block == 0 && shapes[i].dv % block == 0) {
                test_case(&shapes[i], types[k], &worst);
            }
        }
        test_mean(types[k]);
        printf("%-5s differs from the equation by up to %.1e\n", ggml_type_name(types[k]), worst);
    }
    return test_end(&t, "test-attention");
}
