#include "util.h"

#include "base/random.h"
#include "ggml-cpu.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Checks
//

bool test_check(struct test * t, bool ok, const char * fmt, ...) {
    t->n_checks++;
    if (!ok) {
        t->n_failed++;
        va_list args;
        va_start(args, fmt);
        printf("FAILED: ");
        vprintf(fmt, args);
        printf("\n");
        fflush(stdout);
        va_end(args);
    }
    return ok;
}

static bool is_word(char c) {
    return isalnum((unsigned char) c) || c == '_';
}

bool test_has_word(const char * text, const char * word) {
    for (const char * at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == text || !is_word(at[-1])) && !is_word(at[strlen(word)])) {
            return true;
        }
    }
    return false;
}

int test_end(const struct test * t, const char * name) {
    printf("%s: %lld checks, %lld failed\n", name, (long long) t->n_checks,
            (long long) t->n_failed);
    return t->n_failed == 0 && t->n_checks > 0 ? 0 : 1;
}

void test_bound(struct test * t, struct test_worst * w, double value, const char * where) {
    w->n++;
    if (w->n == 1 || !(value <= w->value)) {
        w->value = value;
        snprintf(w->where, sizeof(w->where), "%s", where);
    }
    test_check(t, value <= w->limit, "%s: %.3g > %.3g: %s", w->what, value, w->limit, where);
}

void test_worst_print(const struct test_worst * w) {
    if (w->n > 0) {
        printf("  %-46s %6lld cases   worst %9.2e   limit %7.0e   (%s)\n", w->what,
                (long long) w->n, w->value, w->limit, w->where);
    }
}

//
// Random numbers
//

uint64_t test_next(struct test_rng * r) {
    return splitmix64(&r->state);
}

int64_t test_below(struct test_rng * r, int64_t n) {
    return (int64_t) (test_next(r) % (uint64_t) n);
}

double test_uniform(struct test_rng * r, double lo, double hi) {
    return lo + (hi - lo) * random_unit(test_next(r));
}

// a sum of twelve: no libm in it, so every machine gets the same numbers
double test_normal(struct test_rng * r) {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) {
        sum += test_uniform(r, 0.0, 1.0);
    }
    return sum;
}

int64_t test_divisor(int64_t n, int pick) {
    int64_t found[16];
    int     n_found = 0;
    for (int64_t d = 1; d <= n && n_found < 16; ++d) {
        if (n % d == 0) {
            found[n_found++] = d;
        }
    }
    return found[pick % n_found];
}

//
// Tensors
//

enum { ALIGNMENT = 64 };

void test_arena_init(struct test_arena * a) {
    memset(a, 0, sizeof(*a));
    a->ctx     = ggml_init((struct ggml_init_params) {
                .mem_size = 4u << 20, .mem_buffer = NULL, .no_alloc = true });
    a->backend = ggml_backend_cpu_init();
}

void test_arena_free(struct test_arena * a) {
    for (int i = 0; i < a->n_blocks; ++i) {
        ggml_backend_buffer_free(a->buffers[i]);
        free(a->blocks[i]);
    }
    free(a->blocks);
    free(a->buffers);
    ggml_backend_free(a->backend);
    ggml_free(a->ctx);
    memset(a, 0, sizeof(*a));
}

