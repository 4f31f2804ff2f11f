// Attention on the CPU: GGML_OP_FLASH_ATTN_EXT as the graphs of lrnn use it
//
//     o_t = Σ_s p_ts v_s / Σ_s p_ts,   p_ts = exp(scale q_t·k_s + mask_ts − max_s(…))
//
// Why not ggml's own kernel: with a cache in F16 it also sums p v in F16, in which a sum over more
// than 2048 equal terms stops growing; with one in Q8_0 it rounds q to 8 bits; and its results
// depend on the number of threads and of tokens in a call. Here all arithmetic is F32, and the rows
// of the cache are visited in a fixed order: in tiles of TILE rows, which update a running maximum
// and running sums, and in sections of SECTION rows, whose sums are combined in the order of the
// rows. The result of a query does not depend on the others in its batch, on the number of threads,
// or on masked rows that follow.

#include "glue.h"
#include "simd.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "simd-mappings.h"

#define GGML_COMMON_DECL_C
#include "ggml-common.h"

// Both products keep TILE_Q queries × 4 keys, or TILE_Q queries × 4 vectors of values, in
// registers: 16 of 32 with AVX-512 and NEON, 8 of 16 with AVX2.
#if defined(__AVX512F__) || defined(__aarch64__)
#    define TILE_Q 4
#else
#    define TILE_Q 2
#endif

enum {
    TILE = 32,     // rows of the cache that are converted to F32 together
    SECTION = 512, // rows of the cache whose sums are combined in their order
    QUERIES = 128, // most queries that share a tile
    FEW = 32,      // queries of a head up to which threads share its rows instead
    DIRECT = 8,    // queries of a head up to which rows are not converted first
    BLOCK = 32,    // numbers of a row that are read together: a block of Q8_0
    ROWS = 256,    // queries of all heads that one thread computes together
    LINE = 16,     // floats in a line of the cache
};

// The queries of all heads that share a head of the cache are numbered: i = head · n + token.
struct attention {
    const struct ggml_tensor *q, *k, *v, *mask; // [DK, n, H], [DK, S, HK], [DV, S, HK], [S, n]
    struct ggml_tensor *      dst;              // [DV, H, n]
    int64_t                   n, n_i;           // tokens; queries per head of the cache
    int64_t                   dk, dv;           // DK and DV, rounded up to whole lines
    int64_t                   k_stride;         // floats between two rows of queries or keys
    int64_t                   v_stride;         // floats between two rows of values or sums
    int64_t                   n_sections;
    float                     scale;
};

// A maximum m, and relative to it the sums l = Σ p and o = Σ p v, of ROWS queries.
struct sums {
    float * m, *l; // [ROWS]
    float * o;     // [ROWS, v_stride]
};

struct work {          // of one thread
    float *     tile;  // [TILE, k_stride or v_stride], keys or values
    float *     q;     // [ROWS, k_stride]
    float *     mask;  // [QUERIES, TILE], the same for all heads
    float *     p;     // [ROWS, TILE]
    float *     lanes; // [ROWS, VEC], l of the section before the lanes are added
    struct sums section, all;
};

// What a thread computes: n queries, from i0 on, of each of n_head heads of the cache, from h0 on.
// The rows of different heads are neighbors in memory, so heads take turns tile by tile: a head
// that went through its rows alone would touch another page with each of them. Query i of head h is
// row h · n + i of the work memory.
struct item {
    int64_t h0, n_head, i0, n;
};

static int64_t round_up(int64_t n) {
    return (n + LINE - 1) / LINE * LINE;
}

// A power of two would map the rows of a tile to the same sets of a cache.
static int64_t stride_of(int64_t width) {
    return round_up(width) + LINE;
}

static float * take(float ** at, int64_t n) {
    float * x = *at;
    *at += n;
    return x;
}

static struct sums sums_at(float ** at, int64_t v_stride) {
    return (struct sums) { take(at, ROWS), take(at, ROWS), take(at, ROWS * v_stride) };
}

