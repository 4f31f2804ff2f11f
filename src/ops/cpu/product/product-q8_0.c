// Weights in blocks of 32 (Q8_0, Q4_0, Q5_0, IQ4_NL, MXFP4) times any number of columns.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// A vector holds four weights of each of HEIGHT rows, as w + o: the sum over a block begins with
// −o Σ x[k, c] instead of 0. With AVX2 only Q4_0 has an offset: products of larger numbers would
// not fit into 16 bits.

#include "product.h"

#if PRODUCT_AVX2

#    include "product-bytes.h"
#    include "product-round.h"

enum {
    QK = 32,   // weights of a block
    PART = 32, // blocks of a row that stay in the first-level cache, transposed

    COLUMNS = PRODUCT_VNNI ? 8 : 4, // of a register tile
};

// A block of a column.
struct column_block {
    int32_t q[FOURS]; // four numbers in each
    float   e;        // x = e q
    int32_t sum;      // −o Σ q
};

// A part of the rows of a strip.
struct row_part {
    rows_i   w[PART][FOURS];  // w + o: four weights of each row
    uint16_t d[PART][HEIGHT]; // F16; BF16 of MXFP4
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

// ---- Columns ------------------------------------------------------------------------------------

static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    const int offset = offset_of(type);
    for (int64_t b = 0; b < n; ++b, x += QK, out += stride) {
        struct column_block * block = (struct column_block *) (void *) out;
        block->e = round_block(x, (int8_t *) block->q);
        const __m256i fours = sum_fours(_mm256_loadu_si256((const __m256i *) block->q));
        __m128i       sum =
                _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        block->sum = -offset * _mm_cvtsi128_si32(sum);
    }
}

// ---- Products -----------------------------------------------------------------------------------

// Block b of the rows → w[i]: weights 4 i … 4 i + 3 of each row, plus the offset of the type
SIMD_INLINE void unpack(
        const char * const rows[], int64_t b, enum ggml_type type, rows_i w[FOURS]) {
    // what codes of 4 bits stand for
    static const int8_t iq4_nl[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53,
        69, 89, 113 };
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
            const rows_i x = rows_lookup(type == GGML_TYPE_MXFP4 ? mxfp4 : iq4_nl, w[i]);
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

// y[.., c] (+)= Σ_b … for blocks b0 … b0 + n_blocks and n columns from column c0 of the part on.
// The first tile of columns unpacks the weights and keeps them for the others.
SIMD_INLINE void multiply_columns(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, bool first, enum ggml_type type) {
    const struct product_part * p = s->part;
    const int64_t               step = p->K / QK; // blocks between columns
    const struct column_block * x =
            (const struct column_block *) (const void *) p->columns + (p->first + c0) * step + b0;
    const bool    keep = p->n_columns > COLUMNS;
    const int64_t size = size_of(type);
    const bool    is_signed = type != GGML_TYPE_Q4_0; // with AVX2
    rows_f        acc[COLUMNS];
    UNROLL(8) for (int c = 0; c < n; ++c) {
        acc[c] = b0 > 0 ? rows_load(product_y(p, s->r, c0 + c), s->n_rows) : rows_zero();
    }
    for (int64_t b = 0; b < n_blocks; ++b, ++x) {
        rows_i w[FOURS], dot[COLUMNS];
        if (first && s->next != NULL) { // these rows are neighbors in memory
            for (int64_t i = 0; i < HEIGHT * size; i += 64) {
                _mm_prefetch(s->next + (b0 + b) * HEIGHT * size + i, _MM_HINT_T1);
            }
        }
        if (first) {
            unpack(s->rows, b0 + b, type, w);
        }
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            if (!first) {
                w[i] = rows->w[b][i];
            } else if (keep) {
                rows->w[b][i] = w[i];
            }
        }
        UNROLL(8) for (int c = 0; c < n; ++c) {
            dot[c] = dot_begin(x[c * step].sum, is_signed);
        }
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            UNROLL(8) for (int c = 0; c < n; ++c) {
                dot[c] = dot_add(dot[c], w[i], x[c * step].q[i], is_signed);
            }
        }
        const rows_f d =
                type == GGML_TYPE_MXFP4 ? rows_from_bf16(rows->d[b]) : rows_from_f16(rows->d[b]);
        UNROLL(8) for (int c = 0; c < n; ++c) {
            const struct column_block * v = &x[c * step];
            acc[c] = rows_add(acc[c], dot_end(dot[c], v->sum, is_signed), v->e, d);
        }
    }
    UNROLL(8) for (int c = 0; c < n; ++c) {
        rows_store(product_y(p, s->r, c0 + c), acc[c], s->n_rows);
    }
}

