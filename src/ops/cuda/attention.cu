// GGML_OP_FLASH_ATTN_EXT where ggml-cuda has no kernel: heads of a length that reach.h does not
// list, values that are shorter than keys (MLA), GPUs older than Turing, and caches in F32, which
// ggml-cuda would round to F16.
//
//     o_t = Σ_s p_ts v_s / Σ_s p_ts,   p_ts = exp(scale q_t·k_s + mask_ts − max_s(…))
//
// A block is one query. Its warps take turns at tiles of 32 rows of the cache, each with a maximum
// and sums of its own, which are combined at the end. Lane j keeps the score of row j of a tile;
// the lanes share the channels. All arithmetic is F32.

#include "glue.h"
#include "launch-cuda.cuh"

enum { ATTENTION_WARPS = 8, ATTENTION_MOST = 1024 /* channels of a head */ };

struct attention_args {
    const char * q;                   // [DK, n, H], F32
    const char * k;                   // [DK, rows, HK]
    const char * v;                   // [DV, rows, HK]
    const char * mask;                // [rows, n], F16; NULL: none
    float *      out;                 // [DV, H, n]
    int64_t      q_token, q_head;     // bytes
    int64_t      k_row, k_head;       // bytes
    int64_t      v_row, v_head;       // bytes
    int64_t      mask_token;          // bytes
    int          dk, dv, rows, share; // share: heads of q per head of the cache
    float        scale;
};

template <ggml_type TYPE> CUDA_INLINE float attention_read(const char * row, int i) {
    if constexpr (TYPE == GGML_TYPE_F32) {
        return ((const float *) row)[i];
    } else if constexpr (TYPE == GGML_TYPE_F16) {
        return __half2float(((const half *) row)[i]);
    } else {
        const block_q8_0 & block = ((const block_q8_0 *) row)[i / QK8_0];
        return __half2float(block.d) * (float) block.qs[i % QK8_0];
    }
}

// grid: (tokens, heads)
// block: ATTENTION_WARPS warps
template <ggml_type TYPE>
static __global__ void __launch_bounds__(ATTENTION_WARPS * 32, 4)
        attention(const attention_args a) {
    extern __shared__ float attention_shared[];
    float *                 q = attention_shared;                   // [dk]
    float *                 sums = q + a.dk;                        // [warps][dv]
    float *                 maxima = sums + ATTENTION_WARPS * a.dv; // [warps]
    float *                 totals = maxima + ATTENTION_WARPS;      // [warps]
    const int               lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int token = (int) blockIdx.x, head = (int) blockIdx.y, cache = head / a.share;
    cuda_wait();

    const float * from = (const float *) (a.q + token * a.q_token + head * a.q_head);
    for (int c = (int) threadIdx.x; c < a.dk; c += ATTENTION_WARPS * 32) {
        q[c] = from[c] * a.scale;
    }
    float * o = sums + warp * a.dv;
    for (int c = lane; c < a.dv; c += 32) {
        o[c] = 0.0f;
    }
    __syncthreads();

    const half * mask =
            a.mask != nullptr ? (const half *) (a.mask + token * a.mask_token) : nullptr;
    float most = -INFINITY, total = 0.0f;
    for (int first = warp * 32; first < a.rows; first += ATTENTION_WARPS * 32) {
        const int n = a.rows - first < 32 ? a.rows - first : 32;
        float     score = -INFINITY; // of row first + lane
        for (int j = 0; j < n; ++j) {
            const float bias = mask != nullptr ? __half2float(mask[first + j]) : 0.0f;
            if (bias == -INFINITY) {
                continue;
            }
            const char * row = a.k + (first + j) * a.k_row + cache * a.k_head;
            float        dot = 0.0f;
            for (int c = lane; c < a.dk; c += 32) {
                dot = fmaf(q[c], attention_read<TYPE>(row, c), dot);
            }
            dot = warp_reduce_sum(dot) + bias;
            score = j == lane ? dot : score;
        }
        const float now = fmaxf(most, warp_reduce_max(score));
        if (now == -INFINITY) {
            continue;
        }
        const float keep = most == -INFINITY ? 0.0f : cuda_exp(most - now);
        const float p = score == -INFINITY ? 0.0f : cuda_exp(score - now);
        total = total * keep + warp_reduce_sum(p);
        most = now;
        for (int c0 = 0; c0 < a.dv; c0 += 32) {
            const int c = c0 + lane;
            float     sum = c < a.dv ? o[c] * keep : 0.0f;
            for (int j = 0; j < n; ++j) {
                const float pj = __shfl_sync(0xFFFFFFFF, p, j);
                if (c < a.dv && pj != 0.0f) {
                    const char * row = a.v + (first + j) * a.v_row + cache * a.v_head;
                    sum = fmaf(pj, attention_read<TYPE>(row, c), sum);
                }
            }
            if (c < a.dv) {
                o[c] = sum;
            }
        }
    }
    if (lane == 0) {
        maxima[warp] = most;
        totals[warp] = total;
    }
    __syncthreads();

    float all = -INFINITY, weight[ATTENTION_WARPS], below = 0.0f;
    for (int w = 0; w < ATTENTION_WARPS; ++w) {
        all = fmaxf(all, maxima[w]);
    }
    for (int w = 0; w < ATTENTION_WARPS; ++w) {
        weight[w] = maxima[w] == -INFINITY ? 0.0f : cuda_exp(maxima[w] - all);
        below += weight[w] * totals[w];
    }
    float * out = a.out + ((int64_t) token * gridDim.y + head) * a.dv;
    for (int c = (int) threadIdx.x; c < a.dv; c += ATTENTION_WARPS * 32) {
        float sum = 0.0f;
        for (int w = 0; w < ATTENTION_WARPS; ++w) {
            sum += weight[w] * sums[w * a.dv + c];
        }
        out[c] = __fdiv_rn(sum, below);
    }
}

