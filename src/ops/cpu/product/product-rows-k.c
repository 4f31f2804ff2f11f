// Rows in blocks of 256 weights (Q4_K, Q6_K) times a few columns. The equation is in product-k.h.
//
// Two rows at a time go through their blocks. A vector of 512 bits holds 32 weights of both rows;
// without AVX-512, each row has a vector of its own. The integers of a block are added across
// these vectors for 8 rows at once, which takes a third of the instructions that it takes for two.

#include "product-k.h"

#if PRODUCT_AVX2

#    include "simd.h"

#    include "ggml-cpu-impl.h"
#    define GGML_COMMON_DECL_C
#    include "ggml-common.h"

// ---- Vectors of both rows -----------------------------------------------------------------------

#    if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
            defined(__AVX512VNNI__)
typedef __m512i both;
SIMD_INLINE both both_zero(void) {
    return _mm512_setzero_si512();
}
SIMD_INLINE both both_set(__m256i a, __m256i b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
SIMD_INLINE both both_and(both x, int m) {
    return _mm512_and_si512(x, _mm512_set1_epi8((char) m));
}
SIMD_INLINE both both_or(both x, both y) {
    return _mm512_or_si512(x, y);
}
SIMD_INLINE both both_left(both x, int n) {
    return _mm512_slli_epi16(x, (unsigned) n);
}
SIMD_INLINE both both_right(both x, int n) {
    return _mm512_srli_epi16(x, (unsigned) n);
}
SIMD_INLINE both both_sub(both x, both y) {
    return _mm512_sub_epi32(x, y);
}
SIMD_INLINE both both_times_32(both x) {
    return _mm512_slli_epi32(x, 5);
}
// The lower or upper 128 bits of each row, twice
SIMD_INLINE both both_low(both x) {
    return _mm512_shuffle_i64x2(x, x, 0xa0);
}
SIMD_INLINE both both_high(both x) {
    return _mm512_shuffle_i64x2(x, x, 0xf5);
}
SIMD_INLINE both both_shuffle(both x, __m256i mask) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i64x4(mask));
}
SIMD_INLINE both both_madd(both x, __m256i y) {
    return _mm512_madd_epi16(x, _mm512_broadcast_i64x4(y));
}
SIMD_INLINE both both_add(both x, both y) {
    return _mm512_add_epi32(x, y);
}
// s Σ w q + t Σ v p: sums of four products of bytes, scaled
SIMD_INLINE both both_dot(both w, __m256i q, both s, both v, __m256i p, both t) {
    const __m512i a = _mm512_maddubs_epi16(w, _mm512_broadcast_i64x4(q));
    const __m512i b = _mm512_maddubs_epi16(v, _mm512_broadcast_i64x4(p));
    return _mm512_dpwssd_epi32(_mm512_madd_epi16(a, s), b, t);
}
// The lower 128 bits for the first row and the upper ones for the second, twice
SIMD_INLINE both both_spread(__m256i x) {
    return _mm512_shuffle_i64x2(_mm512_castsi256_si512(x), _mm512_castsi256_si512(x), 0x50);
}
// The sums of 8 rows
SIMD_INLINE __m256i both_fold(const both v[4]) {
    __m512i four[2]; // sums of each of 4 rows
    for (int i = 0; i < 2; ++i) {
        four[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x88),
                _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0xdd));
    }
    const __m512i two = _mm512_add_epi32(
            _mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[0], four[1]));
    const __m512i one = _mm512_add_epi32(two, _mm512_shuffle_epi32(two, 0x4e));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(
            _mm512_castsi256_si512(_mm256_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13)), one));
}
#    else
typedef struct {
    __m256i a, b;
} both;
SIMD_INLINE both both_zero(void) {
    return (both) { _mm256_setzero_si256(), _mm256_setzero_si256() };
}
SIMD_INLINE both both_set(__m256i a, __m256i b) {
    return (both) { a, b };
}
SIMD_INLINE both both_and(both x, int m) {
    const __m256i mask = _mm256_set1_epi8((char) m);
    return (both) { _mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask) };
}
SIMD_INLINE both both_or(both x, both y) {
    return (both) { _mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b) };
}
SIMD_INLINE both both_left(both x, int n) {
    return (both) { _mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n) };
}
SIMD_INLINE both both_right(both x, int n) {
    return (both) { _mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n) };
}
SIMD_INLINE both both_sub(both x, both y) {
    return (both) { _mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b) };
}
SIMD_INLINE both both_times_32(both x) {
    return (both) { _mm256_slli_epi32(x.a, 5), _mm256_slli_epi32(x.b, 5) };
}
SIMD_INLINE both both_low(both x) {
    return (both) { _mm256_permute2x128_si256(x.a, x.a, 0x00),
        _mm256_permute2x128_si256(x.b, x.b, 0x00) };
}
SIMD_INLINE both both_high(both x) {
    return (both) { _mm256_permute2x128_si256(x.a, x.a, 0x11),
        _mm256_permute2x128_si256(x.b, x.b, 0x11) };
}
SIMD_INLINE both both_shuffle(both x, __m256i mask) {
    return (both) { _mm256_shuffle_epi8(x.a, mask), _mm256_shuffle_epi8(x.b, mask) };
}
SIMD_INLINE both both_madd(both x, __m256i y) {
    return (both) { _mm256_madd_epi16(x.a, y), _mm256_madd_epi16(x.b, y) };
}
SIMD_INLINE both both_add(both x, both y) {
    return (both) { _mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b) };
}
SIMD_INLINE __m256i dot_one(__m256i w, __m256i q, __m256i s) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), s);
}
SIMD_INLINE both both_dot(both w, __m256i q, both s, both v, __m256i p, both t) {
    return (both) { _mm256_add_epi32(dot_one(w.a, q, s.a), dot_one(v.a, p, t.a)),
        _mm256_add_epi32(dot_one(w.b, q, s.b), dot_one(v.b, p, t.b)) };
}
SIMD_INLINE both both_spread(__m256i x) {
    return (both) { _mm256_permute2x128_si256(x, x, 0x00), _mm256_permute2x128_si256(x, x, 0x11) };
}
SIMD_INLINE __m256i both_fold(const both v[4]) {
    __m256i four[2]; // two sums of each of 4 rows
    for (int i = 0; i < 2; ++i) {
        four[i] = _mm256_hadd_epi32(_mm256_hadd_epi32(v[2 * i].a, v[2 * i].b),
                _mm256_hadd_epi32(v[2 * i + 1].a, v[2 * i + 1].b));
    }
    return _mm256_add_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
            _mm256_permute2x128_si256(four[0], four[1], 0x31));
}
#    endif