// The parts of the memory at `*at`, which moves past them
static struct work work_at(float ** at, int64_t k_stride, int64_t v_stride) {
    return (struct work) {
        .tile = take(at, TILE * (k_stride > v_stride ? k_stride : v_stride)),
        .q = take(at, ROWS * k_stride),
        .mask = take(at, QUERIES * TILE),
        .p = take(at, ROWS * TILE),
        .lanes = take(at, ROWS * VEC),
        .section = sums_at(at, v_stride),
        .all = sums_at(at, v_stride),
    };
}

static int64_t work_floats(int64_t k_stride, int64_t v_stride) {
    return TILE * (k_stride > v_stride ? k_stride : v_stride) + QUERIES * TILE +
           ROWS * (k_stride + TILE + VEC + 2 * (2 + v_stride));
}

// ---- Tiles --------------------------------------------------------------------------------------

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
// the rows that are `next` bytes after these, to the second-level cache: the first is full.
static void load_tile(float * out, int64_t stride, const struct ggml_tensor * x, int64_t h,
        int64_t first, int64_t next) {
    const size_t size = ggml_row_size(x->type, x->ne[0]);
    for (int64_t i = 0; i < TILE; ++i, out += stride) {
        if (first + i < x->ne[1]) {
            const char * row = (const char *) x->data + (first + i) * x->nb[1] + h * x->nb[2];
            for (size_t at = 0; at < size; at += 64) {
                __builtin_prefetch(row + next + at, 0, 2);
            }
            load_row(out, row, x->type, x->ne[0]);
            for (int64_t j = x->ne[0]; j % LINE != 0; ++j) {
                out[j] = 0.0f;
            }
        } else {
            memset(out, 0, (size_t) stride * sizeof(*out));
        }
    }
}

// The tile after that of the keys or values of head h: of the next head of the item, or of its
// first head, TILE rows later
static int64_t next_tile(const struct ggml_tensor * x, const struct item * item, int64_t h) {
    return h + 1 < item->n_head
                   ? (int64_t) x->nb[2]
                   : TILE * (int64_t) x->nb[1] - (item->n_head - 1) * (int64_t) x->nb[2];
}

static bool is_zero(vec_i x) {
    static const vec_i zero = { 0 };
    return memcmp(&x, &zero, sizeof(x)) == 0;
}

// What the mask of a tile hides from some queries
enum hides { HIDES_NOTHING, HIDES_SOME, HIDES_ALL };

static const ggml_fp16_t * mask_row(const struct attention * a, int64_t i, int64_t first) {
    return (const ggml_fp16_t *) ((const char *) a->mask->data + i % a->n * a->mask->nb[1]) + first;
}

// hides [SECTION / TILE]: what the tiles of section c hide from queries i0 .. i0 + n − 1. A tile
// that is not whole hides some rows. All tiles are read at once, because the masks of two queries
// are far from each other.
static void read_mask(
        const struct attention * a, uint8_t * hides, int64_t i0, int64_t n, int64_t c) {
    const int64_t rows = a->mask->ne[0] - c * SECTION;
    const int64_t n_full = (rows < SECTION ? rows : SECTION) / TILE;
    const vec_i   inf = (vec_i) { 0 } + (int32_t) 0xfc00fc00; // −∞ in F16, twice
    vec_i         any[SECTION / TILE], shown[SECTION / TILE]; // bits that are not 0, not −∞
    memset(any, 0, sizeof(any));
    memset(shown, 0, sizeof(shown));
    for (int64_t i = i0; i < i0 + n; ++i) {
        const ggml_fp16_t * row = mask_row(a, i, c * SECTION);
        for (int64_t t = 0; t < n_full; ++t) {
            for (int j = 0; j < TILE; j += 2 * VEC) {
                vec_i x;
                memcpy(&x, row + t * TILE + j, sizeof(x));
                any[t] |= x;
                shown[t] |= x ^ inf;
            }
        }
    }
    for (int64_t t = 0; t < SECTION / TILE; ++t) {
        hides[t] = t >= n_full         ? HIDES_SOME
                   : is_zero(any[t])   ? HIDES_NOTHING
                   : is_zero(shown[t]) ? HIDES_ALL
                                       : HIDES_SOME;
    }
}

