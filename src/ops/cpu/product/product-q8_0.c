// Weights in blocks of 32 (Q8_0, Q4_0, Q5_0, IQ4_NL, MXFP4) times any number of columns.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// A vector holds four weights of each of HEIGHT rows, as w + o: the sum over a block begins with
// −o Σ x[k, c] instead of 0. On ARM only Q4_0 has an offset, because weights may have a sign. The
// same is true with AVX2, where the products of Q4_0 add up in 16 bits. The weights and columns of
// the other types become numbers of 16 bits there, two of each row in a vector. That costs a single
// column too much, so a few columns get the sign of the weights, which become positive.

#include "product.h"

#if PRODUCT_BYTES

#    include "product-bytes.h"
#    include "product-round.h"

enum {
    QK = 32,                       // weights of a block
    WIDE = PRODUCT_SUM_32 ? 1 : 2, // bytes of a weight that is kept, at most
    PART = 32 / WIDE,              // blocks of a row that stay in the first-level cache, transposed

    // a register tile
    VECS = PRODUCT_512 ? 1 : 2, // vectors of rows
    COLUMNS = PRODUCT_512 ? 8 : 4,
};

// A block of a column.
struct column_block {
    float   e;        // x = e q
    int32_t sum;      // −o Σ q
    int32_t q[FOURS]; // four numbers in each
#    if !PRODUCT_SUM_32
    int32_t pairs[2 * FOURS]; // two numbers in each, of 16 bits
#    endif
};

// A part of the rows of a strip.
struct row_part {
    rows_i   w[PART][WIDE * FOURS][VECS]; // w + o: four weights of each row, or two
    uint16_t d[PART][VECS * HEIGHT];      // F16; BF16 of MXFP4
};

SIMD_INLINE int64_t size_of(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_0: return sizeof(block_q8_0);
        case GGML_TYPE_Q5_0: return sizeof(block_q5_0);
        case GGML_TYPE_MXFP4: return sizeof(block_mxfp4);
        default: return sizeof(block_q4_0); // and IQ4_NL
    }
}

SIMD_INLINE int offset_of(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return 8;
        case GGML_TYPE_Q5_0: return PRODUCT_VNNI ? 16 : 0;
        case GGML_TYPE_MXFP4: return PRODUCT_VNNI ? 12 : 0;
        default: return PRODUCT_VNNI ? 128 : 0;
    }
}

// The columns of a strip: no more than a tile, whose weights are not kept; the first tile of many,
// which keeps them; and those that follow.
enum tile { ONLY, FIRST, LATER };

// How products are computed: of four bytes of each row, of four with signs, or of two numbers
enum way { BYTES, SIGNED, WORDS };

SIMD_INLINE enum way way_of(enum ggml_type type, enum tile tile) {
    return PRODUCT_SUM_32 || type == GGML_TYPE_Q4_0 ? BYTES : tile == ONLY ? SIGNED : WORDS;
}

// ---- Columns ------------------------------------------------------------------------------------

#    if !PRODUCT_SUM_32
// Bytes 0 and 2 of four as numbers of 16 bits, and bytes 1 and 3
SIMD_INLINE __m256i even_bytes(__m256i x) {
    return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
}
SIMD_INLINE __m256i odd_bytes(__m256i x) {
    return _mm256_srai_epi16(x, 8);
}
#    endif

static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    const int offset = offset_of(type);
    for (int64_t b = 0; b < n; ++b, x += QK, out += stride) {
        struct column_block * block = (struct column_block *) (void *) out;
        int32_t               sums[FOURS];
        round_block(x, &block->e, block->q);
        sum_fours(block->q, sums);
        block->sum = 0;
        for (int i = 0; i < FOURS; ++i) {
            block->sum -= offset * sums[i];
        }
#    if !PRODUCT_SUM_32
        const __m256i q = _mm256_loadu_si256((const __m256i *) block->q);
        const __m256i even = even_bytes(q), odd = odd_bytes(q);
        // unpack works in each 128 bits
        const __m256i low = _mm256_unpacklo_epi32(even, odd);
        const __m256i high = _mm256_unpackhi_epi32(even, odd);
        __m256i *     pairs = (__m256i *) block->pairs;
        _mm256_storeu_si256(pairs, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256(pairs + 1, _mm256_permute2x128_si256(low, high, 0x31));
#    endif
    }
}