// True if a kernel, this or ggml-cuda's, computes a node. Our graphs have no cap, no sinks, no
// slopes and one batch.
bool ggml_lrnn_cuda_attention_supports(const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    float              params[3]; // scale, slope, cap
    memcpy(params, op->op_params, sizeof(params));
    return q->type == GGML_TYPE_F32 && k->type == v->type && op->src[4] == nullptr &&
           (k->type == GGML_TYPE_F32 || k->type == GGML_TYPE_F16 || k->type == GGML_TYPE_Q8_0) &&
           params[1] == 0.0f && params[2] == 0.0f && q->ne[3] == 1 && k->ne[3] == 1 &&
           q->ne[2] <= 65535 && k->ne[0] <= ATTENTION_MOST && v->ne[0] <= ATTENTION_MOST &&
           (mask == nullptr || (mask->type == GGML_TYPE_F16 && mask->ne[2] == 1));
}

// Without Turing's tensor cores, ggml-cuda chooses kernels that are not compiled.
bool ggml_lrnn_cuda_attention(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *mask = dst->src[3];
    if (k->type != GGML_TYPE_F32 && k->ne[0] == v->ne[0] && ggml_lrnn_cuda_reaches_head(k->ne[0]) &&
            turing_mma_available(ggml_cuda_info().devices[ctx.device].cc)) {
        return false;
    }
    attention_args a;
    a.q = (const char *) q->data;
    a.k = (const char *) k->data;
    a.v = (const char *) v->data;
    a.mask = mask != nullptr ? (const char *) mask->data : nullptr;
    a.out = (float *) dst->data;
    a.q_token = (int64_t) q->nb[1];
    a.q_head = (int64_t) q->nb[2];
    a.k_row = (int64_t) k->nb[1];
    a.k_head = (int64_t) k->nb[2];
    a.v_row = (int64_t) v->nb[1];
    a.v_head = (int64_t) v->nb[2];
    a.mask_token = mask != nullptr ? (int64_t) mask->nb[1] : 0;
    a.dk = (int) k->ne[0];
    a.dv = (int) v->ne[0];
    a.rows = (int) k->ne[1];
    a.share = (int) (q->ne[2] / k->ne[2]);
    memcpy(&a.scale, dst->op_params, sizeof(a.scale));

    const dim3   grid((unsigned) q->ne[1], (unsigned) q->ne[2]);
    const dim3   block(ATTENTION_WARPS * 32);
    const size_t shared = sizeof(float) * (size_t) (a.dk + ATTENTION_WARPS * (a.dv + 2));
    const ggml_cuda_kernel_launch_params params(grid, block, shared, ctx.stream());
    switch (k->type) {
        case GGML_TYPE_F32: ggml_cuda_kernel_launch(attention<GGML_TYPE_F32>, params, a); break;
        case GGML_TYPE_F16: ggml_cuda_kernel_launch(attention<GGML_TYPE_F16>, params, a); break;
        default: ggml_cuda_kernel_launch(attention<GGML_TYPE_Q8_0>, params, a); break;
    }
    return true;
}