// mask [n, TILE] of queries i0 .. i0 + n − 1
static void load_mask(
        const struct attention * a, float * mask, int64_t i0, int64_t n, int64_t first) {
    const int64_t rows = a->mask->ne[0] - first < TILE ? a->mask->ne[0] - first : TILE;
    for (int64_t i = i0; i < i0 + n; ++i, mask += TILE) {
        ggml_cpu_fp16_to_fp32(mask_row(a, i, first), mask, rows);
        for (int64_t s = rows; s < TILE; ++s) {
            mask[s] = -INFINITY;
        }
    }
}

// ---- Rows ---------------------------------------------------------------------------------------

// TILE rows of the keys or values of a head: a tile, or in the cache. Few queries read the cache
// itself; converting rows to a tile would take longer than their products. Both give the same
// numbers: a row of the cache is exact in F32.
struct rows {
    const char *   data;
    int64_t        stride;  // bytes between rows
    int64_t        next;    // bytes from a row to one that is read soon, if in the cache
    enum ggml_type type;    // F32 for a tile
    bool           is_tile; // padded to whole lines
};

// Rows first … first + TILE − 1 of head h of the item
static struct rows rows_of(const struct work * w, const struct item * item,
        const struct ggml_tensor * x, int64_t stride, int64_t h, int64_t first) {
    struct rows rows = {
        .data = (const char *) x->data + first * x->nb[1] + (item->h0 + h) * x->nb[2],
        .stride = (int64_t) x->nb[1],
        .next = next_tile(x, item, h),
        .type = x->type,
    };
    if (item->n > DIRECT || first + TILE > x->ne[1] || x->ne[0] % BLOCK != 0) {
        load_tile(w->tile, stride, x, item->h0 + h, first, rows.next);
        rows = (struct rows) {
            .data = (const char *) w->tile,
            .stride = stride * (int64_t) sizeof(float),
            .type = GGML_TYPE_F32,
            .is_tile = true,
        };
    }
    return rows;
}

// Calls f(arguments, type, is_tile) with constants for the last two, for which f is compiled.
#define FOR_ROWS(rows, f, ...)                                                 \
    ((rows)->is_tile                        ? f(__VA_ARGS__, GGML_TYPE_F32, 1) \
            : (rows)->type == GGML_TYPE_F32 ? f(__VA_ARGS__, GGML_TYPE_F32, 0) \
            : (rows)->type == GGML_TYPE_F16 ? f(__VA_ARGS__, GGML_TYPE_F16, 0) \
                                            : f(__VA_ARGS__, GGML_TYPE_Q8_0, 0))

// Numbers d + i … d + i + VEC − 1 of a row; d is a multiple of BLOCK for Q8_0.
SIMD_INLINE vec row_vec(const char * row, enum ggml_type type, int64_t d, int64_t i) {
    if (type == GGML_TYPE_F16) {
        return vec_from_f16((const uint16_t *) (const void *) row + d + i);
    }
    if (type == GGML_TYPE_Q8_0) {
        const block_q8_0 * block = (const block_q8_0 *) (const void *) row + d / BLOCK + i / BLOCK;
        return vec_from_i8(block->qs + i % BLOCK) * vec_set1(GGML_CPU_FP16_TO_FP32(block->d));
    }
    return vec_load((const float *) (const void *) row + d + i);
}

// Prefetches n numbers of a row, from number d on, to the second-level cache.
SIMD_INLINE void row_prefetch(const char * row, enum ggml_type type, int64_t d, int64_t n) {
    const int64_t size = type == GGML_TYPE_F32 ? 4 : type == GGML_TYPE_F16 ? 2 : 1;
    row += type == GGML_TYPE_Q8_0 ? d / BLOCK * (int64_t) sizeof(block_q8_0) : d * size;
    UNROLL(4) for (int64_t at = 0; at < n * size; at += 64) {
        __builtin_prefetch(row + at, 0, 2);
    }
}

// ---- Scores: p = q·k ----------------------------------------------------------------------------

