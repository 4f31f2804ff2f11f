// Attention on the CPU: GGML_OP_FLASH_ATTN_EXT as the graphs of lrnn use it
//
//     o_t = Σ_s p_ts v_s / Σ_s p_ts,   p_ts = exp(scale q_t·k_s + mask_ts − max_s(…))
//
// Why not ggml's own kernel: with a cache in F16 it also sums p v in F16, in which a sum over more
// than 2048 equal terms stops growing; with one in Q8_0 it rounds q to 8 bits; and its results
// depend on the number of threads and of tokens in a call. Here all arithmetic is F32, and the rows
// of the cache are visited in a fixed order: in tiles of TILE rows, which update a running maximum
// and running sums, and in chunks of CHUNK rows, whose sums are combined in the order of the rows.
// A query gives the same bits in any company, with any number of threads, and however many masked
// rows follow.

#include "glue.h"
#include "simd.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "simd-mappings.h"

#define GGML_COMMON_DECL_C
#include "ggml-common.h"

enum {
    TILE    = 32,   // rows of the cache that are converted to F32 together
    CHUNK   = 1024, // rows of the cache whose sums are combined in their order
    QUERIES = 32,   // queries that share a tile
    ROWS    = 128,  // queries of all heads that one thread computes together
};

// The queries of all heads that share a head of the cache are numbered: i = head · n + token.
struct attention {
    const struct ggml_tensor *q, *k, *v, *mask; // [DK, n, H], [DK, S, HK], [DV, S, HK], [S, n]
    struct ggml_tensor *      dst;              // [DV, H, n]
    int64_t                   n, n_i;           // tokens; queries per head of the cache
    int64_t                   dk, dv;           // DK and DV, rounded up to whole vectors
    int64_t                   n_chunks;
    float                     scale;
};

// A maximum m, and relative to it the sums l = Σ p and o = Σ p v, of ROWS queries.
struct sums {
    float * m, *l; // [ROWS]
    float * o;     // [ROWS, dv]
};

struct work {         // of one thread
    float *     tile; // [TILE, dk or dv], keys or values
    float *     q;    // [ROWS, dk]
    float *     p;    // [ROWS, TILE]
    struct sums chunk, all;
};

// What a thread computes: n queries, from i0 on, of each of n_head heads of the cache, from h0 on.
// The rows of different heads are neighbors in memory, so heads take turns tile by tile: a head
// that went through its rows alone would touch another page with each of them. Query i of head h is
// row h · n + i of the work memory.
struct item {
    int64_t h0, n_head, i0, n;
};

static int64_t round_up(int64_t n) {
    return (n + VEC - 1) / VEC * VEC;
}

static int64_t work_floats(int64_t dk, int64_t dv) {
    return TILE * (dk > dv ? dk : dv) + ROWS * (dk + TILE) + 2 * ROWS * (dv + 2);
}

static struct sums sums_at(float ** at, int64_t dv) {
    const struct sums s = { *at, *at + ROWS, *at + 2 * ROWS };
    *at += ROWS * (dv + 2);
    return s;
}

static struct work work_at(float * at, int64_t dk, int64_t dv) {
    struct work w;
    w.tile  = at;
    w.q     = w.tile + TILE * (dk > dv ? dk : dv);
    w.p     = w.q + ROWS * dk;
    at      = w.p + ROWS * TILE;
    w.chunk = sums_at(&at, dv);
    w.all   = sums_at(&at, dv);
    return w;
}

//
// Tiles
//

static void load_row(float * out, const char * row, enum ggml_type type, int64_t n) {
    switch (type) {
        case GGML_TYPE_F16: ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) row, out, n); break;
        case GGML_TYPE_Q8_0: {
            const block_q8_0 * block = (const block_q8_0 *) row;
            for (int64_t i = 0; i < n; i += QK8_0, ++block) {
                const float d = GGML_CPU_FP16_TO_FP32(block->d);
                for (int j = 0; j < QK8_0; ++j) {
                    out[i + j] = d * (float) block->qs[j];
                }
            }
        } break;
        default: memcpy(out, row, (size_t) n * sizeof(*out)); break;
    }
}

