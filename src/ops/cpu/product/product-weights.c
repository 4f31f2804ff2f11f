// Weights of all types as F32.
//
// ggml's own functions (type traits, to_float) are compiled for the oldest CPU of the architecture.
// The types that matter have functions here: loops over bytes, which the compiler vectorizes,
// unpack 32 codes, then vectors scale them. They give the same bits as ggml's functions.

#include "product-weights.h"
#include "simd.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#include "simd-mappings.h"

#include <string.h>

// out = d q, and out = d q − m
SIMD_INLINE void scale_codes(const int8_t * q, int n, float d, float * out) {
    for (int j = 0; j < n; j += VEC) {
        vec_store(out + j, vec_from_i8(q + j) * d);
    }
}

SIMD_INLINE void scale_codes_min(const int8_t * q, int n, float d, float m, float * out) {
    for (int j = 0; j < n; j += VEC) {
        vec_store(out + j, vec_from_i8(q + j) * d - m);
    }
}

// out = d q + m
SIMD_INLINE void scale_codes_add(const int8_t * q, int n, float d, float m, float * out) {
    for (int j = 0; j < n; j += VEC) {
        vec_store(out + j, vec_from_i8(q + j) * d + m);
    }
}

static void q8_0_to_float(const block_q8_0 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK8_0; ++i, out += QK8_0) {
        scale_codes(x[i].qs, QK8_0, GGML_CPU_FP16_TO_FP32(x[i].d), out);
    }
}

typedef uint8_t bytes __attribute__((vector_size(16)));

// 32 codes of 4 bits minus `offset`; codes 16 … 31 are the high halves of the bytes
SIMD_INLINE void unpack_fours(const uint8_t * packed, int offset, int8_t q[32]) {
    bytes codes;
    memcpy(&codes, packed, sizeof(codes));
    const bytes low = (codes & 15) - (uint8_t) offset, high = (codes >> 4) - (uint8_t) offset;
    memcpy(q, &low, sizeof(low));
    memcpy(q + 16, &high, sizeof(high));
}

// The same with the fifth bits, minus `offset`
SIMD_INLINE void unpack_fives(
        const uint8_t * packed, const uint8_t * fifth, int offset, int8_t q[32]) {
    uint32_t bits;
    memcpy(&bits, fifth, sizeof(bits));
    unpack_fours(packed, offset, q);
    for (int j = 0; j < 32; ++j) {
        q[j] = (int8_t) (q[j] + (int8_t) ((bits >> j & 1) << 4));
    }
}

static void q4_0_to_float(const block_q4_0 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK4_0; ++i, out += QK4_0) {
        int8_t q[QK4_0];
        unpack_fours(x[i].qs, 8, q);
        scale_codes(q, QK4_0, GGML_CPU_FP16_TO_FP32(x[i].d), out);
    }
}

static void q4_1_to_float(const block_q4_1 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK4_1; ++i, out += QK4_1) {
        int8_t q[QK4_1];
        unpack_fours(x[i].qs, 0, q);
        scale_codes_add(
                q, QK4_1, GGML_CPU_FP16_TO_FP32(x[i].d), GGML_CPU_FP16_TO_FP32(x[i].m), out);
    }
}

static void q5_0_to_float(const block_q5_0 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK5_0; ++i, out += QK5_0) {
        int8_t q[QK5_0];
        unpack_fives(x[i].qs, x[i].qh, 16, q);
        scale_codes(q, QK5_0, GGML_CPU_FP16_TO_FP32(x[i].d), out);
    }
}

static void q5_1_to_float(const block_q5_1 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK5_1; ++i, out += QK5_1) {
        int8_t q[QK5_1];
        unpack_fives(x[i].qs, x[i].qh, 0, q);
        scale_codes_add(
                q, QK5_1, GGML_CPU_FP16_TO_FP32(x[i].d), GGML_CPU_FP16_TO_FP32(x[i].m), out);
    }
}