// ---- Products -----------------------------------------------------------------------------------

// Block b of the rows → w[i]: weights 4 i … 4 i + 3 of each row, plus the offset of the type
SIMD_INLINE void unpack(
        const char * const rows[], int64_t b, enum ggml_type type, rows_i w[FOURS]) {
    // what codes of MXFP4 stand for, times 2
    static const int8_t mxfp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
    const int64_t       size = size_of(type);
    const uint8_t       offset = (uint8_t) offset_of(type);
    if (type == GGML_TYPE_Q8_0) {
        rows_load_32(rows, b * size + (int64_t) offsetof(block_q8_0, qs), w);
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            w[i] = (rows_i) ((rows_u8) w[i] + offset);
        }
        return;
    }
    // the codes are the end of a block; weights 16 … 31 are the high halves of the bytes
    rows_load_16(rows, (b + 1) * size - QK / 2, w);
    UNROLL(4) for (int i = 0; i < 4; ++i) {
        w[i + 4] = (rows_i) ((rows_u8) w[i] >> 4);
        w[i] = (rows_i) ((rows_u8) w[i] & 15);
    }
    if (type == GGML_TYPE_IQ4_NL || type == GGML_TYPE_MXFP4) {
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            const rows_i x = rows_lookup(type == GGML_TYPE_MXFP4 ? mxfp4 : values_iq4, w[i]);
            w[i] = (rows_i) ((rows_u8) x + offset);
        }
    } else if (type == GGML_TYPE_Q5_0) {
        uint32_t bits[HEIGHT]; // the fifth of each weight
        rows_u32 fifth;
        UNROLL(16) for (int r = 0; r < HEIGHT; ++r) {
            memcpy(&bits[r], rows[r] + b * size + offsetof(block_q5_0, qh), sizeof(bits[r]));
        }
        memcpy(&fifth, bits, sizeof(fifth));
        UNROLL(8) for (int i = 0; i < FOURS; ++i) { // bit j of four goes to bit 4 of byte j
            const rows_u32 high = ((fifth >> 4 * i & 15) * 0x02040810) & 0x10101010;
            w[i] = (rows_i) ((rows_u8) ((rows_u32) w[i] | high) + (uint8_t) (offset - 16));
        }
    }
}

// Vector i of the weights of a block
SIMD_INLINE rows_i weights(const rows_i w[FOURS], int i, enum way way) {
#    if !PRODUCT_SUM_32
    if (way == WORDS) {
        return i % 2 == 0 ? even_bytes(w[i / 2]) : odd_bytes(w[i / 2]);
    }
#    endif
    (void) way;
    return w[i];
}

// The sum of products of a block: it begins with `sum` in 32 bits; in 16, that is added at the end.
SIMD_INLINE rows_i dot_begin(int32_t sum) {
    return rows_set1(PRODUCT_SUM_32 ? sum : 0);
}

// Adds the products of vector i of the weights.
SIMD_INLINE rows_i dot_add(
        rows_i dot, rows_i w, const struct column_block * x, int i, enum way way) {
#    if !PRODUCT_SUM_32
    if (way == WORDS) {
        return rows_dot_words(dot, w, rows_set1(x->pairs[i]));
    }
    if (way == SIGNED) {
        return rows_dot_words(dot, rows_dot_signed(w, x->q[i]), rows_set1(0x00010001));
    }
#    endif
    (void) way;
    return rows_dot_bytes(dot, w, x->q, i);
}

SIMD_INLINE rows_i dot_end(rows_i dot, int32_t sum, enum way way) {
    return PRODUCT_SUM_32 || way != BYTES
                   ? dot
                   : rows_dot_words(rows_set1(sum), dot, rows_set1(0x00010001));
}