// Rows first .. first + TILE − 1 of head h of the keys or values; missing rows are zero. Prefetches
// those of the next head.
static void load_tile(
        float * out, const struct ggml_tensor * x, int64_t width, int64_t h, int64_t first) {
    const size_t size = ggml_row_size(x->type, x->ne[0]);
    for (int64_t i = 0; i < TILE; ++i, out += width) {
        if (first + i < x->ne[1]) {
            const char * row = (const char *) x->data + (first + i) * x->nb[1] + h * x->nb[2];
            for (size_t at = 0; at < size; at += 64) {
                __builtin_prefetch(row + x->nb[2] + at);
            }
            load_row(out, row, x->type, x->ne[0]);
            memset(out + x->ne[0], 0, (size_t) (width - x->ne[0]) * sizeof(*out));
        } else {
            memset(out, 0, (size_t) width * sizeof(*out));
        }
    }
}

// p [n, TILE] = mask of the tile. Returns false if it hides all rows from all queries.
static bool load_mask(const struct attention * a, float * p, int64_t i0, int64_t n, int64_t first) {
    const int64_t rows   = a->mask->ne[0] - first < TILE ? a->mask->ne[0] - first : TILE;
    bool          is_any = false;
    for (int64_t i = 0; i < n; ++i, p += TILE) {
        const char * mask = (const char *) a->mask->data + (i0 + i) % a->n * a->mask->nb[1];
        ggml_cpu_fp16_to_fp32((const ggml_fp16_t *) mask + first, p, rows);
        for (int64_t s = rows; s < TILE; ++s) {
            p[s] = -INFINITY;
        }
        for (int64_t s = 0; s < TILE; ++s) {
            is_any |= p[s] > -INFINITY;
        }
    }
    return is_any;
}

//
// Scores: p = scale q·k + p
//

// The sums of the lanes of four vectors
SIMD_INLINE void add_lanes(vec a, vec b, vec c, vec d, float * out) {
#if defined(__AVX__)
#    if defined(__AVX512F__)
#        define HALF(x)                                         \
            _mm256_add_ps(_mm512_castps512_ps256((__m512) (x)), \
                    _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512) (x)), 1)))
#    else
#        define HALF(x) ((__m256) (x))
#    endif
    // pairs of lanes of a and b, c and d; then of both
    const __m256 ab = _mm256_hadd_ps(HALF(a), HALF(b));
    const __m256 cd = _mm256_hadd_ps(HALF(c), HALF(d));
    const __m256 s  = _mm256_hadd_ps(ab, cd);
#    undef HALF
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
#else
    const vec x[4] = { a, b, c, d };
    for (int i = 0; i < 4; ++i) {
        out[i] = (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]);
    }
#endif
}

// s[0..3] = q·k of four rows
SIMD_INLINE void dot_4(const float * k, const float * q, int64_t n, float * s) {
    vec a = { 0.0f }, b = a, c = a, d = a;
    for (int64_t i = 0; i < n; i += VEC) {
        const vec x = vec_load(q + i);
        a           = vec_fma(vec_load(k + i), x, a);
        b           = vec_fma(vec_load(k + n + i), x, b);
        c           = vec_fma(vec_load(k + 2 * n + i), x, c);
        d           = vec_fma(vec_load(k + 3 * n + i), x, d);
    }
    add_lanes(a, b, c, d, s);
}

