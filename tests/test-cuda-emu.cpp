// cuda-emu.h itself: kernels that are right give the right numbers, kernels that are wrong on purpose are each caught, by the finding they deserve.

#include "cuda-emu.h"

#include "util.h"

#include <cstdio>

CUDA_EMU_DYNAMIC_SHARED(float, dynamic);

//
// Right
//

static __global__ void where_am_i(int * out) {
    const int block  = blockIdx.x + gridDim.x*(blockIdx.y + gridDim.y*blockIdx.z);
    const int thread = threadIdx.x + blockDim.x*(threadIdx.y + blockDim.y*threadIdx.z);
    out[block*(blockDim.x*blockDim.y*blockDim.z) + thread] = 1000*block + thread;
}

// sum of a block, by shuffles and static shared memory; a template, as the real ones are
template <int WARPS>
static __global__ void __launch_bounds__(32*WARPS) block_sum(const float * __restrict__ in, float * __restrict__ out) {
    __shared__ float part[WARPS];
    float sum = in[blockIdx.x*blockDim.x + threadIdx.x];
    for (int x = 16; x > 0; x /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, x);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x/32] = sum;
    }
    __syncthreads();
    float all = 0.0f;
    for (int i = 0; i < WARPS; i++) {
        all += part[i];
    }
    out[blockIdx.x*blockDim.x + threadIdx.x] = all;
}

static __global__ void reverse_dynamic(const float * in, float * out) {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
}

static __global__ void all_shuffles(int * out) { // [5][32]
    const int lane = threadIdx.x;
    out[0*32 + lane] = __shfl_sync     (0xFFFFFFFF, lane, 5);
    out[1*32 + lane] = __shfl_up_sync  (0xFFFFFFFF, lane, 3);
    out[2*32 + lane] = __shfl_down_sync(0xFFFFFFFF, lane, 3, 8);
    out[3*32 + lane] = __shfl_xor_sync (0xFFFFFFFF, lane, 1, 16);
    if (lane < 16) { // half a warp, with a mask that says so
        out[4*32 + lane] = __shfl_xor_sync(0x0000FFFF, lane, 15);
    } else {
        out[4*32 + lane] = __shfl_xor_sync(0xFFFF0000, lane, 15);
    }
}

static __global__ void warp_neighbour(const float * in, float * out) {
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

//
// Wrong
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

// what the block before left there must not be seen
static __global__ void shared_of_other_block(float * out) {
    __shared__ float word;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        word = 1.0f;
    }
    __syncthreads();
    out[blockIdx.x*blockDim.x + threadIdx.x] = word;
}

static __global__ void read_beyond (const float * in, float * out, int n) { out[threadIdx.x] = in[threadIdx.x + n]; }
static __global__ void write_beyond(float * out, int n)                   { out[(int) threadIdx.x + n] = 1.0f; }
static __global__ void write_input (float * in)                           { in[threadIdx.x] = 1.0f; }

