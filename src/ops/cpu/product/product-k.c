// Weights in blocks of 256 (Q4_K, Q5_K, Q6_K, IQ4_XS), strip by strip. The equation is in
// product-k.h.
//
// A block of a strip is unpacked once, as vectors of four weights of each row, and stays in the
// first-level cache while all columns go past it. Weights are stored as w + o ≥ 0. As many products
// as fit into 16 bits, a run, are added before they are multiplied with the scale, by an
// instruction that multiplies numbers of 16 bits and adds in 32:
//
// - With AVX2 the sums themselves have 16 bits, and o Σ_i s[r, i] Σ x[k, c] is subtracted at the
//   end of a block, if o is not 0. The weights of IQ4_XS keep their sign, which the instruction
//   wants in the columns; two products fill 16 bits.
// - With VNNI they have 32 bits, and begin with −o Σ x[k, c]. The weights of Q4_K and Q5_K are not
//   negative, but w − o has a bit less, so what was subtracted is added again, once per block.
// - On ARM they have 32 bits and are multiplied with the scale in 32 bits. The instruction wants
//   weights with a sign, so only those of Q6_K have an offset, which keeps the unpacking short.
//
// With VNNI, a vector of rows takes 64 instructions for the products of a block with a column, 8
// (Q4_K), 16 (Q5_K) or 32 (Q6_K) for the scales, 10 for the minima and what is added again, and 1
// for the factor of the column.

#include "product-k.h"

#if PRODUCT_BYTES

#    include "product-bytes.h"
#    include "product-round.h"

enum {
    N_FOURS = QK_K / 4,
    VECS = 2, // vectors of rows of a strip
    WIDTH = 240,

    COLUMNS = PRODUCT_512    ? 6
              : PRODUCT_NEON ? 4
                             : 3, // of a register tile
};

// How the kernel computes a type.
struct format {
    int  n_parts; // 8 or 16
    bool minima;
    int  offset; // o
    int  run;    // vectors of fours whose products are added before they are scaled
    bool wide;   // a run is multiplied with the scale in 32 bits
    bool signs;  // weights have a sign, and a run is one vector
};

SIMD_INLINE struct format format_of(enum ggml_type type) {
    if (PRODUCT_NEON) {
        const bool q6 = type == GGML_TYPE_Q6_K;
        return (struct format) { q6 ? 16 : 8, !q6 && type != GGML_TYPE_IQ4_XS, q6 ? 32 : 0,
            q6 ? 4 : 8, true, false };
    }
    switch (type) {
        case GGML_TYPE_Q6_K: return (struct format) { 16, false, 32, 2, false, false };
        case GGML_TYPE_Q5_K:
            return (struct format) { 8, true, PRODUCT_VNNI ? 16 : 0, 4, false, false };
        case GGML_TYPE_IQ4_XS:
            return PRODUCT_VNNI ? (struct format) { 8, false, 128, 8, true, false }
                                : (struct format) { 8, false, 0, 1, false, true };
        default: return (struct format) { 8, true, PRODUCT_VNNI ? 8 : 0, 8, false, false };
    }
}

// ---- Vectors of rows ----------------------------------------------------------------------------

#    if PRODUCT_512
SIMD_INLINE rows_f rows_float(rows_i x) {
    return _mm512_cvtepi32_ps(x);
}
SIMD_INLINE rows_f rows_fma(rows_f a, rows_f b, rows_f c) {
    return _mm512_fmadd_ps(a, b, c);
}
// The F16 number in the lower half of each
SIMD_INLINE rows_f rows_factor(rows_i x) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
SIMD_INLINE rows_f rows_set1_f(float x) {
    return _mm512_set1_ps(x);
}
#    elif PRODUCT_AVX2
SIMD_INLINE rows_f rows_float(rows_i x) {
    return _mm256_cvtepi32_ps(x);
}
SIMD_INLINE rows_f rows_fma(rows_f a, rows_f b, rows_f c) {
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_INLINE rows_f rows_factor(rows_i x) {
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(
            _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
SIMD_INLINE rows_f rows_set1_f(float x) {
    return _mm256_set1_ps(x);
}
#    else
SIMD_INLINE rows_f rows_float(rows_i x) {
    return vcvtq_f32_s32(x);
}
SIMD_INLINE rows_f rows_fma(rows_f a, rows_f b, rows_f c) {
    return vfmaq_f32(c, a, b);
}
SIMD_INLINE rows_f rows_factor(rows_i x) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(x))));
}
SIMD_INLINE rows_f rows_set1_f(float x) {
    return vdupq_n_f32(x);
}
#    endif