SIMD_INLINE both both_load(const void * a, const void * b) {
    return both_set(_mm256_loadu_si256(a), _mm256_loadu_si256(b));
}

// ---- Products -----------------------------------------------------------------------------------

enum {
    PAIRS = 4,
    GROUP = 2 * PAIRS, // rows
    TILE = 4,          // columns
    PART = 8,          // blocks
};

// What a group of rows and a tile of columns have in some of their blocks.
struct sums {
    both     dots[PART][TILE][PAIRS];
    __m256i  minima[PART][TILE][PAIRS]; // four sums of each row
    uint16_t d[PART][GROUP], m[PART][GROUP];
};

// Two rows and the columns they are multiplied with, from the same block on.
struct pair {
    const char *                rows[2];
    const char *                next[2]; // where the next blocks of these rows begin
    const struct column_block * x;
    int64_t                     stride; // from a block of a column to the next
    int64_t                     n_blocks;
    int                         i; // number of the pair
};

SIMD_INLINE __m256i load_q(const struct column_block * x, int i) {
    return _mm256_loadu_si256((const __m256i *) x->q + i);
}

// Block b of both rows, when it is needed next
SIMD_INLINE void prefetch(const struct pair * p, int64_t b, int size) {
    for (int i = 0; i < size; i += 64) {
        _mm_prefetch(p->next[0] + b * size + i, _MM_HINT_T0);
        _mm_prefetch(p->next[1] + b * size + i, _MM_HINT_T0);
    }
}

// 8 scales of 6 bits, then 8 minima, of a block of each row. After d and m, a block has three times
// four bytes u, v, w. The scales are u (low 6 bits), then the low 4 bits of w below the high 2 of
// u; the minima are v, then the high 4 bits of w below the high 2 of v.
SIMD_INLINE __m256i scales_and_minima(const block_q4_K * v0, const block_q4_K * v1) {
    const __m256i x = _mm256_set_m128i(_mm_loadu_si128((const __m128i *) (const void *) v1),
            _mm_loadu_si128((const __m128i *) (const void *) v0));
    const int     low6 = 0x3f3f3f3f, low4 = 0x0f0f0f0f, high2 = 0x30303030;
    const __m256i uwvw = _mm256_shuffle_epi32(x, 0xed), uuvv = _mm256_shuffle_epi32(x, 0xa5);
    const __m256i low = _mm256_srlv_epi32(uwvw, _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_setr_epi32(low6, low4, low6, low4, low6,
                                                         low4, low6, low4)),
            _mm256_and_si256(_mm256_srli_epi32(uuvv, 2),
                    _mm256_setr_epi32(0, high2, 0, high2, 0, high2, 0, high2)));
}