void test_alloc(struct test_arena * a, struct ggml_tensor * x) {
    const size_t size = ggml_nbytes(x);
    const size_t room =
            (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + (size == 0 ? ALIGNMENT : 0);

    if (a->n_blocks == a->cap_blocks) {
        a->cap_blocks = 2 * a->cap_blocks + 16;
        a->blocks     = realloc(a->blocks, a->cap_blocks * sizeof(a->blocks[0]));
        a->buffers    = realloc(a->buffers, a->cap_blocks * sizeof(a->buffers[0]));
    }
    char *                block  = aligned_alloc(ALIGNMENT, room);
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(block, room);
    a->blocks[a->n_blocks]       = block;
    a->buffers[a->n_blocks]      = buffer;
    a->n_blocks++;
    ggml_backend_tensor_alloc(
            buffer, x, block + room - size); // the end of the tensor is the end of the block
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

    // dimensions from the innermost to the outermost, and the elements left free after each
    static const int order[TEST_LAYOUTS][4] = {
        [TEST_FUSED]       = { 0, 1, 2, 3 },
        [TEST_GAPS]        = { 0, 1, 2, 3 },
        [TEST_FACTORS_OUT] = { 0, 1, 3, 2 },
        [TEST_HEADS_OUT]   = { 0, 2, 3, 1 },
        [TEST_REVERSED]    = { 3, 2, 1, 0 },
    };
    static const int64_t gap[TEST_LAYOUTS][3] = {
        [TEST_FUSED]       = { 0, 0, 7 },
        [TEST_GAPS]        = { 3, 5, 1 },
        [TEST_FACTORS_OUT] = { 0, 2, 3 },
        [TEST_HEADS_OUT]   = { 1, 0, 2 },
        [TEST_REVERSED]    = { 0, 0, 1 },
    };
    int64_t stride[4];
    int64_t step = 1;
    int64_t end  = 1;
    for (int i = 0; i < 4; ++i) {
        const int d = order[layout][i];
        stride[d]   = step;
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
    ne[dim]       = n;
    struct ggml_tensor * y =
            test_tensor(a, GGML_TYPE_F32, TEST_DENSE, x->name, ne[0], ne[1], ne[2], ne[3]);
    for (int64_t i = 0; i < ggml_nelements(y); ++i) {
        int64_t at[4]          = { i % ne[0], i / ne[0] % ne[1], i / (ne[0] * ne[1]) % ne[2],
                     i / (ne[0] * ne[1] * ne[2]) };
        at[dim]                = idx[at[dim]];
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
    for (int64_t i3 = 0; i3 < x->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < x->ne[1]; i1++) {
                for (int64_t i0 = 0; i0 < x->ne[0]; i0++) {
                    test_set(x, i0, i1, i2, i3, (float) test_uniform(r, lo, hi));
                }
            }
        }
    }
}

void test_fill_normal(struct ggml_tensor * x, struct test_rng * r, double scale) {
    for (int64_t i3 = 0; i3 < x->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < x->ne[1]; i1++) {
                for (int64_t i0 = 0; i0 < x->ne[0]; i0++) {
                    test_set(x, i0, i1, i2, i3, (float) (scale * test_normal(r)));
                }
            }
        }
    }
}