// y[.., c] (+)= Σ_b … for blocks b0 … b0 + n_blocks and n columns from column c0 of the part on.
SIMD_INLINE void multiply_columns(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, enum tile tile, enum ggml_type type) {
    const struct product_part * p = s->part;
    const int64_t               step = p->K / QK; // blocks between columns
    const struct column_block * x =
            (const struct column_block *) (const void *) p->columns + (p->first + c0) * step + b0;
    const int64_t  size = size_of(type);
    const enum way way = way_of(type, tile);
    const int      n_weights = way == WORDS ? 2 * FOURS : FOURS; // vectors
    rows_f         acc[COLUMNS][VECS];
    UNROLL(8) for (int c = 0; c < n; ++c) {
        UNROLL(2) for (int v = 0; v < VECS; ++v) {
            acc[c][v] = b0 > 0 ? rows_load(product_y(p, s->r + v * HEIGHT, c0 + c),
                                         s->n_rows - v * HEIGHT)
                               : rows_zero();
        }
    }
    for (int64_t b = 0; b < n_blocks; ++b, ++x) {
        rows_i dot[COLUMNS][VECS];
        if (tile != LATER && s->next != NULL) { // these rows are neighbors in memory
            for (int64_t i = 0; i < VECS * HEIGHT * size; i += 64) {
                __builtin_prefetch(s->next + (b0 + b) * VECS * HEIGHT * size + i, 0, 2);
            }
        }
        UNROLL(8) for (int c = 0; c < n; ++c) {
            UNROLL(2) for (int v = 0; v < VECS; ++v) {
                dot[c][v] = dot_begin(x[c * step].sum);
            }
        }
        if (tile != LATER) {
            UNROLL(2) for (int v = 0; v < VECS; ++v) {
                rows_i w[FOURS];
                unpack(s->rows + v * HEIGHT, b0 + b, type, w);
                UNROLL(16) for (int i = 0; i < n_weights; ++i) {
                    const rows_i u = weights(w, i, way);
                    if (tile == FIRST) {
                        rows->w[b][i][v] = u;
                    }
                    UNROLL(8) for (int c = 0; c < n; ++c) {
                        dot[c][v] = dot_add(dot[c][v], u, &x[c * step], i, way);
                    }
                }
            }
        } else {
            UNROLL(16) for (int i = 0; i < n_weights; ++i) {
                UNROLL(8) for (int c = 0; c < n; ++c) {
                    UNROLL(2) for (int v = 0; v < VECS; ++v) {
                        dot[c][v] = dot_add(dot[c][v], rows->w[b][i][v], &x[c * step], i, way);
                    }
                }
            }
        }
        UNROLL(2) for (int v = 0; v < VECS; ++v) {
            const uint16_t * factors = rows->d[b] + v * HEIGHT;
            const rows_f     d =
                    type == GGML_TYPE_MXFP4 ? rows_from_bf16(factors) : rows_from_f16(factors);
            UNROLL(8) for (int c = 0; c < n; ++c) {
                const struct column_block * u = &x[c * step];
                acc[c][v] = rows_add(acc[c][v], dot_end(dot[c][v], u->sum, way), u->e, d);
            }
        }
    }
    UNROLL(8) for (int c = 0; c < n; ++c) {
        UNROLL(2) for (int v = 0; v < VECS; ++v) {
            rows_store(product_y(p, s->r + v * HEIGHT, c0 + c), acc[c][v], s->n_rows - v * HEIGHT);
        }
    }
}

SIMD_INLINE void multiply_tile(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c, enum tile tile, enum ggml_type type) {
    switch (s->part->n_columns - c) {
        case 1: multiply_columns(s, rows, b0, n_blocks, c, 1, tile, type); break;
        case 2: multiply_columns(s, rows, b0, n_blocks, c, 2, tile, type); break;
        case 3: multiply_columns(s, rows, b0, n_blocks, c, 3, tile, type); break;
#    if PRODUCT_512
        case 4: multiply_columns(s, rows, b0, n_blocks, c, 4, tile, type); break;
        case 5: multiply_columns(s, rows, b0, n_blocks, c, 5, tile, type); break;
        case 6: multiply_columns(s, rows, b0, n_blocks, c, 6, tile, type); break;
        case 7: multiply_columns(s, rows, b0, n_blocks, c, 7, tile, type); break;
#    endif
        default: multiply_columns(s, rows, b0, n_blocks, c, COLUMNS, tile, type); break;
    }
}