// A scale as a factor of the sums of a run: of one sum with VNNI, of two in 16 bits with AVX2
SIMD_INLINE rows_i rows_scale(rows_i s, bool wide) {
    const rows_u32 low = (rows_u32) s & 0xffff;
    return wide ? s : (rows_i) (PRODUCT_VNNI ? low : low | low << 16);
}

// Adds the products of four weights of a run.
SIMD_INLINE rows_i rows_dot(rows_i sum, rows_i w, const int32_t * x, int i, bool signs) {
#    if !PRODUCT_SUM_32
    if (signs) {
        return rows_dot_signed(w, x[i]);
    }
#    endif
    (void) signs;
    return rows_dot_bytes(sum, w, x, i);
}

// Adds the sums of a run, scaled.
SIMD_INLINE rows_i rows_acc_add(rows_i acc, rows_i sum, rows_i s, bool wide) {
    return wide ? (rows_i) ((rows_i32) acc + (rows_i32) sum * (rows_i32) s)
                : rows_dot_words(acc, sum, s);
}

// A block of the rows of a strip.
struct row_block {
    rows_i w[N_FOURS][VECS]; // four weights of each row
    rows_i s[16][VECS];
    rows_i t[8][VECS]; // minima of two parts, in 16 bits; scales, if there are no minima
    rows_i o[4][VECS]; // scales of two parts times what is added again, in 16 bits
    rows_f d[VECS];
    rows_f m[VECS]; // −m
};

// ---- Columns ------------------------------------------------------------------------------------

// Rounds blocks of 256 numbers to multiples of e = max |x| / 127. e is NaN if a number is not
// finite.
static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    const struct format f = format_of(type);
    for (int64_t b = 0; b < n; ++b, x += QK_K, out += stride) {
        struct column_block * block = (struct column_block *) (void *) out;
        const float           top = largest(x, QK_K);
        const float           scale = top > 0.0f ? 127.0f / top : 0.0f;
        int32_t               sums[4][N_FOURS]; // of 4, 8, 16 and 32 numbers
        for (int i = 0; i < 8; ++i) {
            round_32(x + 32 * i, scale, block->q + 8 * i);
            sum_fours(block->q + 8 * i, sums[0] + 8 * i);
        }
        for (int i = 0; i < 3; ++i) {
            sum_neighbors(sums[i], 4 >> i, sums[i + 1]);
        }
        for (int i = 0; i < f.n_parts; ++i) {
            block->sums[i] = (int16_t) sums[f.n_parts == 8 ? 3 : 2][i];
        }
        for (int i = 0; PRODUCT_SUM_32 && f.offset > 0 && i < N_FOURS / f.run; ++i) {
            block->start[i] = -f.offset * sums[f.run == 8 ? 3 : f.run == 4 ? 2 : 1][i];
        }
        block->e = isnan(top) ? NAN : scale > 0.0f ? 1.0f / scale : 0.0f;
    }
}

// ---- Rows: vector v of a block, of rows that begin at p -----------------------------------------

// The packing of Q4_K and Q5_K: d and m in F16, 8 scales and 8 minima of 6 bits
SIMD_INLINE void unpack_scales(
        const char * const p[HEIGHT], int v, struct format f, struct row_block * out) {
    rows_i u[4];
    rows_load_16(p, 0, u);
    const rows_u32 u0 = (rows_u32) u[1], u1 = (rows_u32) u[2], u2 = (rows_u32) u[3];
    const rows_u32 s[2] = { u0 & 0x3f3f3f3f, (u2 & 0x0f0f0f0f) | (u0 >> 2 & 0x30303030) };
    const rows_u32 t[2] = { u1 & 0x3f3f3f3f, (u2 >> 4 & 0x0f0f0f0f) | (u1 >> 2 & 0x30303030) };
    out->d[v] = rows_factor(u[0]);
    out->m[v] = -rows_factor((rows_i) ((rows_u32) u[0] >> 16));
    for (unsigned i = 0; i < 8; ++i) {
        out->s[i][v] = rows_scale((rows_i) (s[i / 4] >> 8 * (i % 4) & 255), f.wide);
    }
    for (unsigned i = 0; i < 4; ++i) {
        const rows_u32 pair = t[i / 2] >> 16 * (i % 2), pair_s = s[i / 2] >> 16 * (i % 2);
        out->t[i][v] = (rows_i) ((pair & 0xff) | (pair & 0xff00) << 8);
        out->o[i][v] = (rows_i) (((pair_s & 0xff) | (pair_s & 0xff00) << 8) * (uint32_t) f.offset);
    }
}

