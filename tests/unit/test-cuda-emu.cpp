// cuda-emu.h itself: correct kernels give the correct numbers, and each deliberate error is found
// with the right message.

#include "kit/cuda-emu.h"

#include "cuda/mma.cuh"

#include "kit/check.h"
#include "kit/rng.h"

#include <algorithm>
#include <climits>

CUDA_EMU_DYNAMIC_SHARED(float, dynamic);

//
// Correct kernels
//

static __global__ void where_am_i(int * out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = 1000 * block + thread;
}

// Sum over a block with shuffles and static shared memory; a template, like the real kernels
template <int WARPS>
static __global__ void __launch_bounds__(32 * WARPS)
        block_sum(const float * __restrict__ in, float * __restrict__ out) {
    __shared__ float part[WARPS];
    float            sum = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int x = 16; x > 0; x /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, x);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    float all = 0.0f;
    for (int i = 0; i < WARPS; ++i) {
        all += part[i];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

static __global__ void reverse_dynamic(const float * in, float * out) {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
}

static __global__ void all_shuffles(int * out) { // [5][32]
    const int lane = threadIdx.x;
    out[0 * 32 + lane] = __shfl_sync(0xFFFFFFFF, lane, 5);
    out[1 * 32 + lane] = __shfl_up_sync(0xFFFFFFFF, lane, 3);
    out[2 * 32 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 3, 8);
    out[3 * 32 + lane] = __shfl_xor_sync(0xFFFFFFFF, lane, 1, 16);
    if (lane < 16) { // half a warp, with the matching mask
        out[4 * 32 + lane] = __shfl_xor_sync(0x0000FFFF, lane, 15);
    } else {
        out[4 * 32 + lane] = __shfl_xor_sync(0xFFFF0000, lane, 15);
    }
}

static __global__ void warp_neighbor(const float * in, float * out) {
    __shared__ float row[32];
    row[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = row[(threadIdx.x + 1) % 32];
}

static __global__ void count(int * n) {
    atomicAdd(n, 1);
}

static __global__ void vectors(const float4 * in, float2 * out) {
    const float4 v = in[threadIdx.x];
    out[threadIdx.x] = make_float2(v.x + v.z, v.y + v.w);
}

// c [16][8] += a [16][k] b [k][8]; lanes hold the elements that the PTX manual defines for m16n8k8
struct mma_operands {
    const float * a;
    const float * b;
    float *       c;
    int           k;
};

enum multiply_how {
    AS_TF32,    // the instruction alone
    AS_F32,     // mma_add
    AS_CARRIED, // split like mma_add, but the tensor core adds all products
};

template <int HOW> static __global__ void multiply(const mma_operands x) {
    const int group = threadIdx.x / 4, member = threadIdx.x % 4;
    float     c[4];
    for (int i = 0; i < 4; ++i) {
        c[i] = x.c[(i < 2 ? group : group + 8) * 8 + member * 2 + (i & 1)];
    }
    for (int k = 0; k < x.k; k += 8) {
        uint32_t  a[4], a_lo[4], b[2], b_lo[2];
        mma_split a_both[4], b_both[2];
        for (int i = 0; i < 4; ++i) {
            const float y = x.a[(i == 0 || i == 2 ? group : group + 8) * x.k + k +
                                (i < 2 ? member : member + 4)];
            a_both[i] = mma_split_of(y);
            a[i] = HOW == AS_TF32 ? __float_as_uint(y) : a_both[i].hi;
            a_lo[i] = a_both[i].lo;
        }
        for (int i = 0; i < 2; ++i) {
            const float y = x.b[(k + (i == 0 ? member : member + 4)) * 8 + group];
            b_both[i] = mma_split_of(y);
            b[i] = HOW == AS_TF32 ? __float_as_uint(y) : b_both[i].hi;
            b_lo[i] = b_both[i].lo;
        }
        if (HOW == AS_F32) {
            mma_add(c, a_both, b_both);
        } else {
            if (HOW == AS_CARRIED) {
                mma_tf32(c, a_lo, b);
                mma_tf32(c, a, b_lo);
            }
            mma_tf32(c, a, b);
        }
    }
    for (int i = 0; i < 4; ++i) {
        x.c[(i < 2 ? group : group + 8) * 8 + member * 2 + (i & 1)] = c[i];
    }
}

//
// Kernels with errors
//

static __global__ void barrier_in_branch(float * out) {
    if (threadIdx.x < 40) {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

static __global__ void two_barriers(float * out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

static __global__ void shuffle_after_return(float * out) {
    if (threadIdx.x == 7) {
        return;
    }
    out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 1.0f, 1);
}

static __global__ void shuffle_and_barrier(float * out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, 1.0f, 1);
    } else {
        __syncthreads();
    }
}

static __global__ void shuffle_outside_mask(float * out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = __shfl_xor_sync(0x0000FFFF, 1.0f, 16);
    }
}

static __global__ void shuffle_not_in_mask(float * out) {
    out[threadIdx.x] = __shfl_xor_sync(0x0000FFFF, 1.0f, 1);
}

static __global__ void shared_unwritten(float * out) {
    __shared__ float row[64];
    if (threadIdx.x != 9) {
        row[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    out[threadIdx.x] = row[threadIdx.x];
}

// The values of the previous block must not be visible
static __global__ void shared_of_other_block(float * out) {
    __shared__ float word;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        word = 1.0f;
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = word;
}

static __global__ void read_beyond(const float * in, float * out, int n) {
    out[threadIdx.x] = in[threadIdx.x + n];
}
static __global__ void write_beyond(float * out, int n) {
    out[(int) threadIdx.x + n] = 1.0f;
}
static __global__ void read_nowhere(const float ** in, float * out) {
    out[threadIdx.x] = in[threadIdx.x][0];
}
static __global__ void write_input(float * in) {
    in[threadIdx.x] = 1.0f;
}

static __global__ void no_barrier(const float * in, float * out) {
    __shared__ float row[64];
    row[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = row[63 - threadIdx.x];
}

// Correct in forward order, and never NaN
static __global__ void forward_only(float * io) {
    const float left = threadIdx.x == 0 ? 1.0f : io[threadIdx.x - 1];
    io[threadIdx.x] = left + 1.0f;
}

static __global__ void second_barrier_missing(const float * in, float * out) {
    __shared__ float row[64];
    float            sum = 0.0f;
    for (int i = 0; i < 3; ++i) {
        row[threadIdx.x] = in[threadIdx.x] * i;
        __syncthreads();
        sum += row[(threadIdx.x + 1) % 64]; // the next iteration may overwrite it
    }
    out[threadIdx.x] = sum;
}

static __global__ void warp_neighbor_unsynced(const float * in, float * out) {
    __shared__ float row[32];
    row[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = row[(threadIdx.x + 1) % 32];
}

// A warp reads the numbers of the previous warps, one per shuffle, and then writes its own. If
// warps ran in lockstep, every number would be read in time.
static __global__ void warps_in_step(const float * in, float * out) {
    __shared__ float row[4];
    const int        warp = threadIdx.x / 32;
    float            sum = 0.0f;
    if (threadIdx.x % 32 == 0) {
        row[warp] = in[warp];
    }
    __syncthreads();
    for (int w = 0; w <= warp; ++w) {
        sum += __shfl_sync(0xFFFFFFFF, row[w], 0);
    }
    if (threadIdx.x % 32 == 0) {
        row[warp] = sum; // later warps may not have read it
    }
    __syncthreads();
    out[warp] = row[warp];
}

static __global__ void blocks_meet(float * io) { // a block reads a value that another one writes
    const float other = io[(blockIdx.x + 1) % gridDim.x];
    io[blockIdx.x] = other + 1.0f;
}

static __global__ void sum_of_floats(float * sum, const float * in) {
    atomicAdd(sum, in[threadIdx.x]); // the rounding depends on the order
}

static __global__ void dynamic_too_small() {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = 1.0f;
}

static __global__ void mma_half_a_warp(float * out) {
    float          c[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (threadIdx.x < 16) {
        mma_tf32(c, a, b);
    }
    out[threadIdx.x] = c[0];
}

static __global__ void mma_in_two_branches(float * out) {
    float          c[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (threadIdx.x < 16) {
        cuda_emu::mma_m16n8k8_tf32(c, a, b, __LINE__);
    } else {
        cuda_emu::mma_m16n8k8_tf32(c, a, b, __LINE__);
    }
    out[threadIdx.x] = c[0];
}

static __global__ void mma_and_shuffle(float * out) {
    float          c[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (threadIdx.x < 31) {
        cuda_emu::mma_m16n8k8_tf32(c, a, b, __LINE__);
    } else {
        c[0] = __shfl_xor_sync(0xFFFFFFFF, c[0], 0);
    }
    out[threadIdx.x] = c[0];
}

//
// Checks
//

static void right(test * t, const char * name, const std::string & found) {
    test_check(t, found.empty(), "%s is correct, but: %s", name, found.c_str());
}

// Checks n numbers of the kernel `name`
template <typename Want>
static void equal(test * t, const char * name, const float * y, int n, Want && want) {
    for (int i = 0; i < n; ++i) {
        test_check(t, y[i] == want(i), "%s: %g; expected %g", name, y[i], want(i));
    }
}

static void wrong(test * t, const char * name, const std::string & found, const char * expected) {
    test_check(t, found.find(expected) != std::string::npos,
            "%s has an error; expected a message with \"%s\", got \"%s\"", name, expected,
            found.c_str());
    printf("  %-26s %s\n", name, found.c_str());
}

static void test_right(test * t) {
    float numbers[128];
    for (int i = 0; i < 128; ++i) {
        numbers[i] = (float) (i * i % 31);
    }
    cuda_emu::buffer in("in", numbers, sizeof(numbers));
    in.set_constant();
    const float * x = in.as<float>();

    {
        cuda_emu::buffer out("out", 2 * 3 * 2 * 24 * sizeof(int));
        right(t, "where_am_i", cuda_emu::launch(dim3(2, 3, 2), dim3(4, 3, 2), 0, [&] {
            where_am_i(out.as<int>());
        }));
        for (int i = 0; i < 2 * 3 * 2 * 24; ++i) {
            test_check(t, out.as<int>()[i] == 1000 * (i / 24) + i % 24,
                    "thread %d of block %d has index %d", i % 24, i / 24, out.as<int>()[i]);
        }
    }
    {
        cuda_emu::buffer out("out", sizeof(numbers));
        float *          y = out.as<float>();
        right(t, "block_sum", cuda_emu::launch(2, 64, 0, [&] { block_sum<2>(x, y); }));
        float sum[2] = { 0.0f, 0.0f };
        for (int i = 0; i < 128; ++i) {
            sum[i / 64] += numbers[i];
        }
        equal(t, "block_sum", y, 128, [&](int i) { return sum[i / 64]; });
        right(t, "reverse_dynamic",
                cuda_emu::launch(1, 128, 128 * sizeof(float), [&] { reverse_dynamic(x, y); }));
        equal(t, "reverse_dynamic", y, 128, [&](int i) { return numbers[127 - i]; });
        right(t, "warp_neighbor", cuda_emu::launch(1, 32, 0, [&] { warp_neighbor(x, y); }));
        equal(t, "warp_neighbor", y, 32, [&](int i) { return numbers[(i + 1) % 32]; });
        right(t, "vectors",
                cuda_emu::launch(1, 32, 0, [&] { vectors((const float4 *) x, (float2 *) y); }));
        equal(t, "vectors", y, 64,
                [&](int i) { return numbers[i / 2 * 4 + i % 2] + numbers[i / 2 * 4 + i % 2 + 2]; });
    }
    {
        cuda_emu::buffer out("out", 5 * 32 * sizeof(int));
        const int *      y = out.as<int>();
        right(t, "all_shuffles", cuda_emu::launch(1, 32, 0, [&] { all_shuffles(out.as<int>()); }));
        for (int l = 0; l < 32; ++l) {
            const int want[5] = { 5, l >= 3 ? l - 3 : l, l % 8 + 3 < 8 ? l + 3 : l, l ^ 1, l ^ 15 };
            for (int i = 0; i < 5; ++i) {
                test_check(t, y[i * 32 + l] == want[i], "shuffle %d, lane %d: %d; expected %d", i,
                        l, y[i * 32 + l], want[i]);
            }
        }
    }
    {
        cuda_emu::buffer n("n", sizeof(int));
        *n.as<int>() = 0;
        right(t, "count", cuda_emu::launch(3, 50, 0, [&] { count(n.as<int>()); }));
        test_check(
                t, *n.as<int>() == 150, "atomicAdd counts %d threads; expected 150", *n.as<int>());
    }
    printf("cuda-emu, correct kernels: indices, shuffles, static and dynamic shared memory,\n"
           "  barriers, atomics, vectors\n");
}

static __global__ void misaligned_pair(const float * x) {
    cuda_emu::check_aligned(x + 1, 8);
}

static __global__ void misaligned_copy(const float * x) {
    alignas(16) __shared__ float four[8];
    cuda_emu::copy_async(four, x + 2, 16, true);
}

static __global__ void misaligned_target(const float * x) {
    alignas(16) __shared__ float four[8];
    cuda_emu::copy_async(four + 1, x, 16, true);
}

static void test_wrong(test * t) {
    float numbers[64];
    for (int i = 0; i < 64; ++i) {
        numbers[i] = 1.0f / (float) (i + 3);
    }
    cuda_emu::buffer in("in", numbers, sizeof(numbers));
    cuda_emu::buffer out("out", 64 * sizeof(float));
    cuda_emu::buffer pair("pair", 2 * sizeof(float));
    float *          x = in.as<float>();
    float *          y = out.as<float>();
    float *          p = pair.as<float>();
    in.set_constant();
    memset(y, 0, out.size());

    using cuda_emu::launch;
    printf("cuda-emu, kernels with errors, and the messages:\n");
    wrong(t, "barrier_in_branch", launch(1, 64, 0, [&] { barrier_in_branch(y); }),
            "barrier not reached by all threads: 40 wait, 24 have ended");
    wrong(t, "misaligned_pair", launch(1, 1, 0, [&] { misaligned_pair(y); }), "misaligned");
    wrong(t, "misaligned_copy", launch(1, 1, 0, [&] { misaligned_copy(y); }), "misaligned");
    wrong(t, "misaligned_target", launch(1, 1, 0, [&] { misaligned_target(y); }), "misaligned");
    wrong(t, "two_barriers", launch(1, 64, 0, [&] { two_barriers(y); }), "at different barriers");
    wrong(t, "shuffle_after_return", launch(1, 32, 0, [&] { shuffle_after_return(y); }),
            "waits in vain for lanes FFFFFFFF");
    wrong(t, "shuffle_and_barrier", launch(1, 32, 0, [&] { shuffle_and_barrier(y); }),
            "16 threads at warp operations, 16 at barriers");
    wrong(t, "shuffle_outside_mask", launch(1, 32, 0, [&] { shuffle_outside_mask(y); }),
            "which is not in the mask");
    wrong(t, "shuffle_not_in_mask", launch(1, 32, 0, [&] { shuffle_not_in_mask(y); }),
            "not in its own mask");
    wrong(t, "half a warp", launch(1, 16, 0, [&] { shuffle_after_return(y); }), "waits in vain");
    wrong(t, "mma_half_a_warp", launch(1, 32, 0, [&] { mma_half_a_warp(y); }),
            "16 threads at warp operations");
    wrong(t, "mma, warp of 16", launch(1, 16, 0, [&] { mma_half_a_warp(y); }),
            "waits in vain for lanes FFFFFFFF");
    wrong(t, "mma_in_two_branches", launch(1, 32, 0, [&] { mma_in_two_branches(y); }),
            "32 threads at warp operations");
    wrong(t, "mma_and_shuffle", launch(1, 32, 0, [&] { mma_and_shuffle(y); }),
            "32 threads at warp operations");
    wrong(t, "read_beyond", launch(1, 64, 0, [&] { read_beyond(x, y, 1); }),
            "out of bounds: buffer in of 256 bytes at byte 256");
    wrong(t, "write_beyond", launch(1, 64, 0, [&] { write_beyond(y, 1); }),
            "out of bounds: buffer out of 256 bytes at byte 256");
    wrong(t, "write_before", launch(1, 64, 0, [&] { write_beyond(y, -1); }),
            "written before the start of buffer out");
    y[-1] = cuda_emu::buffer("unwritten", sizeof(float)).as<float>()[0]; // repair
    const uint64_t nowhere = 0x1000;
    memcpy(p, &nowhere, sizeof(nowhere));
    wrong(t, "read_nowhere", launch(1, 1, 0, [&] { read_nowhere((const float **) p, y); }),
            "an address in no buffer");
    wrong(t, "write_input", launch(1, 64, 0, [&] { write_input(x); }),
            "constant buffer in written");
    wrong(t, "no_barrier", launch(1, 64, 0, [&] { no_barrier(x, y); }), "a race: buffer out");
    wrong(t, "forward_only", launch(1, 64, 0, [&] { forward_only(y); }), "a race: buffer out");
    wrong(t, "second_barrier_missing", launch(1, 64, 0, [&] { second_barrier_missing(x, y); }),
            "a race: buffer out");
    wrong(t, "warp_neighbor_unsynced", launch(1, 32, 0, [&] { warp_neighbor_unsynced(x, y); }),
            "a race: buffer out");
    wrong(t, "warps_in_step", launch(1, 128, 0, [&] { warps_in_step(x, y); }),
            "a race: buffer out");
    p[0] = p[1] = 0.0f;
    wrong(t, "blocks_meet", launch(2, 1, 0, [&] { blocks_meet(p); }), "a race: buffer pair");
    p[0] = 0.0f;
    wrong(t, "sum_of_floats", launch(1, 64, 0, [&] { sum_of_floats(p, x); }),
            "a race: buffer pair");
    wrong(t, "dynamic_too_small", launch(1, 64, 63 * sizeof(float), [&] { dynamic_too_small(); }),
            "beyond the 252 bytes");
    wrong(t, "block of 1025 threads", launch(1, 1025, 0, [&] { write_beyond(y, 0); }),
            "cannot launch");

    // unwritten shared memory gives no message: it appears as NaN in the results
    const std::string unwritten = launch(1, 64, 0, [&] { shared_unwritten(y); });
    for (int i = 0; i < 64; ++i) {
        test_check(t, unwritten.empty() && (i == 9) == (bool) isnan(y[i]),
                "shared_unwritten: element %d is %g", i, y[i]);
    }
    const std::string other = launch(2, 32, 0, [&] { shared_of_other_block(y); }, 1);
    for (int i = 0; i < 64; ++i) {
        test_check(t, other.empty() && (i >= 32) == (bool) isnan(y[i]),
                "shared_of_other_block: element %d is %g", i, y[i]);
    }
    printf("  %-26s NaN in the results, only where nothing was written\n",
            "shared memory unwritten");

    // after all of these the emulator still works
    right(t, "block_sum", launch(1, 64, 0, [&] { block_sum<2>(x, y); }));
}

//
// Tensor cores
//

// A product on the emulated tensor core, with F32 operands
struct product {
    int                k;
    std::vector<float> a, b, c; // [16][k], [k][8], [16][8]

    explicit product(int n) : k(n), a(16 * n), b(8 * n), c(16 * 8) {}

    template <int HOW> void run(test * t) {
        cuda_emu::buffer mem_a("a", a.data(), a.size() * sizeof(float));
        cuda_emu::buffer mem_b("b", b.data(), b.size() * sizeof(float));
        cuda_emu::buffer mem_c("c", c.data(), c.size() * sizeof(float));
        mem_a.set_constant();
        mem_b.set_constant();
        const mma_operands x = { mem_a.as<float>(), mem_b.as<float>(), mem_c.as<float>(), k };
        right(t, "multiply", cuda_emu::launch(1, 32, 0, [&] { multiply<HOW>(x); }));
        memcpy(c.data(), mem_c.data(), mem_c.size());
    }

    // number() for every element of a and b
    template <typename Number> void fill(Number && number) {
        std::generate(a.begin(), a.end(), number);
        std::generate(b.begin(), b.end(), number);
    }

    // Σ a b and Σ |a b| of element (i, j), in double
    double sum(int i, int j, bool absolute) const {
        double s = 0.0;
        for (int n = 0; n < k; ++n) {
            const double x = (double) a[i * k + n] * b[n * 8 + j];
            s += absolute ? fabs(x) : x;
        }
        return s;
    }
};

// Every element is a different integer, so that any exchange is detected.
static void test_mma_layout(test * t) {
    product p(8);
    for (int i = 0; i < 128; ++i) {
        p.a[i] = (float) (1 + 37 * i % 131);
        p.c[i] = (float) (500 + 61 * i % 139);
    }
    for (int i = 0; i < 64; ++i) {
        p.b[i] = (float) (150 + 29 * i % 67);
    }
    const product before = p;
    p.run<AS_TF32>(t);
    for (int i = 0; i < 128; ++i) {
        const double want = before.c[i] + before.sum(i / 8, i % 8, false);
        test_check(t, p.c[i] == want, "mma of integers: element [%d][%d] is %.9g; expected %.9g",
                i / 8, i % 8, p.c[i], want);
    }

    product low = before; // a tensor core ignores the low 13 bits
    for (float & x : low.a) {
        x = __uint_as_float(__float_as_uint(x) | 0x1FFF);
    }
    for (float & x : low.b) {
        x = __uint_as_float(__float_as_uint(x) | 0x1FFF);
    }
    low.run<AS_TF32>(t);
    test_check(t, low.c == p.c, "mma reads more than 19 bits of an operand");
}

// Row 0 of a times column 0 of b, plus c, computed by hand. x: the products.
static void test_mma_rounding(test * t) {
    const double u = 0x1p-23;
    struct {
        const char * what;
        double       c, x[8];
        double       want;
    } cases[] = {
        { "an addend below u is truncated (to nearest: 1 + u)", 1.0, { 0.75 * u }, 1.0 },
        { "1.5 u is truncated to u", 1.0, { 1.5 * u }, 1.0 + u },
        { "addends are truncated one by one (their sum is 2 u)", 1.0,
                { u / 2, u / 2, u / 2, u / 2 }, 1.0 },
        { "the largest may be a product", 0.5 * u, { 1.0, 0.75 * u, 0.75 * u }, 1.0 },
        { "the sum is truncated (2 + 3u; to nearest: 2 + 4u)", 2.0 - u, { 4 * u }, 2.0 + 2 * u },
        { "the largest counts even if it cancels: 0.75 < 2 is lost", 0.75, { 0x1p24, -0x1p24 },
                0.0 },
        { "the same: 3 is truncated to 2", 3.0, { 0x1p24, -0x1p24 }, 2.0 },
        { "no normalization in between (3 + u would be 3)", u, { 1.5, 1.5, -1.5, -1.5 }, u },
        { "subnormal numbers are not flushed", 0x1p-149, { 0x1p-130 }, 0x1p-149 + 0x1p-130 },
        { "a subnormal sum is truncated", 0.0, { 0x1p-148, 0x1p-149, 0x1p-150 },
                0x1p-148 + 0x1p-149 },
        { "zero", 0.0, { 0.0 }, 0.0 },
    };
    for (const auto & one : cases) {
        for (int sign = -1; sign <= 1; sign += 2) {
            product p(8);
            p.c[0] = (float) (sign * one.c);
            for (int k = 0; k < 8; ++k) { // as a product of two numbers in the range of F32
                const double half = fabs(one.x[k]) < 0x1p-100 ? 0x1p-70
                                    : fabs(one.x[k]) > 0x1p20 ? 0x1p12
                                                              : 1.0;
                p.a[k] = (float) (sign * one.x[k] / half);
                p.b[8 * k] = (float) half;
            }
            p.run<AS_TF32>(t);
            test_check(t, p.c[0] == sign * one.want, "mma, %s: %.9g; expected %.9g", one.what,
                    p.c[0], sign * one.want);
        }
    }
    printf("mma: %d hand-computed sums, both signs, truncated as described\n",
            (int) (sizeof(cases) / sizeof(cases[0])));
}

// The formula of cuda-emu.h, number by number
static double mma_by_formula(const product & p, int i, int j) {
    double x[9] = { p.c[i * 8 + j] };
    int    top = INT_MIN;
    for (int k = 0; k < 8; ++k) {
        x[k + 1] = (double) p.a[i * 8 + k] * p.b[k * 8 + j];
    }
    for (double y : x) {
        top = y != 0.0 ? std::max(top, ilogb(y)) : top;
    }
    double sum = 0.0;
    for (double y : x) {
        sum += top == INT_MIN ? 0.0 : trunc(scalbn(y, 23 - top)); // integers: exact
    }
    const int up = sum == 0.0 ? 0 : 23 - ilogb(sum);
    return top == INT_MIN ? 0.0 : scalbn(scalbn(trunc(scalbn(sum, up)), -up), top - 23);
}

static void test_mma_formula(test * t) {
    test_rng rng = { 3 };
    for (int n = 0; n < 300; ++n) {
        product   p(8);
        const int spread = 1 + n % 30; // of exponents
        auto      number = [&](bool tf32) {
            const double x = test_below(&rng, 10) == 0
                                          ? 0.0
                                          : scalbn(test_uniform(&rng, -2.0, 2.0),
                                                    (int) test_below(&rng, spread) - spread / 2);
            return tf32 ? __uint_as_float(__float_as_uint((float) x) & 0xFFFFE000u) : (float) x;
        };
        p.fill([&] { return number(true); });
        std::generate(p.c.begin(), p.c.end(), [&] { return number(false); });
        const product before = p;
        p.run<AS_TF32>(t);
        for (int i = 0; i < 128; ++i) {
            const double want = mma_by_formula(before, i / 8, i % 8);
            test_check(t, p.c[i] == want, "mma: %.9g; expected %.9g by the formula", p.c[i], want);
        }
    }
    printf("mma: 300 products of random matrices, exponents up to 30 apart, bit-identical to the\n"
           "  formula\n");
}

static void test_mma_not_finite(test * t) {
    test_rng   rng = { 1 };
    product    clean(8);
    const auto number = [&] { return (float) test_uniform(&rng, 0.5, 1.0); };
    clean.fill(number);
    std::generate(clean.c.begin(), clean.c.end(), number);
    clean.b[5 * 8 + 6] = 0.0f;
    product p = clean;
    clean.run<AS_TF32>(t);

    p.a[3 * 8 + 2] = NAN;       // row 3
    p.a[9 * 8 + 5] = INFINITY;  // row 9; times 0 in column 6
    p.b[1 * 8 + 4] = -INFINITY; // column 4
    p.c[12 * 8 + 7] = NAN;      // one element
    p.run<AS_TF32>(t);
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
            const float x = p.c[i * 8 + j];
            const bool  nan = i == 3 || (i == 9 && (j == 4 || j == 6)) || (i == 12 && j == 7);
            const float want = i == 9 ? INFINITY : j == 4 ? -INFINITY : clean.c[i * 8 + j];
            test_check(t, nan ? (bool) isnan(x) : x == want,
                    "mma with NaN and infinities: element [%d][%d] is %g", i, j, x);
        }
    }
}

// F32 products from three TF32 products
static void test_mma_add(test * t) {
    test_rng rng = { 2 };
    double   worst = 0.0;
    for (int n = 0; n < 200; ++n) { // |error| ≤ 2⁻²¹ Σ|a||b|
        product p(8);
        p.fill([&] { return (float) test_normal(&rng); });
        p.run<AS_F32>(t);
        for (int i = 0; i < 128; ++i) {
            worst = std::max(
                    worst, fabs(p.c[i] - p.sum(i / 8, i % 8, false)) / p.sum(i / 8, i % 8, true));
        }
    }
    test_check(t, worst <= 0x1p-21,
            "mma_add has an error of %g of the sum of |a||b|; expected at most 2^-21", worst);

    for (int n = 0; n < 20; ++n) { // halves of small integers: exact, in sums of any length
        product p(256);
        p.fill([&] { return 0.5f * (float) (test_below(&rng, 65) - 32); });
        p.run<AS_F32>(t);
        for (int i = 0; i < 128; ++i) {
            test_check(t, p.c[i] == p.sum(i / 8, i % 8, false),
                    "mma_add of halves: %.9g; expected %.9g", p.c[i], p.sum(i / 8, i % 8, false));
        }
    }

    // A long sum of one sign, K products. mma_add: K/8 additions rounded to nearest; their errors
    // have both signs and grow with the root of their number, and each sum of eight has an error of
    // at most 2⁻²². If the tensor core adds all products, every addition truncates nine addends.
    const int    K = 4096;
    const double limit = sqrt(K / 8.0) * 0x1p-24 + 0x1p-22;
    product      p(K);
    p.fill([&] { return (float) test_uniform(&rng, 1.0, 2.0); });
    product carried = p;
    p.run<AS_F32>(t);
    carried.run<AS_CARRIED>(t);
    double err = 0.0, least = 1.0;
    for (int i = 0; i < 128; ++i) {
        const double want = p.sum(i / 8, i % 8, false);
        err = std::max(err, fabs(p.c[i] - want) / want);
        least = std::min(least, (want - carried.c[i]) / want);
    }
    test_check(t, err <= limit,
            "mma_add, a sum of %d products has an error of %g; expected at most %g", K, err, limit);
    test_check(t, least > 10.0 * limit,
            "a sum by the tensor core has an error of only %g; expected more than %g", least,
            10.0 * limit);
    printf("mma_add: error of random 16x8 times 8x8 at most 2^%.1f of the sum of |a||b|; halves\n"
           "  exact; a sum of %d numbers of one sign: error at most %.1e; if the tensor core adds\n"
           "  them: at least %.1e\n",
            log2(worst), K, err, least);
}

int main() {
    test t = {};
    test_right(&t);
    test_wrong(&t);
    test_mma_layout(&t);
    test_mma_rounding(&t);
    test_mma_formula(&t);
    test_mma_not_finite(&t);
    test_mma_add(&t);
    return test_end(&t, "test-cuda-emu");
}
