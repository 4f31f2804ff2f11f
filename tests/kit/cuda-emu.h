#pragma once

// The CUDA language on a CPU (C++17): enough to compile unmodified kernels and to run them, one
// grid after another, thread by thread. Include this, then the headers with the kernels.
//
// Every thread of a block is a fiber with its own stack. It runs until it waits at a barrier or a
// shuffle, or ends. The emulator detects:
//
// - a barrier not reached by all threads: at __syncthreads() some threads ended or wait elsewhere;
// - a shuffle from an inactive lane: a lane of the mask ended or waits elsewhere, or the source or
//   the caller is not in the mask; the same for tensor-core instructions, which need all 32 lanes;
// - shared memory read before it is written: a block begins with 0xFF in all bytes of it, which is
//   NaN as a float and -1 as an int;
// - device buffers out of bounds: an inaccessible page precedes and follows each buffer, the bytes
//   between the first page and the data are compared afterwards, and a constant buffer is
//   write-protected;
// - vectors of device buffers, and copies into shared memory, that are not aligned;
// - races: a launch runs three times, with its blocks, warps and lanes in forward, reverse and
//   random order, and all buffers must be bit-identical. A warp runs as far as it can before the
//   next one, so that warps are as far apart as their barriers allow.
//
// It does not model:
//
// - -use_fast_math, flushed denormals, or a·b + c fused by nvcc: numbers, and the bits of a NaN,
//   are those of the host's compiler;
// - the memory model: all threads see a store at once, so a missing fence or `volatile` is not
//   found, nor is a race with the same bits in all three orders, such as two threads that store the
//   same number;
// - lockstep execution of a warp: a missing __syncwarp() is found, but not its effect on a GPU;
// - a tensor-core instruction in two branches of a warp, if both use the same source line;
// - bounds inside static shared memory, registers and spills, limits of a GPU, alignment of vectors
//   in shared memory, and time.

#include "base/random.h"
#include "kit/mma-model.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <link.h>
#include <math.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#    include <sanitizer/asan_interface.h>
#endif

#if !defined(__x86_64__)
#    include <ucontext.h>
#endif

//
// The keywords of the language
//

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// Shared memory is the thread-local memory of the program: one host thread runs one block at a
// time. Its address and size are known (see poison_shared), in templates too. A program that uses
// this header must have no other thread-local variables.
#define __shared__   thread_local

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

inline float2 make_float2(float x, float y) {
    return { x, y };
}
inline float4 make_float4(float x, float y, float z, float w) {
    return { x, y, z, w };
}

inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __int_as_float(int bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}
inline float __uint_as_float(unsigned bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}
inline int __float_as_int(float x) {
    int i;
    memcpy(&i, &x, sizeof(i));
    return i;
}
inline unsigned __float_as_uint(float x) {
    unsigned u;
    memcpy(&u, &x, sizeof(u));
    return u;
}
inline int __float2int_rn(float x) {
    return (int) rintf(x);
}