void test_fill_unit(struct ggml_tensor * x, struct test_rng * r, double mean) {
    const int64_t n   = x->ne[0];
    double *      e   = malloc(n * sizeof(double));
    double *      row = malloc(n * sizeof(double));
    double        ee  = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        e[i] = test_normal(r);
        ee += e[i] * e[i];
    }
    for (int64_t i3 = 0; i3 < x->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < x->ne[1]; i1++) {
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

//
// Batches
//

int64_t test_batch_tokens(const struct test_batch * b) {
    int64_t n = 0;
    for (int s = 0; s < b->n_seqs; ++s) {
        n += b->len[s];
    }
    return n;
}

int64_t test_batch_slots(const struct test_batch * b) {
    return (2 + b->n_snap) * b->n_seqs + 2;
}

struct ggml_tensor * test_batch_ids(struct test_arena * a, const struct test_batch * b) {
    const int64_t n_slots = test_batch_slots(b);
    int64_t       step =
            n_slots / 2 +
            1; // slots are handed out in steps of this, which shares no divisor with their number
    for (bool common = true; common;) {
        common = false;
        for (int64_t d = 2; d <= step && !common; ++d) {
            common = step % d == 0 && n_slots % d == 0;
        }
        step += common;
    }
    struct ggml_tensor * ids = test_tensor(
            a, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS + b->n_snap, b->n_seqs, 1, 1);
    int64_t first = test_batch_tokens(b);
    int64_t used  = 0;
    for (int s = 0; s < b->n_seqs; ++s) {
        int32_t * id = (int32_t *) ((char *) ids->data + s * ids->nb[1]);
        first -= b->len[s];
        const int32_t slot_a   = (int32_t) (step * used++ % n_slots);
        const int32_t slot_b   = (int32_t) (step * used++ % n_slots);
        const int     kind     = (s + b->turn) % 3;
        id[GGML_SCAN_SLOT_IN]  = kind == 2 ? -1 : slot_a;
        id[GGML_SCAN_SLOT_OUT] = kind == 0 ? slot_a : slot_b;
        id[GGML_SCAN_FIRST]    = (int32_t) first;
        id[GGML_SCAN_COUNT]    = (int32_t) b->len[s];
        for (int i = 0; i < b->n_snap; ++i) {
            id[GGML_SCAN_SNAPS + i] = (int32_t) (step * used++ % n_slots);
        }
    }
    return ids;
}

void test_fill_slots(
        struct ggml_tensor * state, const struct ggml_tensor * ids, struct test_rng * r) {
    for (int64_t slot = 0; slot < state->ne[1]; ++slot) {
        bool read = false;
        for (int64_t s = 0; s < ids->ne[1]; ++s) {
            read = read ||
                   ((const int32_t *) ids->data)[s * ids->ne[0] + GGML_SCAN_SLOT_IN] == slot;
        }
        for (int64_t i = 0; i < state->ne[0]; ++i) {
            test_set(state, i, slot, 0, 0, read ? (float) test_uniform(r, -1.5, 1.5) : NAN);
        }
    }
}

//
// Running
//

bool test_compute(struct test_arena * a, struct ggml_tensor * op, int n_threads) {
    if (op->data == NULL) {
        test_alloc(a, op);
    }
    memset(op->data, 0x5a, ggml_nbytes(op));
    ggml_backend_cpu_set_n_threads(a->backend, n_threads);
    struct ggml_cgraph * graph = ggml_new_graph_custom(a->ctx, 32, false);
    ggml_build_forward_expand(graph, op);
    return ggml_backend_graph_compute(a->backend, graph) == GGML_STATUS_SUCCESS;
}

float * test_copy(const struct ggml_tensor * x) {
    float * data = malloc(ggml_nbytes(x) + 1);
    memcpy(data, x->data, ggml_nbytes(x));
    return data;
}

void test_restore(struct ggml_tensor * x, const float * data) {
    memcpy(x->data, data, ggml_nbytes(x));
}

struct sums {
    double error; // Σ (a − b)²
    double size;  // Σ b²
};

static void sums_add(struct sums * s, double a, double b) {
    if (isnan(a) && isnan(b)) {
        return;
    }
    s->error += (a - b) * (a - b);
    s->size += b * b;
}

static double sums_nmse(const struct sums * s) {
    return s->error == 0.0 ? 0.0 : s->error / s->size;
}

double test_nmse(const float * a, const float * b, int64_t n) {
    struct sums s = { 0 };
    for (int64_t i = 0; i < n; ++i) {
        sums_add(&s, a[i], b[i]);
    }
    return sums_nmse(&s);
}

//
// What every op promises
//

const char * const test_path_names[4] = { "auto", "step", "chunk", "reference" };

struct ggml_tensor ** test_scan_state(struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? &s->householder.state
           : s->op == TEST_SIGNED    ? &s->sign.state
                                     : &s->conv.state;
}

struct ggml_tensor ** test_scan_ids(struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? &s->householder.ids
           : s->op == TEST_SIGNED    ? &s->sign.ids
                                     : &s->conv.ids;
}

struct oracle test_scan_oracle(const struct test_scan * s) {
    return s->op == TEST_HOUSEHOLDER ? oracle_householder(&s->householder)
           : s->op == TEST_SIGNED    ? oracle_signed(&s->sign)
                                     : oracle_short_conv(&s->conv);
}

// not for r and w, not for a transition per element
static bool has_chunk(const struct test_scan * s) {
    return (s->op == TEST_HOUSEHOLDER && s->householder.r == NULL) ||
           (s->op == TEST_SIGNED &&
                   (s->sign.A == NULL || (s->sign.A->ne[0] == 1 && s->sign.A->ne[1] == 1)));
}

// the convolution has one path
bool test_scan_has_path(const struct test_scan * s, enum ggml_scan_path path) {
    return s->op == TEST_CONV ? path == GGML_SCAN_PATH_STEP
                              : path != GGML_SCAN_PATH_CHUNK || has_chunk(s);
}

bool test_scan_is_step(const struct test_scan * s, enum ggml_scan_path path) {
    return path == GGML_SCAN_PATH_STEP || path == GGML_SCAN_PATH_REFERENCE || !has_chunk(s);
}

struct ggml_tensor * test_scan_build(struct test * t, struct test_arena * a,
        const struct test_scan * s, enum ggml_scan_path path) {
    char                 err[256] = "";
    struct ggml_tensor * op       = NULL;
    if (s->op == TEST_HOUSEHOLDER) {
        struct ggml_householder_scan_args args = s->householder;
        args.path                              = path;
        op = ggml_householder_scan(a->ctx, &args, err, sizeof(err));
    } else if (s->op == TEST_SIGNED) {
        struct ggml_signed_scan_args args = s->sign;
        args.path                         = path;
        op                                = ggml_signed_scan(a->ctx, &args, err, sizeof(err));
    } else {
        op = ggml_short_conv(a->ctx, &s->conv, err, sizeof(err));
    }
    if (!test_check(t, op != NULL, "the builder refused a legal case: %s: %s", err, s->text)) {
        exit(1);
    }
    return op;
}

struct test_scan test_scan_gather(
        struct test_arena * a, const struct test_scan * s, const int64_t * idx, int64_t n) {
    struct test_scan      r         = *s;
    struct ggml_tensor ** tokens[8] = { NULL };
    const int             dim       = s->op == TEST_CONV ? 1 : 3;
    int64_t               n_tokens  = 0;
    if (s->op == TEST_HOUSEHOLDER) {
        struct ggml_tensor ** all[] = { &r.householder.q, &r.householder.k, &r.householder.v,
            &r.householder.beta, &r.householder.gate, &r.householder.r, &r.householder.w };
        memcpy(tokens, all, sizeof(all));
    } else if (s->op == TEST_SIGNED) {
        struct ggml_tensor ** all[] = { &r.sign.c, &r.sign.b, &r.sign.x, &r.sign.gate, &r.sign.dt,
            &r.sign.log_f, &r.sign.log_i };
        memcpy(tokens, all, sizeof(all));
    } else {
        tokens[0] = &r.conv.x;
    }
    n_tokens = (*tokens[0])->ne[dim];
    for (int i = 0; tokens[i] != NULL; ++i) {
        if (*tokens[i] != NULL &&
                (*tokens[i])->ne[dim] == n_tokens) { // else a gate that is the same for all tokens
            *tokens[i] = test_gather(a, *tokens[i], dim, idx, n);
        }
    }
    return r;
}

double test_scan_nmse_out(const struct oracle * o, const struct ggml_tensor * op) {
    const float * out = op->data;
    struct sums   sum = { 0 };
    for (int64_t i = 0; i < o->n_tokens * o->n_heads * o->d_out; ++i) {
        const double weight = o->weight[i / o->d_out];
        if (weight > 0.0) {
            sums_add(&sum, weight * out[i], weight * o->out[i]);
        }
    }
    return sums_nmse(&sum);
}

double test_scan_nmse_state(const struct oracle * o, const struct test_scan * s) {
    const struct ggml_tensor * state = s->op == TEST_HOUSEHOLDER ? s->householder.state
                                       : s->op == TEST_SIGNED    ? s->sign.state
                                                                 : s->conv.state;
    const bool                 mlstm = s->op == TEST_SIGNED && s->sign.log_f != NULL;
    const int64_t              size  = o->slot_size / o->n_heads;
    struct sums                sum   = { 0 };
    double                     worst = 0.0;
    for (int64_t slot = 0; slot < o->n_slots; ++slot) {
        for (int64_t h = 0; h < o->n_heads && o->written[slot]; ++h) {
            const double * ref = o->state + (slot * o->n_heads + h) * size;
            const float *  got =
                    (const float *) ((const char *) state->data + slot * state->nb[1]) + h * size;
            struct sums head = { 0 };
            // mLSTM: both sides relative to the oracle's m
            const double same = mlstm ? exp(got[size - 1] - ref[size - 1]) : 1.0;
            for (int64_t i = 0; i < (mlstm ? size - 1 : size); ++i) {
                sums_add(&head, same * got[i], ref[i]);
            }
            const double nmse = sums_nmse(&head);
            worst             = nmse <= worst ? worst : nmse;
            sum.error += head.error;
            sum.size += head.size;
        }
    }
    return mlstm ? worst : sums_nmse(&sum);
}

void test_limits_print(const struct test_limits * l) {
    test_worst_print(&l->step);
    test_worst_print(&l->chunk);
}

static struct test_worst * limit_of(
        struct test_limits * l, const struct test_scan * s, enum ggml_scan_path path) {
    return test_scan_is_step(s, path) ? &l->step : &l->chunk;
}

// true if no slot that the oracle leaves alone differs from `before`, to the bit
static bool untouched(
        const struct oracle * o, const struct ggml_tensor * state, const float * before) {
    bool same = true;
    for (int64_t slot = 0; slot < o->n_slots; ++slot) {
        same = same && (o->written[slot] || memcmp((const char *) state->data + slot * state->nb[1],
                                                    (const char *) before + slot * state->nb[1],
                                                    o->slot_size * sizeof(float)) == 0);
    }
    return same;
}

void test_scan_run(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, const int * threads, int n_threads) {
    struct ggml_tensor * state  = *test_scan_state(s);
    struct oracle        o      = test_scan_oracle(s);
    float *              before = test_copy(state);

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        struct ggml_tensor * op          = test_scan_build(t, a, s, path);
        float *              first_out   = NULL;
        float *              first_state = NULL;
        // auto is one of the others, and the reference is slow
        const int n = path == GGML_SCAN_PATH_AUTO ||
                                      (path == GGML_SCAN_PATH_REFERENCE && state->ne[0] > 10000)
                              ? 1
                              : n_threads;
        for (int i = 0; i < n; ++i) {
            char where[256];
            snprintf(where, sizeof(where), "%s, %d threads, %s", test_path_names[path], threads[i],
                    s->text);
            test_restore(state, before);
            test_check(t, test_compute(a, op, threads[i]), "compute failed: %s", where);
            test_check(t, untouched(&o, state, before),
                    "a slot that ids do not name was written: %s", where);
            if (i == 0) {
                test_bound(t, limit_of(l, s, path), test_scan_nmse_out(&o, op), where);
                test_bound(t, limit_of(l, s, path), test_scan_nmse_state(&o, s), where);
                first_out   = test_copy(op);
                first_state = test_copy(state);
            } else {
                test_check(t, memcmp(first_out, op->data, ggml_nbytes(op)) == 0,
                        "outputs differ from %d threads: %s", threads[0], where);
                test_check(t, memcmp(first_state, state->data, ggml_nbytes(state)) == 0,
                        "states differ from %d threads: %s", threads[0], where);
            }
        }
        free(first_out);
        free(first_state);
    }
    test_restore(state, before);
    free(before);
    oracle_free(&o);
}