static void unpack_q4_k(const char * const p[HEIGHT], int v, struct row_block * out) {
    unpack_scales(p, v, format_of(GGML_TYPE_Q4_K), out);
    for (int j = 0; j < 4; ++j) { // two parts share 32 bytes
        rows_i low[FOURS];
        rows_load_32(p, (int64_t) offsetof(block_q4_K, qs) + 32 * j, low);
        for (int i = 0; i < FOURS; ++i) {
            out->w[16 * j + i][v] = (rows_i) ((rows_u8) low[i] & 15);
            out->w[16 * j + 8 + i][v] = (rows_i) ((rows_u8) low[i] >> 4);
        }
    }
}

static void unpack_q5_k(const char * const p[HEIGHT], int v, struct row_block * out) {
    unpack_scales(p, v, format_of(GGML_TYPE_Q5_K), out);
    rows_i high[FOURS]; // bit i belongs to part i
    rows_load_32(p, (int64_t) offsetof(block_q5_K, qh), high);
    for (int j = 0; j < 4; ++j) {
        rows_i low[FOURS];
        rows_load_32(p, (int64_t) offsetof(block_q5_K, qs) + 32 * j, low);
        for (int i = 0; i < FOURS; ++i) {
            const rows_u8 l = (rows_u8) low[i], h = (rows_u8) high[i] >> 2 * j;
            out->w[16 * j + i][v] = (rows_i) ((l & 15) | (h & 1) << 4);
            out->w[16 * j + 8 + i][v] = (rows_i) (l >> 4 | (h & 2) << 3);
        }
    }
}

static void unpack_q6_k(const char * const p[HEIGHT], int v, struct row_block * out) {
    uint32_t d[HEIGHT];
    for (int r = 0; r < HEIGHT; ++r) {
        d[r] = ((const block_q6_K *) (const void *) p[r])->d;
    }
    rows_i factors, u[4];
    memcpy(&factors, d, sizeof(factors));
    out->d[v] = rows_factor(factors);
    rows_load_16(p, (int64_t) offsetof(block_q6_K, scales), u);
    for (int i = 0; i < 16; ++i) {
        const rows_i32 s = (rows_i32) ((rows_u32) u[i / 4] << (24 - 8 * (i % 4))) >> 24;
        out->s[i][v] = rows_scale((rows_i) s, format_of(GGML_TYPE_Q6_K).wide);
        out->t[i / 2][v] = i % 2 == 0 ? (rows_i) (s & 0xffff)
                                      : (rows_i) ((rows_i32) out->t[i / 2][v] | s << 16);
    }
    for (int j = 0; j < 2; ++j) { // four parts of 32 share 64 bytes of ql and 32 of qh
        rows_i a[FOURS], b[FOURS], high[FOURS];
        rows_load_32(p, (int64_t) offsetof(block_q6_K, ql) + 64 * j, a);
        rows_load_32(p, (int64_t) offsetof(block_q6_K, ql) + 64 * j + 32, b);
        rows_load_32(p, (int64_t) offsetof(block_q6_K, qh) + 32 * j, high);
        for (int i = 0; i < FOURS; ++i) {
            const rows_u8 h = (rows_u8) high[i];
            rows_i *      w = &out->w[32 * j + i][v];
            w[0] = (rows_i) (((rows_u8) a[i] & 15) | (h & 3) << 4);
            w[8 * VECS] = (rows_i) (((rows_u8) b[i] & 15) | (h & 12) << 2);
            w[16 * VECS] = (rows_i) ((rows_u8) a[i] >> 4 | (h & 48));
            w[24 * VECS] = (rows_i) ((rows_u8) b[i] >> 4 | (h >> 2 & 48));
        }
    }
}

static void unpack_iq4_xs(const char * const p[HEIGHT], int v, struct row_block * out) {
    const struct format f = format_of(GGML_TYPE_IQ4_XS);
    rows_i              u[4];
    rows_load_16(p, 0, u);
    const rows_u32 high = (rows_u32) u[0] >> 16, low = (rows_u32) u[1];
    out->d[v] = rows_factor(u[0]);
    for (unsigned i = 0; i < 8; ++i) {
        const rows_u32 s = (low >> 4 * i & 15) | (high >> 2 * i & 3) << 4;
        out->s[i][v] = rows_scale((rows_i) (s - 32), f.wide);
    }
    for (int j = 0; j < 4; ++j) { // the halves of 16 bytes are the halves of a part
        rows_i q[FOURS];
        rows_load_32(p, (int64_t) offsetof(block_iq4_xs, qs) + 32 * j, q);
        for (int i = 0; i < FOURS; ++i) {
            rows_i *     w = &out->w[16 * j + i / 4 * 8 + i % 4][v];
            const rows_i a = rows_lookup(values_iq4, (rows_i) ((rows_u8) q[i] & 15));
            const rows_i b = rows_lookup(values_iq4, (rows_i) ((rows_u8) q[i] >> 4));
            w[0] = (rows_i) ((rows_u8) a + (uint8_t) f.offset);
            w[4 * VECS] = (rows_i) ((rows_u8) b + (uint8_t) f.offset);
        }
    }
}