// Masks of shuffles: byte i as 16 bits, everywhere; bytes 8 … 15 as 16 bits; and 16 bits, number
// `low` in the lower 128 bits, `high` in the upper ones
#    define FOUR(x)         x, x, x, x
#    define COPY(low, high) { FOUR(low), FOUR(low), FOUR(high), FOUR(high) }
#    define BYTE(i)         COPY(INT16_MIN + (i), INT16_MIN + (i))
#    define HALF(i)         ((i) * 0x202 + 0x100)
static const int16_t copy_byte[8][16] = { BYTE(0), BYTE(1), BYTE(2), BYTE(3), BYTE(4), BYTE(5),
    BYTE(6), BYTE(7) };
static const int16_t copy_half[4][16] = { COPY(HALF(0), HALF(1)), COPY(HALF(2), HALF(3)),
    COPY(HALF(4), HALF(5)), COPY(HALF(6), HALF(7)) };

SIMD_INLINE both copy_scale(both scales, const int16_t * mask) {
    return both_shuffle(scales, _mm256_loadu_si256((const __m256i *) mask));
}

// Q4_K: two rows and n columns
SIMD_INLINE void add_4(const struct pair * p, struct sums * out, int n) {
    const __m256i upper = _mm256_broadcastsi128_si256(
            _mm_setr_epi16(INT16_MIN + 8, INT16_MIN + 9, INT16_MIN + 10, INT16_MIN + 11,
                    INT16_MIN + 12, INT16_MIN + 13, INT16_MIN + 14, INT16_MIN + 15));
    for (int64_t b = 0; b < p->n_blocks; ++b) {
        const block_q4_K *          v0 = (const block_q4_K *) (const void *) p->rows[0] + b;
        const block_q4_K *          v1 = (const block_q4_K *) (const void *) p->rows[1] + b;
        const struct column_block * x = p->x + b * p->stride;
        prefetch(p, b, (int) sizeof(block_q4_K));
        const __m256i packed = scales_and_minima(v0, v1);
        const both    scales = both_spread(packed);
        const __m256i t = _mm256_shuffle_epi8(packed, upper);
        both          sum[TILE];
        UNROLL(4) for (int c = 0; c < n; ++c) {
            sum[c] = both_zero();
        }
        UNROLL(4) for (int j = 0; j < QK_K / 64; ++j) {
            const both w = both_load(v0->qs + 32 * j, v1->qs + 32 * j);
            const both low = both_and(w, 15), high = both_and(both_right(w, 4), 15);
            const both scale_low = copy_scale(scales, copy_byte[2 * j]);
            const both scale_high = copy_scale(scales, copy_byte[2 * j + 1]);
            UNROLL(4) for (int c = 0; c < n; ++c) {
                sum[c] = both_add(sum[c], both_dot(low, load_q(&x[c], 2 * j), scale_low, high,
                                                  load_q(&x[c], 2 * j + 1), scale_high));
            }
        }
        UNROLL(4) for (int c = 0; c < n; ++c) {
            out->dots[b][c][p->i] = sum[c];
            out->minima[b][c][p->i] = _mm256_madd_epi16(
                    t, _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) x[c].sums)));
        }
        out->d[b][2 * p->i] = v0->d;
        out->d[b][2 * p->i + 1] = v1->d;
        out->m[b][2 * p->i] = v0->dmin;
        out->m[b][2 * p->i + 1] = v1->dmin;
    }
}

// Q6_K
SIMD_INLINE void add_6(const struct pair * p, struct sums * out, int n) {
    for (int64_t b = 0; b < p->n_blocks; ++b) {
        const block_q6_K *          v0 = (const block_q6_K *) (const void *) p->rows[0] + b;
        const block_q6_K *          v1 = (const block_q6_K *) (const void *) p->rows[1] + b;
        const struct column_block * x = p->x + b * p->stride;
        prefetch(p, b, (int) sizeof(block_q6_K));
        const both scales =
                both_set(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v0->scales)),
                        _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *) v1->scales)));
        both sum[TILE];
        UNROLL(4) for (int c = 0; c < n; ++c) {
            // weights are stored plus 32
            sum[c] = both_sub(both_zero(),
                    both_times_32(
                            both_madd(scales, _mm256_loadu_si256((const __m256i *) x[c].sums))));
        }
        UNROLL(2) for (int j = 0; j < QK_K / 128; ++j) {
            const both a = both_load(v0->ql + 64 * j, v1->ql + 64 * j);
            const both e = both_load(v0->ql + 64 * j + 32, v1->ql + 64 * j + 32);
            const both h = both_load(v0->qh + 32 * j, v1->qh + 32 * j);
            const both eight = j == 0 ? both_low(scales) : both_high(scales);
            const both w[4] = {
                both_or(both_and(a, 15), both_and(both_left(h, 4), 48)),
                both_or(both_and(e, 15), both_and(both_left(h, 2), 48)),
                both_or(both_and(both_right(a, 4), 15), both_and(h, 48)),
                both_or(both_and(both_right(e, 4), 15), both_and(both_right(h, 2), 48)),
            };
            UNROLL(2) for (int i = 0; i < 4; i += 2) {
                const both scale = copy_scale(eight, copy_half[i]);
                const both next = copy_scale(eight, copy_half[i + 1]);
                UNROLL(4) for (int c = 0; c < n; ++c) {
                    sum[c] =
                            both_add(sum[c], both_dot(w[i], load_q(&x[c], 4 * j + i), scale,
                                                     w[i + 1], load_q(&x[c], 4 * j + i + 1), next));
                }
            }
        }
        UNROLL(4) for (int c = 0; c < n; ++c) {
            out->dots[b][c][p->i] = sum[c];
        }
        out->d[b][2 * p->i] = v0->d;
        out->d[b][2 * p->i + 1] = v1->d;
    }
}