// The same for two queries q and q + n, so that a key is loaded once
SIMD_INLINE void dot_4x2(const float * k, const float * q, int64_t n, float * s0, float * s1) {
    vec a0 = { 0.0f }, b0 = a0, c0 = a0, d0 = a0, a1 = a0, b1 = a0, c1 = a0, d1 = a0;
    for (int64_t i = 0; i < n; i += VEC) {
        const vec x = vec_load(q + i), y = vec_load(q + n + i);
        const vec a = vec_load(k + i), b = vec_load(k + n + i);
        const vec c = vec_load(k + 2 * n + i), d = vec_load(k + 3 * n + i);
        a0 = vec_fma(a, x, a0);
        b0 = vec_fma(b, x, b0);
        c0 = vec_fma(c, x, c0);
        d0 = vec_fma(d, x, d0);
        a1 = vec_fma(a, y, a1);
        b1 = vec_fma(b, y, b1);
        c1 = vec_fma(c, y, c1);
        d1 = vec_fma(d, y, d1);
    }
    add_lanes(a0, b0, c0, d0, s0);
    add_lanes(a1, b1, c1, d1, s1);
}

SIMD_INLINE void add_scores(float * p, const float * s, float scale) {
    for (int j = 0; j < 4; ++j) {
        p[j] = fma1(scale, s[j], p[j]);
    }
}

// - first: row of the work memory of the first of n queries
static void scores(const struct attention * a, const struct work * w, int64_t first, int64_t n) {
    const float * q = w->q + first * a->dk;
    float         s0[4], s1[4];
    for (int64_t row = 0; row < TILE; row += 4) {
        const float * k = w->tile + row * a->dk;
        float *       p = w->p + first * TILE + row;
        int64_t       i = 0;
        for (; i + 2 <= n; i += 2) {
            dot_4x2(k, q + i * a->dk, a->dk, s0, s1);
            add_scores(p + i * TILE, s0, a->scale);
            add_scores(p + (i + 1) * TILE, s1, a->scale);
        }
        if (i < n) {
            dot_4(k, q + i * a->dk, a->dk, s0);
            add_scores(p + i * TILE, s0, a->scale);
        }
    }
}

//
// Sums
//

static void sums_clear(const struct sums * s, int64_t n, int64_t dv) {
    for (int64_t i = 0; i < n; ++i) {
        s->m[i] = -INFINITY;
        s->l[i] = 0.0f;
    }
    memset(s->o, 0, (size_t) (n * dv) * sizeof(*s->o));
}

// Scores p [TILE] of query i become weights relative to the new maximum, to which its sums are
// scaled.
static void soft_max(const struct sums * s, int64_t i, float * p, int64_t dv) {
    float m = s->m[i];
    for (int64_t j = 0; j < TILE; ++j) {
        m = p[j] > m ? p[j] : m;
    }
    vec sum = { 0.0f };
    for (int64_t j = 0; j < TILE; j += VEC) {
        // before the first visible row there is no maximum, and −∞ − (−∞) is not a number
        const vec e = m == -INFINITY ? (vec) { 0.0f } : vec_exp(vec_load(p + j) - vec_set1(m));
        vec_store(p + j, e);
        sum += e;
    }
    float lane[VEC], l = 0.0f;
    vec_store(lane, sum);
    for (int j = 0; j < VEC; ++j) {
        l += lane[j];
    }
    const float keep = m == s->m[i] ? 1.0f : expf(s->m[i] - m);
    s->m[i]          = m;
    s->l[i]          = fma1(s->l[i], keep, l);
    for (int64_t d = 0; keep != 1.0f && d < dv; d += VEC) {
        float * o = s->o + i * dv + d;
        vec_store(o, vec_load(o) * vec_set1(keep));
    }
}

// o [2·VEC of dv] += p v, over the rows of a tile, for queries o and o + dv with weights p and
// p + TILE
SIMD_INLINE void add_values_2(float * o, const float * p, const float * v, int64_t dv) {
    vec a = vec_load(o), b = vec_load(o + VEC), c = vec_load(o + dv), d = vec_load(o + dv + VEC);
    for (int64_t row = 0; row < TILE; ++row, v += dv) {
        const vec x = vec_load(v), y = vec_load(v + VEC);
        const vec s = vec_set1(p[row]), t = vec_set1(p[TILE + row]);
        a = vec_fma(s, x, a);
        b = vec_fma(s, y, b);
        c = vec_fma(t, x, c);
        d = vec_fma(t, y, d);
    }
    vec_store(o, a);
    vec_store(o + VEC, b);
    vec_store(o + dv, c);
    vec_store(o + dv + VEC, d);
}