namespace cuda_emu {

//
// Fibers
//

enum wait_kind { READY, AT_BARRIER, AT_WARP, DONE };

struct fiber;
using warp_fn = void(fiber * lanes); // an operation of all 32 lanes of a warp

struct fiber {
    uint3     thread{};
    int       index = 0; // in the block
    wait_kind state = DONE;
    int       line = 0;   // source line of the wait
    unsigned  mask = 0;   // lanes it waits for
    int       source = 0; // lane it reads; -1: its own value
    uint64_t  value = 0, result = 0;
    warp_fn * work = nullptr; // called when all lanes are there
    struct copy {
        float *       to;
        const float * from;
        int           floats;
        int           group;
    };
    std::vector<copy>       copies;    // pending
    int                     group = 0; // group of the next copy
    std::unique_ptr<char[]> stack;
#if defined(__x86_64__)
    void * sp = nullptr;
#else
    ucontext_t context;
#endif
};

enum { WARP = 32, STACK_BYTES = 64 * 1024, MAX_BLOCK_THREADS = 1024 };

struct machine {
    std::vector<fiber>    fibers;
    std::vector<unsigned> at_warp; // lanes of each warp that wait at a warp operation
    int                   n_threads = 0;
    std::function<void()> body;
    std::string           failure; // of the current launch; empty: none
    uint3                 block{};
    dim3                  block_dim, grid_dim;
    uint64_t              random = 1;
#if defined(__x86_64__)
    void * scheduler = nullptr;
#else
    ucontext_t scheduler;
#endif
};

inline machine m;
inline fiber * current = nullptr;

#if defined(__x86_64__)
// Saves the registers that a call must preserve, switches stacks, and restores the registers.
// (swapcontext makes a system call for signal masks.)
extern "C" void cuda_emu_switch(void ** save, void * load);
asm(R"(
.pushsection .text
.weak cuda_emu_switch
.type cuda_emu_switch, @function
cuda_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq  %rsp, (%rdi)
    movq  %rsi, %rsp
    popq  %r15
    popq  %r14
    popq  %r13
    popq  %r12
    popq  %rbx
    popq  %rbp
    ret
.size cuda_emu_switch, .-cuda_emu_switch
.popsection
)");
inline void to_scheduler() {
    cuda_emu_switch(&current->sp, m.scheduler);
}
inline void to_fiber() {
    cuda_emu_switch(&m.scheduler, current->sp);
}
#else
inline void to_scheduler() {
    swapcontext(&current->context, &m.scheduler);
}
inline void to_fiber() {
    swapcontext(&m.scheduler, &current->context);
}
#endif

inline void fiber_main() {
    m.body();
    current->state = DONE;
    to_scheduler(); // does not return
    abort();
}

inline void fiber_begin(fiber & f) {
    if (!f.stack) {
        f.stack.reset(new char[STACK_BYTES]);
    }
#if defined(__SANITIZE_ADDRESS__)
    // the last launch may have left the fiber inside a function
    __asan_unpoison_memory_region(f.stack.get(), STACK_BYTES);
#endif
#if defined(__x86_64__)
    // the offset spreads the stacks over the sets of the cache
    const uintptr_t end = (uintptr_t) f.stack.get() + STACK_BYTES - f.index % 64 * 192;
    void **         sp = (void **) (end / 16 * 16);

    *--sp = nullptr; // the alignment of a stack after a call
    *--sp = (void *) fiber_main;
    for (int i = 0; i < 6; ++i) {
        *--sp = nullptr;
    }
    f.sp = sp;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = STACK_BYTES;
    f.context.uc_link = nullptr;
    makecontext(&f.context, fiber_main, 0);
#endif
    f.state = READY;
    f.copies.clear();
    f.group = 0;
}

// Ends the launch. The calling fiber does not continue.
[[gnu::cold, gnu::noinline]] inline void fail(const std::string & text) {
    char where[200];
    snprintf(where, sizeof(where), ", block (%u, %u, %u), thread %d", m.block.x, m.block.y,
            m.block.z, current ? current->index : 0);
    m.failure = text + where;
    to_scheduler();
}

//
// Barriers and warps
//

inline void barrier_block(int line) {
    current->line = line;
    current->state = AT_BARRIER;
    to_scheduler();
}

[[gnu::cold, gnu::noinline]] inline void fail_mask(unsigned mask, int lane, int source, int line) {
    fail("line " + std::to_string(line) +
            ((mask >> lane & 1) == 0 ? ": a lane is not in its own mask"
                                     : ": shuffle from lane " + std::to_string(source) +
                                               ", which is not in the mask"));
}

// Waits for all lanes of the mask, lets the last of them call `work`, then returns the value of
// lane `source`.
inline uint64_t warp_exchange(
        unsigned mask, int source, uint64_t value, int line, warp_fn * work = nullptr) {
    fiber &   me = *current;
    const int lane = me.index % WARP;
    const int warp = me.index / WARP;
    fiber *   all = &m.fibers[warp * WARP];
    if ((mask >> lane & 1) == 0 || (source >= 0 && (mask >> source & 1) == 0)) {
        fail_mask(mask, lane, source, line);
    }
    me.line = line;
    me.mask = mask;
    me.source = source;
    me.value = value;
    me.work = work;
    me.state = AT_WARP;
    m.at_warp[warp] |= 1u << lane;

    bool complete = (m.at_warp[warp] & mask) == mask;
    for (int l = 0; complete && l < WARP; ++l) {
        complete = (mask >> l & 1) == 0 ||
                   (all[l].mask == mask && all[l].line == line && all[l].work == work);
    }
    if (!complete) {
        to_scheduler();
        return me.result;
    }
    if (work != nullptr) {
        work(all);
    }
    for (int l = 0; l < WARP; ++l) {
        if (mask >> l & 1) {
            all[l].result = all[all[l].source < 0 ? l : all[l].source].value;
            all[l].state = READY;
        }
    }
    m.at_warp[warp] &= ~mask;
    return me.result;
}

template <typename T> T shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "too wide for a shuffle");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = warp_exchange(mask, source, bits, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// The first of the `width` lanes that exchange values with each other
inline int lane_first(int width) {
    return current->index % WARP / width * width;
}

template <typename T> T shuffle_xor(int line, unsigned mask, T value, int x, int width = WARP) {
    const int source = (current->index % WARP) ^ x;
    return shuffle(mask, value, source < lane_first(width) + width ? source : -1, line);
}
template <typename T> T shuffle_down(int line, unsigned mask, T value, int n, int width = WARP) {
    const int source = current->index % WARP + n;
    return shuffle(mask, value, source < lane_first(width) + width ? source : -1, line);
}
template <typename T> T shuffle_up(int line, unsigned mask, T value, int n, int width = WARP) {
    const int source = current->index % WARP - n;
    return shuffle(mask, value, source >= lane_first(width) ? source : -1, line);
}
template <typename T> T shuffle_idx(int line, unsigned mask, T value, int lane, int width = WARP) {
    return shuffle(mask, value, lane_first(width) + lane % width, line);
}
struct barrier_warp {
    int line;
    void operator()(unsigned mask = 0xFFFFFFFFu) const {
        warp_exchange(mask, -1, 0, line);
    }
};

// Fibers switch only where they wait, so a plain read and write is atomic.
template <typename T> T atomic_add(T * p, T value) {
    const T old = *p;
    *p = old + value;
    return old;
}

//
// Tensor cores
//

struct mma_fragments { // per lane
    float *          c;
    const uint32_t * a;
    const uint32_t * b;
};

inline void mma_warp(fiber * lanes) {
    const auto of = [&](int l) { return (const mma_fragments *) (uintptr_t) lanes[l].value; };
    mma_model::multiply([&](int l, int i) { return of(l)->a[i]; },
            [&](int l, int i) { return of(l)->b[i]; },
            [&](int l, int i) -> float & { return of(l)->c[i]; }, MMA_ALIGNED);
}

// c += a·b by all lanes of the warp
inline void mma_m16n8k8_tf32(float c[4], const uint32_t a[4], const uint32_t b[2], int line) {
    const mma_fragments mine = { c, a, b };
    warp_exchange(0xFFFFFFFFu, -1, (uint64_t) (uintptr_t) &mine, line, mma_warp);
}

//
// Shared memory
//

struct dynamic_shared { // an extern __shared__ array
    char * data;
    size_t size;
};
inline std::vector<dynamic_shared> dynamic_arrays;

struct dynamic_register {
    dynamic_register(void * data, size_t size) {
        dynamic_arrays.push_back({ (char *) data, size });
    }
};

// Fills the thread-local memory of the program itself, which is the first object in the list.
inline int poison_object(struct dl_phdr_info * info, size_t, void *) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
            memset(info->dlpi_tls_data, 0xFF, info->dlpi_phdr[i].p_memsz);
        }
    }
    return 1;
}