// Scale and minimum of part j of a block of Q4_K or Q5_K, 6 bits each.
static void q4_k_scale(const uint8_t * scales, int j, int * scale, int * min) {
    if (j < 4) {
        *scale = scales[j] & 63;
        *min   = scales[j + 4] & 63;
    } else {
        *scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        *min   = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4;
    }
}

static void q4_k_to_float(const block_q4_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        const float d    = GGML_CPU_FP16_TO_FP32(x[i].d);
        const float dmin = GGML_CPU_FP16_TO_FP32(x[i].dmin);
        for (int part = 0; part < 8; ++part, out += 32) { // two parts share 32 bytes
            const uint8_t * low = x[i].qs + part / 2 * 32;
            int8_t          q[32];
            int             scale, min;
            for (int j = 0; j < 32; ++j) {
                q[j] = (int8_t) (low[j] >> part % 2 * 4 & 15);
            }
            q4_k_scale(x[i].scales, part, &scale, &min);
            scale_codes_min(q, 32, d * (float) scale, dmin * (float) min, out);
        }
    }
}

static void q5_k_to_float(const block_q5_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        const float d    = GGML_CPU_FP16_TO_FP32(x[i].d);
        const float dmin = GGML_CPU_FP16_TO_FP32(x[i].dmin);
        for (int part = 0; part < 8; ++part, out += 32) {
            const uint8_t * low = x[i].qs + part / 2 * 32;
            int8_t          q[32];
            int             scale, min;
            for (int j = 0; j < 32; ++j) {
                q[j] = (int8_t) ((low[j] >> part % 2 * 4 & 15) | (x[i].qh[j] >> part & 1) << 4);
            }
            q4_k_scale(x[i].scales, part, &scale, &min);
            scale_codes_min(q, 32, d * (float) scale, dmin * (float) min, out);
        }
    }
}

static void q6_k_to_float(const block_q6_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        const float d = GGML_CPU_FP16_TO_FP32(x[i].d);
        for (int part = 0; part < 8; ++part, out += 32) { // four share 64 bytes of ql, 32 of qh
            const uint8_t * low    = x[i].ql + part / 4 * 64 + part % 2 * 32;
            const uint8_t * high   = x[i].qh + part / 4 * 32;
            const int8_t *  scales = x[i].scales + 2 * part;
            int8_t          q[32];
            for (int j = 0; j < 32; ++j) {
                q[j] = (int8_t) (((low[j] >> part % 4 / 2 * 4 & 15) | (high[j] >> part % 4 * 2 & 3)
                                                                              << 4) -
                                 32);
            }
            scale_codes(q, 16, d * (float) scales[0], out);
            scale_codes(q + 16, 16, d * (float) scales[1], out + 16);
        }
    }
}

void weights_to_float(
        enum ggml_type type, const void * row, int64_t begin, int64_t n, float * out) {
    const void * x = (const char *) row + ggml_row_size(type, begin);
    switch (type) {
        case GGML_TYPE_F32: memcpy(out, x, (size_t) n * sizeof(float)); break;
        case GGML_TYPE_F16: ggml_cpu_fp16_to_fp32(x, out, n); break;
        case GGML_TYPE_BF16: ggml_cpu_bf16_to_fp32(x, out, n); break;
        case GGML_TYPE_Q8_0: q8_0_to_float(x, n, out); break;
        case GGML_TYPE_Q4_0: q4_0_to_float(x, n, out); break;
        case GGML_TYPE_Q4_1: q4_1_to_float(x, n, out); break;
        case GGML_TYPE_Q5_0: q5_0_to_float(x, n, out); break;
        case GGML_TYPE_Q5_1: q5_1_to_float(x, n, out); break;
        case GGML_TYPE_Q4_K: q4_k_to_float(x, n, out); break;
        case GGML_TYPE_Q5_K: q5_k_to_float(x, n, out); break;
        case GGML_TYPE_Q6_K: q6_k_to_float(x, n, out); break;
        default: ggml_get_type_traits(type)->to_float(x, out, n); break;
    }
}