// The same for one query and 4·VEC of dv
SIMD_INLINE void add_values_4(float * o, const float * p, const float * v, int64_t dv) {
    vec a = vec_load(o), b = vec_load(o + VEC);
    vec c = vec_load(o + 2 * VEC), d = vec_load(o + 3 * VEC);
    for (int64_t row = 0; row < TILE; ++row, v += dv) {
        const vec s = vec_set1(p[row]);
        a           = vec_fma(s, vec_load(v), a);
        b           = vec_fma(s, vec_load(v + VEC), b);
        c           = vec_fma(s, vec_load(v + 2 * VEC), c);
        d           = vec_fma(s, vec_load(v + 3 * VEC), d);
    }
    vec_store(o, a);
    vec_store(o + VEC, b);
    vec_store(o + 2 * VEC, c);
    vec_store(o + 3 * VEC, d);
}

SIMD_INLINE void add_values_1(float * o, const float * p, const float * v, int64_t dv) {
    vec a = vec_load(o);
    for (int64_t row = 0; row < TILE; ++row, v += dv) {
        a = vec_fma(vec_set1(p[row]), vec_load(v), a);
    }
    vec_store(o, a);
}

static void add_values(const struct work * w, int64_t first, int64_t n, int64_t dv) {
    int64_t i = first;
    for (; i + 2 <= first + n; i += 2) {
        float *       o = w->chunk.o + i * dv;
        const float * p = w->p + i * TILE;
        int64_t       d = 0;
        for (; d + 2 * VEC <= dv; d += 2 * VEC) {
            add_values_2(o + d, p, w->tile + d, dv);
        }
        if (d < dv) {
            add_values_1(o + d, p, w->tile + d, dv);
            add_values_1(o + dv + d, p + TILE, w->tile + d, dv);
        }
    }
    if (i < first + n) {
        float *       o = w->chunk.o + i * dv;
        const float * p = w->p + i * TILE;
        int64_t       d = 0;
        for (; d + 4 * VEC <= dv; d += 4 * VEC) {
            add_values_4(o + d, p, w->tile + d, dv);
        }
        for (; d < dv; d += VEC) {
            add_values_1(o + d, p, w->tile + d, dv);
        }
    }
}

// The sums of the queries of an item over chunk c of their rows → w->chunk
static void visit_chunk(
        const struct attention * a, const struct work * w, const struct item * item, int64_t c) {
    const int64_t n   = item->n;
    const int64_t end = a->k->ne[1] < (c + 1) * CHUNK ? a->k->ne[1] : (c + 1) * CHUNK;
    sums_clear(&w->chunk, item->n_head * n, a->dv);
    for (int64_t first = c * CHUNK; first < end; first += TILE) {
        if (!load_mask(a, w->p, item->i0, n, first)) {
            continue;
        }
        for (int64_t h = 1; h < item->n_head; ++h) { // the same for all heads
            memcpy(w->p + h * n * TILE, w->p, (size_t) (n * TILE) * sizeof(*w->p));
        }
        for (int64_t h = 0; h < item->n_head; ++h) {
            load_tile(w->tile, a->k, a->dk, item->h0 + h, first);
            scores(a, w, h * n, n);
        }
        for (int64_t i = 0; i < item->n_head * n; ++i) {
            soft_max(&w->chunk, i, w->p + i * TILE, a->dv);
        }
        for (int64_t h = 0; h < item->n_head; ++h) {
            load_tile(w->tile, a->v, a->dv, item->h0 + h, first);
            add_values(w, h * n, n, a->dv);
        }
    }
}