inline void poison_shared() {
    dl_iterate_phdr(poison_object, nullptr);
}

inline void check_aligned(const void * p, unsigned bytes) {
    if ((uintptr_t) p % bytes != 0) {
        fail("misaligned: an access of " + std::to_string(bytes) + " bytes");
    }
}

// An asynchronous copy arrives as late as possible: when its thread waits for it. Until then its
// target is NaN, which detects threads that read it too early or still read the old value.
inline void copy_async(float * to, const float * from, unsigned bytes, bool read) {
    check_aligned(to, bytes);
    check_aligned(read ? from : nullptr, bytes);
    memset(to, 0xFF, bytes);
    current->copies.push_back({ to, read ? from : nullptr, (int) bytes / 4, current->group });
}
inline void copy_commit() {
    ++current->group;
}

// Completes all but the last `keep` groups.
inline void copy_wait(int keep) {
    std::vector<fiber::copy> & list = current->copies;
    size_t                     n = 0;
    for (; n < list.size() && list[n].group < current->group - keep; ++n) {
        for (int i = 0; i < list[n].floats; ++i) {
            list[n].to[i] = list[n].from != nullptr ? list[n].from[i] : 0.0f;
        }
    }
    list.erase(list.begin(), list.begin() + (long) n);
}

//
// Device buffers
//