int64_t test_scan_cuts(struct test * t, struct test_arena * a, struct test_scan * s,
        struct test_limits * l, int64_t most, struct test_rng * r) {
    struct ggml_tensor * state   = *test_scan_state(s);
    struct ggml_tensor * ids     = *test_scan_ids(s);
    const int32_t *      id      = ids->data;
    const int64_t        n_seqs  = ids->ne[1];
    const int64_t        stride  = ids->ne[0];
    const int64_t        T       = test_batch_tokens(&s->batch);
    struct oracle        o       = test_scan_oracle(s);
    float *              before  = test_copy(state);
    int64_t *            idx     = malloc(T * sizeof(int64_t));
    int64_t              n_calls = 0;

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        test_restore(state, before);
        struct ggml_tensor * whole = test_scan_build(t, a, s, path);
        test_compute(a, whole, 1);
        float * whole_state = test_copy(state);

        test_restore(state, before);
        struct ggml_tensor * out                 = ggml_dup_tensor(a->ctx, whole);
        const size_t         n_row               = ggml_nbytes(whole) / T;
        int64_t              done[TEST_MAX_SEQS] = { 0 };
        test_alloc(a, out);
        for (int64_t left = T; left > 0;) {
            struct test_arena b;
            test_arena_init(&b);
            struct ggml_tensor * now = test_tensor(
                    &b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, n_seqs, 1, 1);
            int64_t n = 0;
            for (int64_t q = 0; q < n_seqs; ++q) {
                const int32_t * old  = id + q * stride;
                int32_t *       cut  = (int32_t *) now->data + q * GGML_SCAN_SNAPS;
                const int64_t   rest = old[GGML_SCAN_COUNT] - done[q];
                int64_t         take = most == 1 ? 1 : test_below(r, most + 1);
                take                 = take < rest ? take : rest;
                cut[GGML_SCAN_SLOT_IN] =
                        done[q] == 0 ? old[GGML_SCAN_SLOT_IN] : old[GGML_SCAN_SLOT_OUT];
                cut[GGML_SCAN_SLOT_OUT] = old[GGML_SCAN_SLOT_OUT];
                cut[GGML_SCAN_FIRST]    = (int32_t) n;
                cut[GGML_SCAN_COUNT]    = (int32_t) take;
                for (int64_t i = 0; i < take; ++i) {
                    idx[n++] = old[GGML_SCAN_FIRST] + done[q] + i;
                }
                done[q] += take;
            }
            if (n > 0) {
                struct test_scan call   = test_scan_gather(&b, s, idx, n);
                *test_scan_ids(&call)   = now;
                struct ggml_tensor * op = test_scan_build(t, &b, &call, path);
                test_compute(&b, op, 1 + (int) (n_calls % 2));
                for (int64_t i = 0; i < n; ++i) {
                    memcpy((char *) out->data + idx[i] * n_row, (char *) op->data + i * n_row,
                            n_row);
                }
                n_calls++;
                left -= n;
            }
            test_arena_free(&b);
        }

        char where[256];
        snprintf(where, sizeof(where), "calls of up to %d tokens a sequence, %s, %s", (int) most,
                test_path_names[path], s->text);
        if (test_scan_is_step(s, path)) {
            test_check(t, memcmp(whole->data, out->data, ggml_nbytes(out)) == 0,
                    "outputs differ from those of one call: %s", where);
            test_check(t, memcmp(whole_state, state->data, ggml_nbytes(state)) == 0,
                    "states differ from those of one call: %s", where);
        }
        test_bound(t, limit_of(l, s, path), test_scan_nmse_out(&o, out), where);
        test_bound(t, limit_of(l, s, path), test_scan_nmse_state(&o, s), where);
        free(whole_state);
    }
    test_restore(state, before);
    free(idx);
    free(before);
    oracle_free(&o);
    return n_calls;
}