// Adds the sums (m, l, o [dv]) of a chunk to those of query i.
static void sums_add(
        const struct sums * s, int64_t i, float m, float l, const float * o, int64_t dv) {
    if (m == -INFINITY) {
        return;
    }
    const float most = m > s->m[i] ? m : s->m[i];
    const float keep = expf(s->m[i] - most), add = expf(m - most);
    s->m[i] = most;
    s->l[i] = fma1(s->l[i], keep, l * add);
    for (int64_t d = 0; d < dv; d += VEC) {
        float * to = s->o + i * dv + d;
        vec_store(to, vec_fma(vec_load(to), vec_set1(keep), vec_load(o + d) * vec_set1(add)));
    }
}

// Output i of head h: o / l; 0 if it saw no row
static void put_output(
        const struct attention * a, const struct sums * s, int64_t slot, int64_t h, int64_t i) {
    const int64_t head = h * (a->n_i / a->n) + i / a->n;
    float *       out =
            (float *) ((char *) a->dst->data + head * a->dst->nb[1] + i % a->n * a->dst->nb[2]);
    const float f = s->l[slot] == 0.0f ? 0.0f : 1.0f / s->l[slot];
    for (int64_t d = 0; d < a->dst->ne[0]; ++d) {
        out[d] = s->o[slot * a->dv + d] * f;
    }
}

//
// The op
//

static void load_queries(
        const struct attention * a, const struct work * w, const struct item * item) {
    float * out = w->q;
    for (int64_t h = item->h0; h < item->h0 + item->n_head; ++h) {
        for (int64_t i = item->i0; i < item->i0 + item->n; ++i, out += a->dk) {
            const int64_t head = h * (a->n_i / a->n) + i / a->n;
            const char *  q =
                    (const char *) a->q->data + i % a->n * a->q->nb[1] + head * a->q->nb[2];
            memcpy(out, q, (size_t) a->q->ne[0] * sizeof(*out));
            memset(out + a->q->ne[0], 0, (size_t) (a->dk - a->q->ne[0]) * sizeof(*out));
        }
    }
}

// Many queries: an item takes all chunks.
static void run_queries(
        const struct attention * a, const struct work * w, const struct item * item) {
    const int64_t n_rows = item->n_head * item->n;
    load_queries(a, w, item);
    sums_clear(&w->all, n_rows, a->dv);
    for (int64_t c = 0; c < a->n_chunks; ++c) {
        visit_chunk(a, w, item, c);
        for (int64_t i = 0; i < n_rows; ++i) {
            sums_add(&w->all, i, w->chunk.m[i], w->chunk.l[i], w->chunk.o + i * a->dv, a->dv);
        }
    }
    for (int64_t i = 0; i < n_rows; ++i) {
        put_output(a, &w->all, i, item->h0 + i / item->n, item->i0 + i % item->n);
    }
}

// Few queries: an item takes all of them and one chunk. The sums of all chunks are stored,
// (m, l, o) each, and combined later.
static void run_chunk(const struct attention * a, const struct work * w, const struct item * item,
        int64_t c, float * stored) {
    load_queries(a, w, item);
    visit_chunk(a, w, item, c);
    for (int64_t i = 0; i < item->n_head * item->n; ++i) { // n is n_i: rows are consecutive
        float * to = stored + ((item->h0 * a->n_i + i) * a->n_chunks + c) * (a->dv + 2);
        to[0]      = w->chunk.m[i];
        to[1]      = w->chunk.l[i];
        memcpy(to + 2, w->chunk.o + i * a->dv, (size_t) a->dv * sizeof(*to));
    }
}

static void combine(const struct attention * a, const struct work * w, int64_t h, int64_t i,
        const float * stored) {
    const float * from = stored + (h * a->n_i + i) * a->n_chunks * (a->dv + 2);
    sums_clear(&w->all, 1, a->dv);
    for (int64_t c = 0; c < a->n_chunks; ++c, from += a->dv + 2) {
        sums_add(&w->all, 0, from[0], from[1], from + 2, a->dv);
    }
    put_output(a, &w->all, 0, h, i);
}