// p [n, 4·TILE_Q / n keys] = q·k for n queries, a divisor of TILE_Q. Each product is a vector of
// sums until the end, whose lanes are then added in a fixed order.
SIMD_INLINE void dots(const float * q, int64_t q_stride, int n, const char * k,
        const struct rows * rows, int64_t dk, float * p, enum ggml_type type, bool is_tile) {
    const int     keys = 4 * TILE_Q / n;
    const int64_t step = is_tile ? LINE : BLOCK;
    vec           sum[4 * TILE_Q]; // [keys, n]
    UNROLL(16) for (int i = 0; i < 4 * TILE_Q; ++i) {
        sum[i] = (vec) { 0.0f };
    }
    UNROLL(4) for (int key = 0; key < keys; key += 4) {
        for (int64_t d = 0; d < dk; d += step) {
            UNROLL(4) for (int j = 0; j < 4 && !is_tile; ++j) {
                row_prefetch(k + (key + j) * rows->stride + rows->next, type, d, step);
            }
            UNROLL(8) for (int64_t e = 0; e < step; e += VEC) {
                vec x[4];
                UNROLL(4) for (int j = 0; j < 4; ++j) {
                    x[j] = vec_keep(row_vec(k + (key + j) * rows->stride, type, d, e));
                }
                UNROLL(4) for (int i = 0; i < n; ++i) {
                    const vec y = vec_keep(vec_load(q + i * q_stride + d + e));
                    UNROLL(4) for (int j = 0; j < 4; ++j) {
                        sum[i * keys + key + j] = vec_fma(x[j], y, sum[i * keys + key + j]);
                    }
                }
            }
        }
    }
    float s[4 * TILE_Q];
    UNROLL(4) for (int i = 0; i < 4 * TILE_Q; i += VEC) {
        vec_sums(s + i, sum + i);
    }
    UNROLL(4) for (int i = 0; i < n; ++i) {
        memcpy(p + i * TILE, s + i * keys, (size_t) keys * sizeof(*p));
    }
}

// The scores of n queries of one head, from row `first` of the work memory on
SIMD_INLINE void scores_of(const struct attention * a, const struct work * w,
        const struct rows * rows, int64_t first, int64_t n, enum ggml_type type, bool is_tile) {
    for (int64_t row = 0; row < TILE; row += 4 * TILE_Q) {
        const char *  k = rows->data + row * rows->stride;
        const int64_t stride = a->k_stride, four = 4 * rows->stride;
        const float * q = w->q + first * stride;
        float *       p = w->p + first * TILE + row;
        int64_t       i = 0;
        for (; i + TILE_Q <= n; i += TILE_Q, q += TILE_Q * stride, p += TILE_Q * TILE) {
            UNROLL(1) for (int64_t j = 0; j < TILE_Q; ++j) {
                dots(q, stride, TILE_Q, k + j * four, rows, a->dk, p + 4 * j, type, is_tile);
            }
        }
#if TILE_Q == 4
        for (; i + 2 <= n; i += 2, q += 2 * stride, p += 2 * TILE) {
            dots(q, stride, 2, k, rows, a->dk, p, type, is_tile);
            dots(q, stride, 2, k + 2 * four, rows, a->dk, p + 8, type, is_tile);
        }
#endif
        for (; i < n; ++i, q += stride, p += TILE) {
            dots(q, stride, 1, k, rows, a->dk, p, type, is_tile);
        }
    }
}

static void scores(const struct attention * a, const struct work * w, const struct rows * rows,
        int64_t first, int64_t n) {
    FOR_ROWS(rows, scores_of, a, w, rows, first, n);
}

// ---- Sums ---------------------------------------------------------------------------------------

static void sums_clear(const struct sums * s, int64_t n, int64_t v_stride) {
    for (int64_t i = 0; i < n; ++i) {
        s->m[i] = -INFINITY;
        s->l[i] = 0.0f;
    }
    memset(s->o, 0, (size_t) (n * v_stride) * sizeof(*s->o));
}