SIMD_INLINE void multiply_tile(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c, bool first, enum ggml_type type) {
    switch (s->part->n_columns - c) {
        case 1: multiply_columns(s, rows, b0, n_blocks, c, 1, first, type); break;
        case 2: multiply_columns(s, rows, b0, n_blocks, c, 2, first, type); break;
        case 3: multiply_columns(s, rows, b0, n_blocks, c, 3, first, type); break;
#    if PRODUCT_VNNI
        case 4: multiply_columns(s, rows, b0, n_blocks, c, 4, first, type); break;
        case 5: multiply_columns(s, rows, b0, n_blocks, c, 5, first, type); break;
        case 6: multiply_columns(s, rows, b0, n_blocks, c, 6, first, type); break;
        case 7: multiply_columns(s, rows, b0, n_blocks, c, 7, first, type); break;
#    endif
        default: multiply_columns(s, rows, b0, n_blocks, c, COLUMNS, first, type); break;
    }
}

// The factors of n blocks of a row, which begin with them: d[i][0]
SIMD_INLINE void copy_factors(const char * row, int64_t n, enum ggml_type type, uint16_t * d) {
    const int64_t size = size_of(type);
    int64_t       i = 0;
    for (; type == GGML_TYPE_MXFP4 && i < n; ++i, row += size, d += HEIGHT) {
        const uint8_t e = (uint8_t) *row; // the factor is 2^(e − 128)
        *d = (uint16_t) (e < 2 ? 0x20 << e : (e - 1) << 7);
    }
    for (; i + 8 <= n; i += 8, row += 8 * size, d += 8 * HEIGHT) {
        UNROLL(8) for (int j = 0; j < 8; ++j) {
            memcpy(d + j * HEIGHT, row + j * size, sizeof(uint16_t));
        }
    }
    for (; i < n; ++i, row += size, d += HEIGHT) {
        memcpy(d, row, sizeof(uint16_t));
    }
}

SIMD_INLINE void multiply_strip(const struct strip * s, enum ggml_type type) {
    const int64_t   size = size_of(type);
    const int64_t   n_blocks = s->part->K / QK;
    struct row_part rows;
    for (int64_t b = 0; b < n_blocks; b += PART) {
        const int64_t n = n_blocks - b < PART ? n_blocks - b : PART;
        for (int r = 0; r < HEIGHT; ++r) {
            copy_factors(s->rows[r] + b * size, n, type, &rows.d[0][r]);
        }
        multiply_tile(s, &rows, b, n, 0, true, type);
        for (int64_t c = COLUMNS; c < s->part->n_columns; c += COLUMNS) {
            multiply_tile(s, &rows, b, n, c, false, type);
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
        case GGML_TYPE_Q8_0: multiply_strips(part, HEIGHT, multiply_q8_0); break;
        case GGML_TYPE_Q5_0: multiply_strips(part, HEIGHT, multiply_q5_0); break;
        case GGML_TYPE_IQ4_NL: multiply_strips(part, HEIGHT, multiply_iq4_nl); break;
        case GGML_TYPE_MXFP4: multiply_strips(part, HEIGHT, multiply_mxfp4); break;
        default: multiply_strips(part, HEIGHT, multiply_q4_0); break;
    }
}

static bool supports(const struct ggml_tensor * dst) {
    return PRODUCT_VNNI || product_is_few(dst); // with AVX2, many columns are faster in F32
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
    .height = HEIGHT,
    .slice_rows = 4 * HEIGHT,
    .slice_columns = 256,
    .min_slice_size = 8192,
    .multiply = multiply,
};

#endif