// ---- Products -----------------------------------------------------------------------------------

// sums[.., c] += … of a block and n columns
SIMD_INLINE void multiply_columns(const struct row_block * w, const struct column_block * x, int n,
        struct format f, rows_f * sums) {
    rows_i     acc[COLUMNS][VECS] = { 0 };
    rows_i     dot[COLUMNS][VECS];
    const int  n_fours = N_FOURS / f.n_parts;
    const int  n_pairs = f.minima || (!PRODUCT_SUM_32 && f.offset > 0) ? f.n_parts / 2 : 0;
    const bool starts = PRODUCT_SUM_32 && f.offset > 0;
    for (int part = 0; part < f.n_parts; ++part) {
        UNROLL(4) for (int first = 0; first < n_fours; first += f.run) {
            UNROLL(8) for (int c = 0; c < n; ++c) {
                UNROLL(2) for (int v = 0; v < VECS; ++v) {
                    dot[c][v] =
                            rows_set1(starts ? x[c].start[(part * n_fours + first) / f.run] : 0);
                }
            }
            UNROLL(8) for (int i = 0; i < f.run; ++i) {
                const int four = part * n_fours + first;
                UNROLL(8) for (int c = 0; c < n; ++c) {
                    UNROLL(2) for (int v = 0; v < VECS; ++v) {
                        dot[c][v] =
                                rows_dot(dot[c][v], w->w[four + i][v], x[c].q + four, i, f.signs);
                    }
                }
            }
            UNROLL(8) for (int c = 0; c < n; ++c) {
                UNROLL(2) for (int v = 0; v < VECS; ++v) {
                    acc[c][v] = rows_acc_add(acc[c][v], dot[c][v], w->s[part][v], f.wide);
                }
            }
        }
    }
    UNROLL(8) for (int c = 0; c < n; ++c) {
        UNROLL(2) for (int v = 0; v < VECS; ++v) {
            rows_i sum = rows_set1(0);
            UNROLL(8) for (int i = 0; i < n_pairs; ++i) {
                int32_t pair;
                memcpy(&pair, x[c].sums + 2 * i, sizeof(pair));
                sum = rows_dot_words(sum, w->t[i][v], rows_set1(pair));
                if (f.minima && starts) {
                    acc[c][v] = rows_dot_words(acc[c][v], w->o[i][v], rows_set1(pair));
                }
            }
            const rows_i32 dots = (rows_i32) acc[c][v] - (rows_i32) sum * (f.minima ? 0 : f.offset);
            rows_f         block = rows_float((rows_i) dots) * w->d[v];
            if (f.minima) {
                block = rows_fma(rows_float(sum), w->m[v], block);
            }
            rows_f * out = &sums[c * VECS + v];
            *out = rows_fma(block, rows_set1_f(x[c].e), *out);
        }
    }
}

SIMD_INLINE void multiply_tile(const struct row_block * w, const struct column_block * x, int64_t n,
        struct format f, rows_f * sums) {
    switch (n) {
        case 1: multiply_columns(w, x, 1, f, sums); break;
        case 2: multiply_columns(w, x, 2, f, sums); break;
#    if PRODUCT_512 || PRODUCT_NEON
        case 3: multiply_columns(w, x, 3, f, sums); break;
#    endif
#    if PRODUCT_512
        case 4: multiply_columns(w, x, 4, f, sums); break;
        case 5: multiply_columns(w, x, 5, f, sums); break;
#    endif
        default: multiply_columns(w, x, COLUMNS, f, sums); break;
    }
}

// GCC would spill registers if it inlined these.
#    define MULTIPLY(name, type)                                               \
        static __attribute__((noinline)) void name(const struct row_block * w, \
                const struct column_block * x, int64_t n, rows_f * sums) {     \
            multiply_tile(w, x, n, format_of(type), sums);                     \
        }