// The factors of n blocks of a row, which begin with them: d[i][0]
SIMD_INLINE void copy_factors(const char * row, int64_t n, enum ggml_type type, uint16_t * d) {
    const int64_t size = size_of(type);
    int64_t       i = 0;
    for (; type == GGML_TYPE_MXFP4 && i < n; ++i, row += size, d += VECS * HEIGHT) {
        const uint8_t e = (uint8_t) *row; // the factor is 2^(e − 128)
        *d = (uint16_t) (e < 2 ? 0x20 << e : (e - 1) << 7);
    }
    for (; i + 8 <= n; i += 8, row += 8 * size, d += 8 * VECS * HEIGHT) {
        UNROLL(8) for (int j = 0; j < 8; ++j) {
            memcpy(d + j * VECS * HEIGHT, row + j * size, sizeof(uint16_t));
        }
    }
    for (; i < n; ++i, row += size, d += VECS * HEIGHT) {
        memcpy(d, row, sizeof(uint16_t));
    }
}

SIMD_INLINE void multiply_strip(const struct strip * s, enum ggml_type type) {
    const int64_t   size = size_of(type);
    const int64_t   n_blocks = s->part->K / QK;
    struct row_part rows;
    for (int64_t b = 0; b < n_blocks; b += PART) {
        const int64_t n = n_blocks - b < PART ? n_blocks - b : PART;
        for (int r = 0; r < VECS * HEIGHT; ++r) {
            copy_factors(s->rows[r] + b * size, n, type, &rows.d[0][r]);
        }
        if (s->part->n_columns <= COLUMNS) {
            multiply_tile(s, &rows, b, n, 0, ONLY, type);
            continue;
        }
        multiply_columns(s, &rows, b, n, 0, COLUMNS, FIRST, type);
        for (int64_t c = COLUMNS; c < s->part->n_columns; c += COLUMNS) {
            multiply_tile(s, &rows, b, n, c, LATER, type);
        }
    }
}

#    define MULTIPLY(name, type)                   \
        static void name(const struct strip * s) { \
            multiply_strip(s, type);               \
        }
MULTIPLY(multiply_q8_0, GGML_TYPE_Q8_0)
MULTIPLY(multiply_q4_0, GGML_TYPE_Q4_0)
MULTIPLY(multiply_q5_0, GGML_TYPE_Q5_0)
MULTIPLY(multiply_iq4_nl, GGML_TYPE_IQ4_NL)
MULTIPLY(multiply_mxfp4, GGML_TYPE_MXFP4)

static void multiply(const struct product_part * part) {
    switch (part->type) {
        case GGML_TYPE_Q8_0: multiply_strips(part, VECS * HEIGHT, multiply_q8_0); break;
        case GGML_TYPE_Q5_0: multiply_strips(part, VECS * HEIGHT, multiply_q5_0); break;
        case GGML_TYPE_IQ4_NL: multiply_strips(part, VECS * HEIGHT, multiply_iq4_nl); break;
        case GGML_TYPE_MXFP4: multiply_strips(part, VECS * HEIGHT, multiply_mxfp4); break;
        default: multiply_strips(part, VECS * HEIGHT, multiply_q4_0); break;
    }
}

static bool supports(const struct ggml_tensor * dst) {
    (void) dst;
    return true;
}

const struct product_kernel product_q8_0 = {
    .name = "q8_0",
    .types = PRODUCT_TYPE(Q8_0) | PRODUCT_TYPE(Q4_0) | PRODUCT_TYPE(Q5_0) | PRODUCT_TYPE(IQ4_NL) |
             PRODUCT_TYPE(MXFP4),
    .supports = supports,
    .experts = true,
    .block = QK,
    .block_size = sizeof(struct column_block),
    .round = round_blocks,
    .private_max = 16384,
    .height = VECS * HEIGHT,
    .slice_rows = 64,
    .slice_columns = 256,
    .min_slice_size = 8192,
    .multiply = multiply,
};

#endif