static void check_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l) {
    struct ggml_tensor * state  = *test_scan_state(s);
    struct ggml_tensor * ids    = *test_scan_ids(s);
    int32_t *            id     = ids->data;
    const int64_t        n_snap = ids->ne[0] - GGML_SCAN_SNAPS;
    const int64_t        size   = state->ne[0];
    const int64_t        T      = test_batch_tokens(&s->batch); // one sequence
    float *              before = test_copy(state);
    int64_t *            idx    = malloc((T + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < T; ++i) {
        idx[i] = i;
    }
    const int32_t skipped   = id[GGML_SCAN_SNAPS + 1];
    id[GGML_SCAN_SNAPS + 1] = -1; // not wanted

    for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
        if (!test_scan_has_path(s, path)) {
            continue;
        }
        test_restore(state, before);
        test_compute(a, test_scan_build(t, a, s, path), 2);
        float * after = test_copy(state);

        for (int64_t i = 0; i < n_snap; ++i) {
            const int64_t slot = i == 1 ? skipped : id[GGML_SCAN_SNAPS + i];
            const int64_t n    = T - i - 1;
            const float * got  = after + slot * size;
            char          where[256];
            snprintf(where, sizeof(where), "snapshot %d of %d tokens, %s, %s", (int) i, (int) T,
                    test_path_names[path], s->text);
            if (i == 1 || n < 0) {
                test_check(t, memcmp(got, before + slot * size, size * sizeof(float)) == 0,
                        "written, but %s: %s", i == 1 ? "not wanted" : "older than this call",
                        where);
                continue;
            }
            if (n == 0) { // what the sequence started from
                float * zero = calloc(size, sizeof(float));
                test_check(t,
                        memcmp(got,
                                id[GGML_SCAN_SLOT_IN] < 0 ? zero
                                                          : before + id[GGML_SCAN_SLOT_IN] * size,
                                size * sizeof(float)) == 0,
                        "differs from the state before the first token: %s", where);
                free(zero);
                continue;
            }
            struct test_arena b;
            test_arena_init(&b);
            struct test_scan     shorter = test_scan_gather(&b, s, idx, n);
            struct ggml_tensor * now =
                    test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, 1, 1, 1);
            memcpy(now->data, id, GGML_SCAN_SNAPS * sizeof(int32_t));
            ((int32_t *) now->data)[GGML_SCAN_COUNT] = (int32_t) n;
            *test_scan_ids(&shorter)                 = now;
            test_restore(state, before);
            test_compute(&b, test_scan_build(t, &b, &shorter, path), 1);
            const float * want = (const float *) state->data + id[GGML_SCAN_SLOT_OUT] * size;
            if (test_scan_is_step(s, path)) {
                test_check(t, memcmp(got, want, size * sizeof(float)) == 0,
                        "differs from the state after %d tokens: %s", (int) n, where);
            } else {
                test_bound(t, limit_of(l, s, path), test_nmse(got, want, size), where);
            }
            test_arena_free(&b);
        }
        free(after);
    }
    id[GGML_SCAN_SNAPS + 1] = skipped;
    test_restore(state, before);
    free(idx);
    free(before);
}

