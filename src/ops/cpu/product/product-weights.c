// Weights of all types as F32.
//
// ggml's own functions (type traits, to_float) are compiled for the oldest CPU of the architecture.
// The types that matter have functions here: loops over bytes, which the compiler vectorizes,
// unpack 32 codes, then vectors scale them. The results are bit-identical to those of ggml.

#include "product-weights.h"
#include "simd.h"

#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#include "simd-mappings.h"

#include <string.h>

typedef uint8_t bytes __attribute__((vector_size(16)));

// out = d q + m. Only types without m skip the addition: 0 is not added to −0.
SIMD_INLINE void scale_codes(const int8_t * q, int n, float d, bool has_m, float m, float * out) {
    for (int j = 0; j < n; j += VEC) {
        const vec x = vec_from_i8(q + j) * d;
        vec_store(out + j, has_m ? x + m : x);
    }
}

// 32 codes of 4 bits minus `offset`; codes 16 … 31 are the high halves of the bytes. `fifth`: their
// fifth bits; may be NULL.
SIMD_INLINE void unpack_codes(
        const uint8_t * packed, const uint8_t * fifth, int offset, int8_t q[32]) {
    bytes codes;
    memcpy(&codes, packed, sizeof(codes));
    const bytes low = (codes & 15) - (uint8_t) offset, high = (codes >> 4) - (uint8_t) offset;
    memcpy(q, &low, sizeof(low));
    memcpy(q + 16, &high, sizeof(high));
    if (fifth != NULL) {
        uint32_t bits;
        memcpy(&bits, fifth, sizeof(bits));
        for (int j = 0; j < 32; ++j) {
            q[j] = (int8_t) (q[j] + (int8_t) ((bits >> j & 1) << 4));
        }
    }
}

static void q8_0_to_float(const block_q8_0 * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / 32; ++i) {
        scale_codes(x[i].qs, 32, GGML_CPU_FP16_TO_FP32(x[i].d), false, 0.0f, out + 32 * i);
    }
}

// Types of 4 and 5 bits in blocks of 32. fifth, offset, has_m and m may refer to block x[i].
#define TO_FLOAT(name, fifth, offset, has_m, m)                                        \
    static void name##_to_float(const block_##name * x, int64_t n, float * out) {      \
        for (int64_t i = 0; i < n / 32; ++i) {                                         \
            int8_t q[32];                                                              \
            unpack_codes(x[i].qs, fifth, offset, q);                                   \
            scale_codes(q, 32, GGML_CPU_FP16_TO_FP32(x[i].d), has_m, m, out + 32 * i); \
        }                                                                              \
    }
TO_FLOAT(q4_0, NULL, 8, false, 0.0f)
TO_FLOAT(q4_1, NULL, 0, true, GGML_CPU_FP16_TO_FP32(x[i].m))
TO_FLOAT(q5_0, x[i].qh, 16, false, 0.0f)
TO_FLOAT(q5_1, x[i].qh, 0, true, GGML_CPU_FP16_TO_FP32(x[i].m))

// Scale and minimum of part j of a block of Q4_K or Q5_K, 6 bits each.
static void q4_k_scale(const uint8_t * scales, int j, int * scale, int * min) {
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        *min = (scales[j + 4] >> 4) | (scales[j] >> 6) << 4;
    }
}

// A block of Q4_K or Q5_K; `fifth` is NULL for Q4_K.
SIMD_INLINE void q45_k_to_float(ggml_half half_d, ggml_half half_m, const uint8_t * scales,
        const uint8_t * qs, const uint8_t * fifth, float * out) {
    const float d = GGML_CPU_FP16_TO_FP32(half_d), m = GGML_CPU_FP16_TO_FP32(half_m);
    for (int part = 0; part < 8; ++part, out += 32) { // two parts share 32 bytes
        const uint8_t * low = qs + part / 2 * 32;
        int8_t          q[32];
        int             scale, min;
        for (int j = 0; j < 32; ++j) {
            q[j] = (int8_t) ((low[j] >> part % 2 * 4 & 15) |
                             (fifth != NULL ? (fifth[j] >> part & 1) << 4 : 0));
        }
        q4_k_scale(scales, part, &scale, &min);
        scale_codes(q, 32, d * (float) scale, true, -(m * (float) min), out);
    }
}

static void q4_K_to_float(const block_q4_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        q45_k_to_float(x[i].d, x[i].dmin, x[i].scales, x[i].qs, NULL, out + i * QK_K);
    }
}

static void q5_K_to_float(const block_q5_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        q45_k_to_float(x[i].d, x[i].dmin, x[i].scales, x[i].qs, x[i].qh, out + i * QK_K);
    }
}

static void q6_K_to_float(const block_q6_K * x, int64_t n, float * out) {
    for (int64_t i = 0; i < n / QK_K; ++i) {
        const float d = GGML_CPU_FP16_TO_FP32(x[i].d);
        for (int part = 0; part < 8; ++part, out += 32) { // four share 64 bytes of ql, 32 of qh
            const uint8_t * low = x[i].ql + part / 4 * 64 + part % 2 * 32;
            const uint8_t * high = x[i].qh + part / 4 * 32;
            const int8_t *  scales = x[i].scales + 2 * part;
            int8_t          q[32];
            for (int j = 0; j < 32; ++j) {
                const int code = (low[j] >> part % 4 / 2 * 4 & 15) | (high[j] >> part % 4 * 2 & 3)
                                                                             << 4;
                q[j] = (int8_t) (code - 32);
            }
            scale_codes(q, 16, d * (float) scales[0], false, 0.0f, out);
            scale_codes(q + 16, 16, d * (float) scales[1], false, 0.0f, out + 16);
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
        case GGML_TYPE_Q4_K: q4_K_to_float(x, n, out); break;
        case GGML_TYPE_Q5_K: q5_K_to_float(x, n, out); break;
        case GGML_TYPE_Q6_K: q6_K_to_float(x, n, out); break;
        default: ggml_get_type_traits(type)->to_float(x, out, n); break;
    }
}