class buffer;
inline std::vector<buffer *> buffers;

class buffer {
  public:
    buffer(const std::string & name, size_t size) : name_(name), size_(size) {
        page_ = (size_t) sysconf(_SC_PAGESIZE);
        inner_ = (size + page_ - 1) / page_ * page_;
        base_ = (char *) mmap(
                nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == (char *) MAP_FAILED ||
                mprotect(base_ + page_, inner_, PROT_READ | PROT_WRITE) != 0) {
            fprintf(stderr, "cuda-emu: out of memory for buffer %s of %zu bytes\n", name.c_str(),
                    size);
            exit(1);
        }
        memset(base_ + page_, 0xFF, inner_);
        buffers.push_back(this);
    }
    buffer(const std::string & name, const void * data, size_t size) : buffer(name, size) {
        memcpy(this->data(), data, size);
    }
    buffer(const buffer &) = delete;
    buffer & operator=(const buffer &) = delete;
    ~buffer() {
        munmap(base_, inner_ + 2 * page_);
        buffers.erase(std::find(buffers.begin(), buffers.end(), this));
    }

    template <typename T = char> T * as() {
        return (T *) data();
    }
    char * data() const { // ends at a page
        return base_ + page_ + inner_ - size_;
    }
    size_t size() const {
        return size_;
    }
    bool constant() const {
        return constant_;
    }
    const std::string & name() const {
        return name_;
    }

    // Write-protects the buffer.
    void set_constant() {
        constant_ = true;
        mprotect(base_ + page_, inner_, PROT_READ);
    }

    bool owns(const char * p) const {
        return p >= base_ && p < base_ + inner_ + 2 * page_;
    }
    bool slack_intact() const {
        const char * from = base_ + page_;
        return std::all_of(
                from, (const char *) data(), [](char c) { return (unsigned char) c == 0xFF; });
    }

  private:
    std::string name_;
    size_t      size_, page_, inner_;
    char *      base_;
    bool        constant_ = false;
};

// Runs on the stack of the fiber that touched the page. The fiber does not continue.
inline void on_fault(int sig, siginfo_t * info, void *) {
    const char * p = (const char *) info->si_addr;
    if (current == nullptr) {
        signal(sig, SIG_DFL); // not a kernel: the instruction faults again and ends the program
        return;
    }
    for (const buffer * b : buffers) {
        if (b->owns(p)) {
            const long long at = p - b->data();
            fail(at >= 0 && at < (long long) b->size()
                            ? "constant buffer " + b->name() + " written at byte " +
                                      std::to_string(at)
                            : "out of bounds: buffer " + b->name() + " of " +
                                      std::to_string(b->size()) + " bytes at byte " +
                                      std::to_string(at));
        }
    }
    fail("out of bounds: an address in no buffer");
}

//
// Launches
//

enum order { FORWARD, REVERSE, RANDOM, N_ORDERS };

inline uint64_t next_random() {
    return splitmix64(&m.random);
}

inline void arrange(std::vector<int> & list, order how) {
    for (size_t i = list.size(); how == RANDOM && i > 1; --i) {
        std::swap(list[i - 1], list[next_random() % i]);
    }
}

