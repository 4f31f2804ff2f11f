// Weights in blocks of 32 (Q8_0, Q4_0) times any number of columns.
//
//     y[r, c] = Σ_b d[r, b] e[c, b] Σ_{k in block b} w[r, k] x[k, c]       w, x: integers of 8 bits
//
// A vector holds four weights of each of HEIGHT rows, as w + o: the sum over a block begins with
// −o Σ x[k, c] instead of 0.

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
    uint16_t d[PART][HEIGHT]; // F16
};

//
// Columns
//

static void round_blocks(
        enum ggml_type type, const float * x, int64_t n, char * out, int64_t stride) {
    const int offset = type == GGML_TYPE_Q8_0 ? OFFSET_Q8_0 : OFFSET_Q4_0;
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

//
// Products
//

// Block b of the rows → w[i]: weights 4 i … 4 i + 3 of each row, plus the offset of the type
SIMD_INLINE void unpack(const char * const rows[], int64_t b, bool is_q8_0, rows_i w[FOURS]) {
    if (is_q8_0) {
        rows_load_32(
                rows, b * (int64_t) sizeof(block_q8_0) + (int64_t) offsetof(block_q8_0, qs), w);
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            w[i] = (rows_i) ((rows_u8) w[i] + OFFSET_Q8_0);
        }
    } else { // weights 16 … 31 are the high halves of the bytes
        rows_load_16(
                rows, b * (int64_t) sizeof(block_q4_0) + (int64_t) offsetof(block_q4_0, qs), w);
        UNROLL(4) for (int i = 0; i < 4; ++i) {
            w[i + 4] = (rows_i) ((rows_u8) w[i] >> 4);
            w[i] = (rows_i) ((rows_u8) w[i] & 15);
        }
    }
}

// y[.., c] (+)= Σ_b … for blocks b0 … b0 + n_blocks and n columns from column c0 of the part on.
// The first tile of columns unpacks the weights and keeps them for the others.
SIMD_INLINE void multiply_columns(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c0, int n, bool first, bool is_q8_0) {
    const struct product_part * p = s->part;
    const int64_t               step = p->K / QK; // blocks between columns
    const struct column_block * x =
            (const struct column_block *) (const void *) p->columns + (p->first + c0) * step + b0;
    const bool    keep = p->n_columns > COLUMNS;
    const int64_t size = is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
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
            unpack(s->rows, b0 + b, is_q8_0, w);
        }
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            if (!first) {
                w[i] = rows->w[b][i];
            } else if (keep) {
                rows->w[b][i] = w[i];
            }
        }
        UNROLL(8) for (int c = 0; c < n; ++c) {
            dot[c] = dot_begin(x[c * step].sum, is_q8_0);
        }
        UNROLL(8) for (int i = 0; i < FOURS; ++i) {
            UNROLL(8) for (int c = 0; c < n; ++c) {
                dot[c] = dot_add(dot[c], w[i], x[c * step].q[i], is_q8_0);
            }
        }
        const rows_f d = rows_from_f16(rows->d[b]);
        UNROLL(8) for (int c = 0; c < n; ++c) {
            const struct column_block * v = &x[c * step];
            acc[c] = rows_add(acc[c], dot_end(dot[c], v->sum, is_q8_0), v->e, d);
        }
    }
    UNROLL(8) for (int c = 0; c < n; ++c) {
        rows_store(product_y(p, s->r, c0 + c), acc[c], s->n_rows);
    }
}

SIMD_INLINE void multiply_tile(const struct strip * s, struct row_part * rows, int64_t b0,
        int64_t n_blocks, int64_t c, bool first, bool is_q8_0) {
    switch (s->part->n_columns - c) {
        case 1: multiply_columns(s, rows, b0, n_blocks, c, 1, first, is_q8_0); break;
        case 2: multiply_columns(s, rows, b0, n_blocks, c, 2, first, is_q8_0); break;
        case 3: multiply_columns(s, rows, b0, n_blocks, c, 3, first, is_q8_0); break;
#    if PRODUCT_VNNI
        case 4: multiply_columns(s, rows, b0, n_blocks, c, 4, first, is_q8_0); break;
        case 5: multiply_columns(s, rows, b0, n_blocks, c, 5, first, is_q8_0); break;
        case 6: multiply_columns(s, rows, b0, n_blocks, c, 6, first, is_q8_0); break;
        case 7: multiply_columns(s, rows, b0, n_blocks, c, 7, first, is_q8_0); break;
#    endif
        default: multiply_columns(s, rows, b0, n_blocks, c, COLUMNS, first, is_q8_0); break;
    }
}

// The factors of n blocks of a row, which begin with them: d[i][0]
SIMD_INLINE void copy_factors(const char * row, int64_t n, int64_t size, uint16_t * d) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, row += 8 * size, d += 8 * HEIGHT) {
        UNROLL(8) for (int j = 0; j < 8; ++j) {
            memcpy(d + j * HEIGHT, row + j * size, sizeof(uint16_t));
        }
    }
    for (; i < n; ++i, row += size, d += HEIGHT) {
        memcpy(d, row, sizeof(uint16_t));
    }
}

SIMD_INLINE void multiply_strip(const struct strip * s, bool is_q8_0) {
    const int64_t   size = is_q8_0 ? sizeof(block_q8_0) : sizeof(block_q4_0);
    const int64_t   n_blocks = s->part->K / QK;
    struct row_part rows;
    for (int64_t b = 0; b < n_blocks; b += PART) {
        const int64_t n = n_blocks - b < PART ? n_blocks - b : PART;
        for (int r = 0; r < HEIGHT; ++r) {
            copy_factors(s->rows[r] + b * size, n, size, &rows.d[0][r]);
        }
        multiply_tile(s, &rows, b, n, 0, true, is_q8_0);
        for (int64_t c = COLUMNS; c < s->part->n_columns; c += COLUMNS) {
            multiply_tile(s, &rows, b, n, c, false, is_q8_0);
        }
    }
}

static void multiply_q8_0(const struct strip * s) {
    multiply_strip(s, true);
}

static void multiply_q4_0(const struct strip * s) {
    multiply_strip(s, false);
}

static void multiply(const struct product_part * part) {
    multiply_strips(part, HEIGHT, part->type == GGML_TYPE_Q8_0 ? multiply_q8_0 : multiply_q4_0);
}

static bool supports(const struct ggml_tensor * dst) {
    return PRODUCT_VNNI || product_is_few(dst); // with AVX2, many columns are faster in F32
}

const struct product_kernel product_q8_0 = {
    .name = "q8_0",
    .types = PRODUCT_TYPE(Q8_0) | PRODUCT_TYPE(Q4_0),
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