SIMD_INLINE __m256 load_f16(const uint16_t * p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
}

// The sums of 8 rows, of which a vector has four of each of two
SIMD_INLINE __m256i fold_minima(const __m256i v[PAIRS]) {
    const __m256i sums =
            _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// y[.., c] += … for the blocks of a part
SIMD_INLINE void add_part(
        const struct sums * s, const struct pair * p, int n, bool minima, __m256 y[TILE]) {
    for (int64_t b = 0; b < p->n_blocks; ++b) {
        const __m256 d = load_f16(s->d[b]);
        UNROLL(4) for (int c = 0; c < n; ++c) {
            __m256 block = _mm256_mul_ps(_mm256_cvtepi32_ps(both_fold(s->dots[b][c])), d);
            if (minima) {
                block = _mm256_fnmadd_ps(
                        _mm256_cvtepi32_ps(fold_minima(s->minima[b][c])), load_f16(s->m[b]), block);
            }
            y[c] = _mm256_fmadd_ps(block, _mm256_set1_ps(p->x[b * p->stride + c].e), y[c]);
        }
    }
}

// A group of rows from row r on, and n columns from column c on
SIMD_INLINE void multiply_group(
        const struct product_part * part, int64_t r, int64_t c, int n, bool q4) {
    const int64_t size = q4 ? (int64_t) sizeof(block_q4_K) : (int64_t) sizeof(block_q6_K);
    const int64_t n_rows = part->n_rows - r < GROUP ? part->n_rows - r : GROUP;
    const int64_t n_blocks = part->K / QK_K, n_parts = (n_blocks + PART - 1) / PART;
    __m256        y[TILE];
    UNROLL(4) for (int i = 0; i < n; ++i) {
        y[i] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < n_parts; ++i) {
        const int64_t b0 = i * n_blocks / n_parts, b1 = (i + 1) * n_blocks / n_parts;
        // these blocks are followed by the next ones of 8 rows, or by the first ones of the next 8
        const int64_t next = (i + 1 < n_parts ? b1 * size : GROUP * part->row_size);
        struct pair   p = {
              .x = (const struct column_block *) (const void *) part->columns + b0 * part->C +
                 part->first + c,
              .stride = part->C,
              .n_blocks = b1 - b0,
        };
        struct sums s;
        for (p.i = 0; p.i < PAIRS; ++p.i) {
            for (int j = 0; j < 2; ++j) { // rows past the end repeat the last one
                const int64_t k = 2 * p.i + j < n_rows ? 2 * p.i + j : n_rows - 1;
                const char *  row = part->rows + (r + k) * part->row_size;
                p.rows[j] = row + b0 * size;
                p.next[j] = row + next;
            }
            q4 ? add_4(&p, &s, n) : add_6(&p, &s, n);
        }
        add_part(&s, &p, n, q4, y);
    }
    UNROLL(4) for (int i = 0; i < n; ++i) {
        float rows[GROUP];
        _mm256_storeu_ps(rows, y[i]);
        memcpy(product_y(part, r, c + i), rows, (size_t) n_rows * sizeof(float));
    }
}

SIMD_INLINE void multiply_rows(const struct product_part * part, bool q4) {
    for (int64_t r = 0; r < part->n_rows; r += GROUP) {
        for (int64_t c = 0; c < part->n_columns; c += TILE) {
            switch (part->n_columns - c) {
                case 1: multiply_group(part, r, c, 1, q4); break;
                case 2: multiply_group(part, r, c, 2, q4); break;
                case 3: multiply_group(part, r, c, 3, q4); break;
                default: multiply_group(part, r, c, TILE, q4); break;
            }
        }
    }
}

void product_rows_k(const struct product_part * part) {
    if (part->type == GGML_TYPE_Q4_K) {
        multiply_rows(part, true);
    } else {
        multiply_rows(part, false);
    }
}

#endif