// Scores of query i become weights relative to the new maximum, to which its sums are scaled.
static void soft_max(
        const struct attention * a, const struct work * w, int64_t i, const float * mask) {
    float *   p = w->p + i * TILE;
    const vec scale = vec_set1(a->scale);
    vec       most = vec_set1(w->section.m[i]);
    vec       x[TILE / VEC];
    UNROLL(8) for (int j = 0; j < TILE / VEC; ++j) {
        x[j] = vec_fma(scale, vec_load(p + j * VEC), vec_load(mask + j * VEC));
        most = vec_max(most, x[j]);
    }
    const float m = vec_max_lane(most);
    if (m == -INFINITY) { // no visible row so far, and −∞ − (−∞) is not a number
        memset(p, 0, TILE * sizeof(*p));
        return;
    }
    const float keep = m == w->section.m[i] ? 1.0f : expf(w->section.m[i] - m);
    w->section.m[i] = m;
    vec sum = vec_load(w->lanes + i * VEC) * vec_set1(keep);
    UNROLL(8) for (int j = 0; j < TILE / VEC; ++j) {
        const vec e = vec_exp(x[j] - vec_set1(m));
        vec_store(p + j * VEC, e);
        sum += e;
    }
    vec_store(w->lanes + i * VEC, sum);
    for (int64_t d = 0; keep != 1.0f && d < a->dv; d += VEC) {
        float * o = w->section.o + i * a->v_stride + d;
        vec_store(o, vec_load(o) * vec_set1(keep));
    }
}

// o [n, m vectors] += p v, over the rows of a tile, for n queries and numbers d … of the rows
SIMD_INLINE void add_rows(float * o, int64_t stride, const float * p, int n,
        const struct rows * rows, int64_t d, int m, enum ggml_type type, bool is_tile) {
    const int64_t in = m * VEC % BLOCK == 0 ? 0 : d % BLOCK; // of a block
    const char *  row = rows->data;
    vec           sum[TILE_Q][4];
    UNROLL(4) for (int i = 0; i < n; ++i) {
        UNROLL(4) for (int j = 0; j < m; ++j) {
            sum[i][j] = vec_load(o + i * stride + d + j * VEC);
        }
    }
    for (int64_t r = 0; r < TILE; ++r, row += rows->stride) {
        vec x[4];
        UNROLL(4) for (int j = 0; j < m; ++j) {
            x[j] = vec_keep(row_vec(row, type, d - in, in + j * VEC));
        }
        if (!is_tile) {
            row_prefetch(row + rows->next, type, d, m * VEC);
        }
        UNROLL(4) for (int i = 0; i < n; ++i) {
            const vec y = vec_set1(p[i * TILE + r]);
            UNROLL(4) for (int j = 0; j < m; ++j) {
                sum[i][j] = vec_fma(y, x[j], sum[i][j]);
            }
        }
    }
    UNROLL(4) for (int i = 0; i < n; ++i) {
        UNROLL(4) for (int j = 0; j < m; ++j) {
            vec_store(o + i * stride + d + j * VEC, sum[i][j]);
        }
    }
}

// The same m vectors of n queries, any number
SIMD_INLINE void add_columns(float * o, int64_t stride, const float * p, int64_t n,
        const struct rows * rows, int64_t d, int m, enum ggml_type type, bool is_tile) {
    int64_t i = 0;
    for (; i + TILE_Q <= n; i += TILE_Q, o += TILE_Q * stride, p += TILE_Q * TILE) {
        add_rows(o, stride, p, TILE_Q, rows, d, m, type, is_tile);
    }
    for (; i < n; ++i, o += stride, p += TILE) {
        add_rows(o, stride, p, 1, rows, d, m, type, is_tile);
    }
}

// The values of n queries of one head, from row `first` of the work memory on. A few columns of the
// rows serve all queries before the next ones do.
SIMD_INLINE void add_values_of(const struct attention * a, const struct work * w,
        const struct rows * rows, int64_t first, int64_t n, enum ggml_type type, bool is_tile) {
    float *       o = w->section.o + first * a->v_stride;
    const float * p = w->p + first * TILE;
    int64_t       d = 0;
    for (; d + 4 * VEC <= a->dv; d += 4 * VEC) {
        add_columns(o, a->v_stride, p, n, rows, d, 4, type, is_tile);
    }
    for (; d < a->dv; d += VEC) {
        add_columns(o, a->v_stride, p, n, rows, d, 1, type, is_tile);
    }
}

static void add_values(const struct attention * a, const struct work * w, const struct rows * rows,
        int64_t first, int64_t n) {
    FOR_ROWS(rows, add_values_of, a, w, rows, first, n);
}