static bool is_cache_type(enum ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_Q8_0;
}

static bool has_float(const struct ggml_tensor * op, int i) {
    float x;
    memcpy(&x, op->op_params + i, sizeof(x));
    return x != 0.0f;
}

// True if the kernel computes the op: no ALiBi (1), soft cap (2) or sinks, one batch, one mask.
static bool is_ours(const struct ggml_tensor * op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return op->op == GGML_OP_FLASH_ATTN_EXT && !has_float(op, 1) && !has_float(op, 2) &&
           op->src[4] == NULL && q->type == GGML_TYPE_F32 && is_cache_type(k->type) &&
           is_cache_type(v->type) && mask != NULL && mask->ne[2] == 1 && mask->ne[3] == 1 &&
           q->ne[3] == 1 && k->ne[2] == v->ne[2];
}

static struct attention attention_of(struct ggml_tensor * op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
    struct attention          a = {
                 .q        = q,
                 .k        = k,
                 .v        = v,
                 .mask     = op->src[3],
                 .dst      = op,
                 .n        = q->ne[1],
                 .n_i      = q->ne[1] * (q->ne[2] / k->ne[2]),
                 .dk       = round_up(k->ne[0]),
                 .dv       = round_up(v->ne[0]),
                 .n_chunks = (k->ne[1] + CHUNK - 1) / CHUNK,
    };
    memcpy(&a.scale, op->op_params, sizeof(a.scale));
    return a;
}

static int64_t at_most(int64_t n, int64_t most) {
    return n < most ? n : most;
}

static bool are_few(const struct attention * a) {
    return a->n_i <= QUERIES;
}

size_t ggml_lrnn_cpu_attention_size(struct ggml_tensor * op, int n_threads) {
    if (!is_ours(op)) {
        return 0;
    }
    const struct attention a      = attention_of(op);
    const int64_t          n      = n_threads * work_floats(a.dk, a.dv);
    const int64_t          stored = a.k->ne[2] * a.n_i * a.n_chunks * (a.dv + 2);
    return (size_t) (n + (are_few(&a) ? stored : 0)) * sizeof(float);
}

bool ggml_lrnn_cpu_attention(const struct ggml_compute_params * params, struct ggml_tensor * op) {
    if (!is_ours(op)) {
        return false;
    }
    const struct attention a      = attention_of(op);
    const int64_t          size   = work_floats(a.dk, a.dv);
    const int64_t          n_head = a.k->ne[2];
    float *                work   = params->wdata;
    const struct work      w      = work_at(work + params->ith * size, a.dk, a.dv);
    float *                stored = work + params->nth * size;

    // parts of a head, and heads of an item: as many as fit, but several items per thread
    const bool    few     = are_few(&a);
    const int64_t n       = at_most(a.n_i, QUERIES);
    const int64_t n_parts = few ? a.n_chunks : (a.n_i + QUERIES - 1) / QUERIES;
    const int64_t most  = at_most(at_most(n_head * n_parts / (4 * params->nth), ROWS / n), n_head);
    const int64_t heads = most > 1 ? most : 1;
    const int64_t n_items = (n_head + heads - 1) / heads * n_parts;

    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t at = params->ith; at < n_items;
            at      = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t     part = at % n_parts;
        const int64_t     h0   = at / n_parts * heads;
        const int64_t     i0   = few ? 0 : part * QUERIES;
        const struct item item = { h0, at_most(heads, n_head - h0), i0, at_most(n, a.n_i - i0) };
        if (few) {
            run_chunk(&a, &w, &item, part, stored);
        } else {
            run_queries(&a, &w, &item);
        }
    }
    if (few) {
        ggml_barrier(params->threadpool);
        for (int64_t at = params->ith; at < n_head * a.n_i; at += params->nth) {
            combine(&a, &w, at / a.n_i, at % a.n_i, stored);
        }
    }
    return true;
}