void test_scan_snapshots(
        struct test * t, struct test_arena * a, struct test_scan * s, struct test_limits * l) {
    check_snapshots(t, a, s, l);
    int32_t * id = (*test_scan_ids(s))->data;
    if (id[GGML_SCAN_SLOT_IN] >= 0 && id[GGML_SCAN_SLOT_IN] != id[GGML_SCAN_SLOT_OUT]) {
        id[GGML_SCAN_SNAPS] = id[GGML_SCAN_SLOT_IN];
        check_snapshots(t, a, s, l);
    }
}

int test_scan_out_of_range(struct test * t, struct test_arena * a, struct test_scan * s) {
    static const int32_t bad[][2] = {
        // which id, which value
        { GGML_SCAN_SLOT_IN, -2 },
        { GGML_SCAN_SLOT_IN, 1000 },
        { GGML_SCAN_SLOT_OUT, -1 },
        { GGML_SCAN_SLOT_OUT, 1000 },
        { GGML_SCAN_SLOT_OUT, INT32_MIN },
        { GGML_SCAN_COUNT, INT32_MAX },
        { GGML_SCAN_COUNT, -1 },
        { GGML_SCAN_FIRST, INT32_MAX },
        { GGML_SCAN_FIRST, INT32_MIN },
        { GGML_SCAN_SNAPS, 1000 },
        { GGML_SCAN_SNAPS, -7 },
    };
    struct ggml_tensor * state  = *test_scan_state(s);
    struct ggml_tensor * ids    = *test_scan_ids(s);
    int32_t *            id     = ids->data; // of the sequence that stands last in the batch
    float *              before = test_copy(state);
    int                  n      = 0;
    const int64_t        first  = id[GGML_SCAN_FIRST];
    const int64_t        count  = id[GGML_SCAN_COUNT];

    for (size_t c = 0; c < sizeof(bad) / sizeof(bad[0]); ++c) {
        const int     which = bad[c][0];
        const int32_t good  = id[which];
        id[which]           = bad[c][1];
        test_restore(state, before);
        struct oracle o = test_scan_oracle(s); // leaves such a sequence out
        for (int path = GGML_SCAN_PATH_AUTO; path <= GGML_SCAN_PATH_REFERENCE; ++path) {
            if (!test_scan_has_path(s, path)) {
                continue;
            }
            char where[256];
            snprintf(where, sizeof(where), "id %d is %d, %s, %s", which, (int) bad[c][1],
                    test_path_names[path], s->text);
            test_restore(state, before);
            struct ggml_tensor * op    = test_scan_build(t, a, s, path);
            const int64_t        n_row = ggml_nelements(op) / test_batch_tokens(&s->batch);
            test_compute(a, op, 2);
            float * out = op->data;
            if (which != GGML_SCAN_FIRST &&
                    !(which == GGML_SCAN_COUNT &&
                            bad[c][1] < 0)) { // else it has no tokens that could be told
                bool nans = true;
                for (int64_t i = first * n_row; i < (first + count) * n_row; ++i) {
                    nans = nans && isnan(out[i]);
                }
                test_check(t, nans, "an output of the sequence is not NaN: %s", where);
            }
            for (int64_t i = first * n_row; i < (first + count) * n_row; ++i) {
                out[i] = NAN; // as in the oracle
            }
            test_check(t, untouched(&o, state, before), "a slot was written: %s", where);
            test_check(t, test_scan_nmse_out(&o, op) <= 1e-10, "the other sequences are wrong: %s",
                    where);
            test_check(t, test_scan_nmse_state(&o, s) <= 1e-10,
                    "the states of the other sequences are wrong: %s", where);
            n++;
        }
        oracle_free(&o);
        id[which] = good;
    }
    test_restore(state, before);
    free(before);
    return n;
}