// The sums of the queries of an item over section c of their rows → w->section
static void visit_section(
        const struct attention * a, const struct work * w, const struct item * item, int64_t c) {
    const int64_t n = item->n, n_rows = item->n_head * n;
    const int64_t end = a->k->ne[1] < (c + 1) * SECTION ? a->k->ne[1] : (c + 1) * SECTION;
    sums_clear(&w->section, n_rows, a->v_stride);
    memset(w->lanes, 0, (size_t) (n_rows * VEC) * sizeof(*w->lanes));
    static const float zeros[TILE] = { 0.0f };
    uint8_t            hides[SECTION / TILE];
    read_mask(a, hides, item->i0, n, c);
    for (int64_t first = c * SECTION; first < end; first += TILE) {
        const enum hides hidden = hides[first % SECTION / TILE];
        if (hidden == HIDES_ALL) {
            continue;
        }
        if (hidden == HIDES_SOME) {
            load_mask(a, w->mask, item->i0, n, first);
        }
        for (int64_t h = 0; h < item->n_head; ++h) {
            const struct rows keys = rows_of(w, item, a->k, a->k_stride, h, first);
            scores(a, w, &keys, h * n, n);
        }
        for (int64_t i = 0; i < n_rows; ++i) {
            soft_max(a, w, i, hidden == HIDES_SOME ? w->mask + i % n * TILE : zeros);
        }
        for (int64_t h = 0; h < item->n_head; ++h) {
            const struct rows values = rows_of(w, item, a->v, a->v_stride, h, first);
            add_values(a, w, &values, h * n, n);
        }
    }
    for (int64_t i = 0; i < n_rows; ++i) {
        for (int j = 0; j < VEC; ++j) {
            w->section.l[i] += w->lanes[i * VEC + j];
        }
    }
}

// Adds the sums (m, l, o [dv]) of a section to those of query i.
static void sums_add(const struct attention * a, const struct sums * s, int64_t i, float m, float l,
        const float * o) {
    if (m == -INFINITY) {
        return;
    }
    const float most = m > s->m[i] ? m : s->m[i];
    const float keep = expf(s->m[i] - most), add = expf(m - most);
    s->m[i] = most;
    s->l[i] = fma1(s->l[i], keep, l * add);
    for (int64_t d = 0; d < a->dv; d += VEC) {
        float * to = s->o + i * a->v_stride + d;
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
        out[d] = s->o[slot * a->v_stride + d] * f;
    }
}

// ---- The op -------------------------------------------------------------------------------------

static void load_queries(
        const struct attention * a, const struct work * w, const struct item * item) {
    float * out = w->q;
    for (int64_t h = item->h0; h < item->h0 + item->n_head; ++h) {
        for (int64_t i = item->i0; i < item->i0 + item->n; ++i, out += a->k_stride) {
            const int64_t head = h * (a->n_i / a->n) + i / a->n;
            const char *  q =
                    (const char *) a->q->data + i % a->n * a->q->nb[1] + head * a->q->nb[2];
            memcpy(out, q, (size_t) a->q->ne[0] * sizeof(*out));
            memset(out + a->q->ne[0], 0, (size_t) (a->k_stride - a->q->ne[0]) * sizeof(*out));
        }
    }
}

// Many queries: an item takes all sections.
static void run_queries(
        const struct attention * a, const struct work * w, const struct item * item) {
    const int64_t n_rows = item->n_head * item->n;
    load_queries(a, w, item);
    sums_clear(&w->all, n_rows, a->v_stride);
    for (int64_t c = 0; c < a->n_sections; ++c) {
        visit_section(a, w, item, c);
        for (int64_t i = 0; i < n_rows; ++i) {
            sums_add(a, &w->all, i, w->section.m[i], w->section.l[i],
                    w->section.o + i * a->v_stride);
        }
    }
    for (int64_t i = 0; i < n_rows; ++i) {
        put_output(a, &w->all, i, item->h0 + i / item->n, item->i0 + i % item->n);
    }
}

// Few queries: an item takes all of them and one section. The sums of all sections are stored,
// (m, l, o) each, and combined later.
static void run_section(const struct attention * a, const struct work * w, const struct item * item,
        int64_t c, float * stored) {
    load_queries(a, w, item);
    visit_section(a, w, item, c);
    for (int64_t i = 0; i < item->n_head * item->n; ++i) { // n is n_i: rows are consecutive
        float * to = stored + ((item->h0 * a->n_i + i) * a->n_sections + c) * (a->dv + 2);
        to[0] = w->section.m[i];
        to[1] = w->section.l[i];
        memcpy(to + 2, w->section.o + i * a->v_stride, (size_t) a->dv * sizeof(*to));
    }
}