inline std::vector<int> arranged(int n, order how) {
    std::vector<int> list(n);
    for (int i = 0; i < n; ++i) {
        list[i] = how == REVERSE ? n - 1 - i : i;
    }
    arrange(list, how);
    return list;
}

// All threads wait or have ended. If all of them wait at one barrier, releases them and returns
// true.
inline bool pass_barrier() {
    int           n_barrier = 0, n_warp = 0, n_done = 0, line = 0;
    bool          same = true;
    const fiber * waits = nullptr;
    for (int i = 0; i < m.n_threads; ++i) {
        const fiber & f = m.fibers[i];
        n_done += f.state == DONE;
        n_warp += f.state == AT_WARP;
        if (f.state == AT_WARP && waits == nullptr) {
            waits = &f;
        }
        if (f.state == AT_BARRIER) {
            same = same && (n_barrier == 0 || f.line == line);
            line = f.line;
            ++n_barrier;
        }
    }
    char text[300];
    if (n_warp > 0) {
        snprintf(text, sizeof(text),
                "line %d: lane %d of warp %d waits in vain for lanes %08X: %d threads at warp "
                "operations, %d at barriers, %d ended",
                waits->line, waits->index % WARP, waits->index / WARP, waits->mask, n_warp,
                n_barrier, n_done);
        m.failure = text;
    } else if (n_done > 0 || !same) {
        snprintf(text, sizeof(text),
                "line %d: barrier not reached by all threads: %d wait%s, %d have ended", line,
                n_barrier, same ? "" : " at different barriers", n_done);
        m.failure = text;
    } else {
        for (int i = 0; i < m.n_threads; ++i) {
            m.fibers[i].state = READY;
        }
    }
    return m.failure.empty();
}

// Runs every lane of warp w that is ready until it waits. Returns false if none was ready, or on a
// failure.
inline bool run_warp(int w, const std::vector<int> & lanes) {
    bool ran = false;
    for (int l : lanes) {
        const int i = w * WARP + l;
        if (i >= m.n_threads || m.fibers[i].state != READY) {
            continue;
        }
        ran = true;
        current = &m.fibers[i];
        to_fiber();
        current = nullptr;
        if (!m.failure.empty()) {
            return false;
        }
    }
    return ran;
}

inline void run_block(order how) {
    for (int i = 0; i < m.n_threads; ++i) {
        fiber & f = m.fibers[i];
        f.index = i;
        f.thread = { i % m.block_dim.x, i / m.block_dim.x % m.block_dim.y,
            i / (m.block_dim.x * m.block_dim.y) };
        fiber_begin(f);
    }
    std::fill(m.at_warp.begin(), m.at_warp.end(), 0);
    poison_shared();

    const std::vector<int> warps = arranged((m.n_threads + WARP - 1) / WARP, how);
    std::vector<int>       lanes = arranged(WARP, how);
    for (;;) {
        bool ran = false;
        for (int w : warps) {
            // Warps are kept as far apart as barriers allow: each runs as far as it can, or, in
            // random order, for some turns.
            for (uint64_t turns = how == RANDOM ? 1 + next_random() % 16 : UINT64_MAX;
                    turns > 0 && run_warp(w, lanes); --turns) {
                ran = true;
                arrange(lanes, how);
            }
            if (!m.failure.empty()) {
                return;
            }
        }
        const bool ended = std::all_of(m.fibers.begin(), m.fibers.begin() + m.n_threads,
                [](const fiber & f) { return f.state == DONE; });
        if (!ran && (ended || !pass_barrier())) {
            return;
        }
    }
}