MULTIPLY(tile_q4_k, GGML_TYPE_Q4_K)
MULTIPLY(tile_q5_k, GGML_TYPE_Q5_K)
MULTIPLY(tile_q6_k, GGML_TYPE_Q6_K)
MULTIPLY(tile_iq4_xs, GGML_TYPE_IQ4_XS)

// How a type is unpacked and multiplied.
struct k_type {
    void (*unpack)(const char * const p[HEIGHT], int v, struct row_block * out);
    void (*multiply)(
            const struct row_block * w, const struct column_block * x, int64_t n, rows_f * sums);
};

static struct k_type k_type_of(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q6_K: return (struct k_type) { unpack_q6_k, tile_q6_k };
        case GGML_TYPE_Q5_K: return (struct k_type) { unpack_q5_k, tile_q5_k };
        case GGML_TYPE_IQ4_XS: return (struct k_type) { unpack_iq4_xs, tile_iq4_xs };
        default: return (struct k_type) { unpack_q4_k, tile_q4_k };
    }
}

static void multiply_strip(const struct strip * s) {
    const struct product_part * p = s->part;
    struct row_block            w;
    rows_f                      sums[WIDTH * VECS];
    memset(sums, 0, (size_t) p->n_columns * VECS * sizeof(rows_f));
    const struct k_type type = k_type_of(p->type);
    const int64_t       block_size = (int64_t) ggml_type_size(p->type);
    const int64_t       size = VECS * HEIGHT * block_size; // of a block of all rows
    const int64_t       tiles = (p->n_columns + COLUMNS - 1) / COLUMNS;
    for (int64_t b = 0; b < p->K / QK_K; ++b) {
        const struct column_block * x =
                (const struct column_block *) (const void *) p->columns + b * p->C + p->first;
        for (int v = 0; v < VECS; ++v) {
            const char * rows[HEIGHT];
            for (int r = 0; r < HEIGHT; ++r) {
                rows[r] = s->rows[v * HEIGHT + r] + b * block_size;
            }
            type.unpack(rows, v, &w);
        }
        for (int64_t i = 0; i < tiles; ++i) {
            const int64_t c = i * COLUMNS;
            const int64_t n = p->n_columns - c < COLUMNS ? p->n_columns - c : COLUMNS;
            for (int64_t j = size * i / tiles / 64 * 64;
                    s->next != NULL && j < size * (i + 1) / tiles; j += 64) {
                __builtin_prefetch(s->next + b * size + j, 0, 2);
            }
            type.multiply(&w, x + c, n, sums + c * VECS);
        }
    }
    for (int64_t c = 0; c < p->n_columns; ++c) {
        memcpy(product_y(p, s->r, c), &sums[c * VECS], (size_t) s->n_rows * sizeof(float));
    }
}

// Up to this many columns, multiplying two rows at a time is faster than unpacking a strip. Q6_K
// takes longer to unpack than Q4_K.
static int64_t few_columns(enum ggml_type type) {
    switch (PRODUCT_AVX2 ? type : GGML_TYPE_COUNT) {
        case GGML_TYPE_Q4_K: return PRODUCT_512 ? 3 : 12;
        case GGML_TYPE_Q6_K: return PRODUCT_512 ? 6 : 12;
        default: return 0;
    }
}

static void multiply(const struct product_part * part) {
#    if PRODUCT_AVX2
    if (part->n_columns <= few_columns(part->type)) {
        product_rows_k(part);
        return;
    }
#    endif
    multiply_strips(part, VECS * HEIGHT, multiply_strip);
}

// For few columns of the other types, ggml's dot products are faster on x86.
static bool supports(const struct ggml_tensor * dst) {
    return dst->ne[1] > (PRODUCT_NEON          ? 0
                                : PRODUCT_VNNI ? 1
                                               : 12) ||
           few_columns(dst->src[0]->type) > 0;
}

const struct product_kernel product_k = {
    .name = "k",
    .types = PRODUCT_TYPE(Q4_K) | PRODUCT_TYPE(Q5_K) | PRODUCT_TYPE(Q6_K) | PRODUCT_TYPE(IQ4_XS),
    .supports = supports,
    .experts = true,
    .block = QK_K,
    .block_size = sizeof(struct column_block),
    .by_block = true,
    .round = round_blocks,
    .private_max = 16384,
    .height = VECS * HEIGHT,
    .slice_rows = 4 * VECS * HEIGHT,
    .slice_columns = WIDTH,
    .min_slice_size = 8192,
    .multiply = multiply,
};

#endif