static void combine(const struct attention * a, const struct work * w, int64_t h, int64_t i,
        const float * stored) {
    const float * from = stored + (h * a->n_i + i) * a->n_sections * (a->dv + 2);
    sums_clear(&w->all, 1, a->v_stride);
    for (int64_t c = 0; c < a->n_sections; ++c, from += a->dv + 2) {
        sums_add(a, &w->all, 0, from[0], from[1], from + 2);
    }
    put_output(a, &w->all, 0, h, i);
}

static bool is_cache_format(enum ggml_type type) {
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
           op->src[4] == NULL && q->type == GGML_TYPE_F32 && is_cache_format(k->type) &&
           is_cache_format(v->type) && mask != NULL && mask->ne[2] == 1 && mask->ne[3] == 1 &&
           q->ne[3] == 1 && k->ne[2] == v->ne[2];
}

static struct attention attention_of(struct ggml_tensor * op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
    struct attention          a = {
                 .q = q,
                 .k = k,
                 .v = v,
                 .mask = op->src[3],
                 .dst = op,
                 .n = q->ne[1],
                 .n_i = q->ne[1] * (q->ne[2] / k->ne[2]),
                 .dk = round_up(k->ne[0]),
                 .dv = round_up(v->ne[0]),
                 .k_stride = stride_of(k->ne[0]),
                 .v_stride = stride_of(v->ne[0]),
                 .n_sections = (k->ne[1] + SECTION - 1) / SECTION,
    };
    memcpy(&a.scale, op->op_params, sizeof(a.scale));
    return a;
}

static int64_t at_most(int64_t n, int64_t most) {
    return n < most ? n : most;
}

static bool are_few(const struct attention * a) {
    return a->n_i <= FEW;
}

size_t ggml_lrnn_cpu_attention_size(struct ggml_tensor * op, int n_threads) {
    if (!is_ours(op)) {
        return 0;
    }
    const struct attention a = attention_of(op);
    const int64_t          n = n_threads * work_floats(a.k_stride, a.v_stride);
    const int64_t          stored = a.k->ne[2] * a.n_i * a.n_sections * (a.dv + 2);
    return (size_t) (LINE + n + (are_few(&a) ? stored : 0)) * sizeof(float);
}

bool ggml_lrnn_cpu_attention(const struct ggml_compute_params * params, struct ggml_tensor * op) {
    if (!is_ours(op)) {
        return false;
    }
    const struct attention a = attention_of(op);
    const int64_t          size = work_floats(a.k_stride, a.v_stride);
    const int64_t          n_head = a.k->ne[2];
    const uintptr_t        line = LINE * sizeof(float);
    float *                work = (float *) (((uintptr_t) params->wdata + line - 1) / line * line);
    float *                own = work + params->ith * size;
    const struct work      w = work_at(&own, a.k_stride, a.v_stride);
    float *                stored = work + params->nth * size;

    // parts of a head, and heads of an item: as many as fit, but several items per thread
    const bool few = are_few(&a);
    int64_t    n = at_most(a.n_i, QUERIES);
    while (n > FEW && n_head * ((a.n_i + n - 1) / n) < 4 * params->nth) {
        n /= 2;
    }
    const int64_t n_parts = few ? a.n_sections : (a.n_i + n - 1) / n;
    const int64_t most = at_most(at_most(n_head * n_parts / (4 * params->nth), ROWS / n), n_head);
    const int64_t heads = most > 1 ? most : 1;
    const int64_t n_items = (n_head + heads - 1) / heads * n_parts;

    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t at = params->ith; at < n_items;
            at = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t     part = at % n_parts;
        const int64_t     h0 = at / n_parts * heads;
        const int64_t     i0 = few ? 0 : part * n;
        const struct item item = { h0, at_most(heads, n_head - h0), i0, at_most(n, a.n_i - i0) };
        if (few) {
            run_section(&a, &w, &item, part, stored);
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