inline void run_grid(order how, size_t shared_bytes) {
    const int n_blocks = (int) (m.grid_dim.x * m.grid_dim.y * m.grid_dim.z);
    for (int b : arranged(n_blocks, how)) {
        m.block = { b % m.grid_dim.x, b / m.grid_dim.x % m.grid_dim.y,
            b / (m.grid_dim.x * m.grid_dim.y) };
        run_block(how);
        for (const dynamic_shared & d : dynamic_arrays) {
            if (m.failure.empty() &&
                    !std::all_of(d.data + std::min(shared_bytes, d.size), d.data + d.size,
                            [](char c) { return (unsigned char) c == 0xFF; })) {
                m.failure = "dynamic shared memory written beyond the " +
                            std::to_string(shared_bytes) + " bytes of the launch";
            }
        }
        if (!m.failure.empty()) {
            return;
        }
    }
    for (const buffer * b : buffers) {
        if (!b->slack_intact()) {
            m.failure = "out of bounds: written before the start of buffer " + b->name();
        }
    }
}

using contents = std::vector<std::pair<buffer *, std::string>>;

inline contents save_buffers() {
    contents all;
    for (buffer * b : buffers) {
        if (!b->constant()) {
            all.emplace_back(b, std::string(b->data(), b->size()));
        }
    }
    return all;
}

inline void restore_buffers(const contents & all) {
    for (const auto & one : all) {
        memcpy(one.first->data(), one.second.data(), one.second.size());
    }
}

// Runs body() as every thread of the grid, in the first n_orders orders, each time with the same
// initial contents of the buffers. Returns a description of the first failure; empty: none.
inline std::string launch(dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> body,
        int n_orders = N_ORDERS) {
    const unsigned n_threads = block.x * block.y * block.z;
    if (n_threads == 0 || n_threads > MAX_BLOCK_THREADS || grid.x == 0 || grid.y == 0 ||
            grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
        return "a GPU cannot launch this grid or block";
    }
    m.n_threads = (int) n_threads;
    m.grid_dim = grid;
    m.block_dim = block;
    m.body = std::move(body);
    m.failure.clear();
    if (m.fibers.size() < (n_threads + WARP - 1) / WARP * WARP) {
        m.fibers.resize((n_threads + WARP - 1) / WARP * WARP);
    }
    for (size_t i = n_threads; i < m.fibers.size(); ++i) {
        m.fibers[i].state = DONE;
    }
    m.at_warp.assign(m.fibers.size() / WARP, 0);

    struct sigaction act{}, old_segv{}, old_bus{};
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &act, &old_segv);
    sigaction(SIGBUS, &act, &old_bus);

    static const char * const names[N_ORDERS] = { "forward", "reverse", "random" };
    const contents            before = save_buffers();
    contents                  first;
    for (int o = 0; o < n_orders && m.failure.empty(); ++o) {
        restore_buffers(before);
        run_grid((order) o, shared_bytes);
        if (!m.failure.empty()) {
            m.failure += std::string(" (order: ") + names[o] + ")";
        } else if (o == FORWARD) {
            first = save_buffers();
        } else {
            for (const auto & one : first) {
                if (memcmp(one.first->data(), one.second.data(), one.second.size()) != 0) {
                    m.failure = "a race: buffer " + one.first->name() +
                                " differs between forward and " + names[o] + " order";
                }
            }
        }
    }
    sigaction(SIGSEGV, &old_segv, nullptr);
    sigaction(SIGBUS, &old_bus, nullptr);
    return m.failure;
}

} // namespace cuda_emu

// Defines an `extern __shared__ type name[]` of a kernel. Use it once, at file scope.
#define CUDA_EMU_DYNAMIC_SHARED(type, name)                       \
    alignas(16) thread_local type name[48 * 1024 / sizeof(type)]; \
    static const cuda_emu::dynamic_register name##_registered(name, sizeof(name))

#define threadIdx             (cuda_emu::current->thread)
#define blockIdx              (cuda_emu::m.block)
#define blockDim              (cuda_emu::m.block_dim)
#define gridDim               (cuda_emu::m.grid_dim)

#define __syncthreads()       cuda_emu::barrier_block(__LINE__)
#define __syncwarp(...)       cuda_emu::barrier_warp{ __LINE__ }(__VA_ARGS__)
#define __shfl_sync(...)      cuda_emu::shuffle_idx(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...)  cuda_emu::shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) cuda_emu::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...)   cuda_emu::shuffle_up(__LINE__, __VA_ARGS__)
#define atomicAdd(p, value)   cuda_emu::atomic_add(p, value)