static __global__ void no_barrier(const float * in, float * out) {
    __shared__ float row[64];
    row[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = row[63 - threadIdx.x];
}

// right in forward order, and the numbers are never NaN
static __global__ void forward_only(float * io) {
    const float left = threadIdx.x == 0 ? 1.0f : io[threadIdx.x - 1];
    io[threadIdx.x] = left + 1.0f;
}

static __global__ void second_barrier_missing(const float * in, float * out) {
    __shared__ float row[64];
    float sum = 0.0f;
    for (int i = 0; i < 3; i++) {
        row[threadIdx.x] = in[threadIdx.x]*i;
        __syncthreads();
        sum += row[(threadIdx.x + 1) % 64]; // the next turn may overwrite it
    }
    out[threadIdx.x] = sum;
}

static __global__ void warp_neighbour_unsynced(const float * in, float * out) {
    __shared__ float row[32];
    row[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = row[(threadIdx.x + 1) % 32];
}

static __global__ void blocks_meet(float * io) { // a block reads what another writes
    const float other = io[(blockIdx.x + 1) % gridDim.x];
    io[blockIdx.x] = other + 1.0f;
}

static __global__ void sum_of_floats(float * sum, const float * in) {
    atomicAdd(sum, in[threadIdx.x]); // rounds by order
}

static __global__ void dynamic_too_small() {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = 1.0f;
}

//
// Checks
//

static void right(test * t, const char * name, const std::string & found) {
    test_check(t, found.empty(), "%s is right, but: %s", name, found.c_str());
}

static void wrong(test * t, const char * name, const std::string & found, const char * expected) {
    test_check(t, found.find(expected) != std::string::npos, "%s is wrong; expected a finding with \"%s\", found \"%s\"", name, expected, found.c_str());
    printf("  %-26s %s\n", name, found.c_str());
}

static void test_right(test * t) {
    float numbers[128];
    for (int i = 0; i < 128; i++) {
        numbers[i] = (float) (i*i % 31);
    }
    cuda_emu::buffer in("in", numbers, sizeof(numbers));
    in.set_constant();
    const float * x = in.as<float>();

    {
        cuda_emu::buffer out("out", 2*3*2*24*sizeof(int));
        right(t, "where_am_i", cuda_emu::launch(dim3(2, 3, 2), dim3(4, 3, 2), 0, [&] { where_am_i(out.as<int>()); }));
        for (int i = 0; i < 2*3*2*24; i++) {
            test_check(t, out.as<int>()[i] == 1000*(i/24) + i % 24, "thread %d of block %d is told it is %d", i % 24, i/24, out.as<int>()[i]);
        }
    }
    {
        cuda_emu::buffer out("out", sizeof(numbers));
        float * y = out.as<float>();
        right(t, "block_sum", cuda_emu::launch(2, 64, 0, [&] { block_sum<2>(x, y); }));
        float sum[2] = { 0.0f, 0.0f };
        for (int i = 0; i < 128; i++) {
            sum[i/64] += numbers[i];
        }
        for (int i = 0; i < 128; i++) {
            test_check(t, y[i] == sum[i/64], "block_sum: %g; expected %g", y[i], sum[i/64]);
        }
        right(t, "reverse_dynamic", cuda_emu::launch(1, 128, 128*sizeof(float), [&] { reverse_dynamic(x, y); }));
        for (int i = 0; i < 128; i++) {
            test_check(t, y[i] == numbers[127 - i], "reverse_dynamic: %g; expected %g", y[i], numbers[127 - i]);
        }
        right(t, "warp_neighbour", cuda_emu::launch(1, 32, 0, [&] { warp_neighbour(x, y); }));
        for (int i = 0; i < 32; i++) {
            test_check(t, y[i] == numbers[(i + 1) % 32], "warp_neighbour: %g; expected %g", y[i], numbers[(i + 1) % 32]);
        }
        right(t, "vectors", cuda_emu::launch(1, 32, 0, [&] { vectors((const float4 *) x, (float2 *) y); }));
        for (int i = 0; i < 64; i++) {
            const float want = numbers[i/2*4 + i % 2] + numbers[i/2*4 + i % 2 + 2];
            test_check(t, y[i] == want, "vectors: %g; expected %g", y[i], want);
        }
    }
    {
        cuda_emu::buffer out("out", 5*32*sizeof(int));
        const int * y = out.as<int>();
        right(t, "all_shuffles", cuda_emu::launch(1, 32, 0, [&] { all_shuffles(out.as<int>()); }));
        for (int l = 0; l < 32; l++) {
            const int want[5] = { 5, l >= 3 ? l - 3 : l, l % 8 + 3 < 8 ? l + 3 : l, l ^ 1, l ^ 15 };
            for (int i = 0; i < 5; i++) {
                test_check(t, y[i*32 + l] == want[i], "shuffle %d, lane %d: %d; expected %d", i, l, y[i*32 + l], want[i]);
            }
        }
    }
    {
        cuda_emu::buffer n("n", sizeof(int));
        *n.as<int>() = 0;
        right(t, "count", cuda_emu::launch(3, 50, 0, [&] { count(n.as<int>()); }));
        test_check(t, *n.as<int>() == 150, "atomicAdd counts %d threads; expected 150", *n.as<int>());
    }
    printf("cuda-emu: kernels that are right: indices, shuffles, static and dynamic shared memory, barriers, atomics, vectors\n");
}

static void test_wrong(test * t) {
    float numbers[64];
    for (int i = 0; i < 64; i++) {
        numbers[i] = 1.0f/(float) (i + 3);
    }
    cuda_emu::buffer in("in", numbers, sizeof(numbers));
    cuda_emu::buffer out("out", 64*sizeof(float));
    cuda_emu::buffer pair("pair", 2*sizeof(float));
    float * x = in.as<float>();
    float * y = out.as<float>();
    float * p = pair.as<float>();
    in.set_constant();
    p[0] = p[1] = 0.0f;
    memset(y, 0, out.size());

    using cuda_emu::launch;
    printf("cuda-emu: kernels that are wrong, and what was found:\n");
    wrong(t, "barrier_in_branch",       launch(1, 64, 0, [&] { barrier_in_branch(y); }),       "barrier not reached by all threads: 40 wait, 24 have ended");
    wrong(t, "two_barriers",            launch(1, 64, 0, [&] { two_barriers(y); }),            "at different barriers");
    wrong(t, "shuffle_after_return",    launch(1, 32, 0, [&] { shuffle_after_return(y); }),    "waits for lanes FFFFFFFF that do not come");
    wrong(t, "shuffle_and_barrier",     launch(1, 32, 0, [&] { shuffle_and_barrier(y); }),     "16 threads at warp operations, 16 at barriers");
    wrong(t, "shuffle_outside_mask",    launch(1, 32, 0, [&] { shuffle_outside_mask(y); }),    "which is not in the mask");
    wrong(t, "shuffle_not_in_mask",     launch(1, 32, 0, [&] { shuffle_not_in_mask(y); }),     "not in its own mask");
    wrong(t, "half a warp",             launch(1, 16, 0, [&] { shuffle_after_return(y); }),    "do not come");
    wrong(t, "read_beyond",             launch(1, 64, 0, [&] { read_beyond(x, y, 1); }),       "out of bounds: buffer in of 256 bytes at byte 256");
    wrong(t, "write_beyond",            launch(1, 64, 0, [&] { write_beyond(y, 1); }),         "out of bounds: buffer out of 256 bytes at byte 256");
    wrong(t, "write_before",            launch(1, 64, 0, [&] { write_beyond(y, -1); }),        "written before the begin of buffer out");
    y[-1] = cuda_emu::buffer("unwritten", sizeof(float)).as<float>()[0]; // heal it
    wrong(t, "write_input",             launch(1, 64, 0, [&] { write_input(x); }),             "constant buffer in is written");
    wrong(t, "no_barrier",              launch(1, 64, 0, [&] { no_barrier(x, y); }),           "a race: buffer out");
    wrong(t, "forward_only",            launch(1, 64, 0, [&] { forward_only(y); }),            "a race: buffer out");
    wrong(t, "second_barrier_missing",  launch(1, 64, 0, [&] { second_barrier_missing(x, y); }), "a race: buffer out");
    wrong(t, "warp_neighbour_unsynced", launch(1, 32, 0, [&] { warp_neighbour_unsynced(x, y); }), "a race: buffer out");
    wrong(t, "blocks_meet",             launch(2, 1,  0, [&] { blocks_meet(p); }),             "a race: buffer pair");
    p[0] = 0.0f;
    wrong(t, "sum_of_floats",           launch(1, 64, 0, [&] { sum_of_floats(p, x); }),        "a race: buffer pair");
    wrong(t, "dynamic_too_small",       launch(1, 64, 63*sizeof(float), [&] { dynamic_too_small(); }), "beyond the 252 bytes");
    wrong(t, "block of 1025 threads",   launch(1, 1025, 0, [&] { write_beyond(y, 0); }),       "cannot launch");

    // poison is not a finding of its own: it arrives in the results
    const std::string unwritten = launch(1, 64, 0, [&] { shared_unwritten(y); });
    for (int i = 0; i < 64; i++) {
        test_check(t, unwritten.empty() && (i == 9) == (bool) isnan(y[i]), "shared_unwritten: element %d is %g", i, y[i]);
    }
    const std::string other = launch(2, 32, 0, [&] { shared_of_other_block(y); }, 1);
    for (int i = 0; i < 64; i++) {
        test_check(t, other.empty() && (i >= 32) == (bool) isnan(y[i]), "shared_of_other_block: element %d is %g", i, y[i]);
    }
    printf("  %-26s NaN in the results, only where nothing was written\n", "shared memory unwritten");

    // after all of these the machine is as good as new
    right(t, "block_sum", launch(1, 64, 0, [&] { block_sum<2>(x, y); }));
}

int main() {
    test t = {};
    test_right(&t);
    test_wrong(&t);
    return test_end(&t, "test-cuda-emu");
}
