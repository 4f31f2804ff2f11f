// The PTX interpreter itself: correct kernels give the correct numbers, and each deliberate error
// is reported with the right message. test-ptx-kernels and test-ptx-chunk interpret the PTX of our
// kernels.

#include "kit/check.h"
#include "kit/ptx/ptx.h"
#include "kit/rng.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

struct arguments {
    const float * in;
    float *       out;
    int           n;
};

// The beginning and the end of every kernel here: %rd1 is `in`, %rd2 is `out`, %rd3 and %rd4 are
// the elements of this thread in them, %r1 is the thread, %p1 is true in the first half of a warp.
static std::string kernel_of(const std::string & body) {
    return R"(.version 9.0
.target sm_80
.address_size 64
// a comment
.visible .entry test(.param .align 8 .b8 test_param_0[24])
.maxntid 128, 1, 1
{
    .reg .pred %p<20>;
    .reg .f32 %f<40>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    .reg .f64 %fd<20>;
    .shared .align 16 .b8 row[512];
    .shared .align 16 .b8 other[512];
    ld.param.u64 %rd1, [test_param_0];
    ld.param.u64 %rd2, [test_param_0+8];
    ld.param.u32 %r3, [test_param_0+16];
    mov.u32 %r1, %tid.x;
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd3, %rd1, %rd5;
    add.s64 %rd4, %rd2, %rd5;
    and.b32 %r2, %r1, 31;
    setp.lt.s32 %p1, %r2, 16;
    shl.b32 %r4, %r1, 2;
    mov.u32 %r5, row;
    add.s32 %r6, %r5, %r4;
)" + body + R"(
    ret;
}
)";
}

struct outcome {
    std::string        error;
    std::vector<float> out;
    ptx::counts        n;
};

enum { IN = 256, OUT = 128 }; // numbers

static outcome run(const std::string & body, unsigned threads = 32, unsigned blocks = 1,
        mma_order order = MMA_ALIGNED, size_t args_bytes = sizeof(arguments)) {
    outcome     o;
    ptx::module m;
    o.error = m.parse(kernel_of(body), "test");
    if (!o.error.empty()) {
        return o;
    }
    static float in[IN];
    o.out.assign(OUT, 7.0f);
    for (int i = 0; i < IN; ++i) {
        in[i] = 0.5f * (float) i;
    }
    const arguments args = { in, o.out.data(), 3 };
    ptx::memory     mem;
    mem.add("in", in, sizeof(in), ptx::CONSTANT);
    mem.add("out", o.out.data(), OUT * sizeof(float), ptx::FRESH);
    ptx::extent grid, block;
    grid.x = blocks;
    block.x = threads;
    o.error = ptx::launch(m.kernels.at("test"), grid, block, &args, args_bytes, mem, order, &o.n);
    return o;
}

static void accepts(test * t, const char * what, const std::string & body, unsigned threads,
        float (*want)(int thread)) {
    const outcome o = run(body, threads);
    test_check(t, o.error.empty(), "%s: %s", what, o.error.c_str());
    for (unsigned i = 0; i < threads && o.error.empty(); ++i) {
        test_check(t, o.out[i] == want((int) i), "%s: thread %u has %g; expected %g", what, i,
                o.out[i], want((int) i));
    }
}

static void rejects(test * t, const char * what, const char * message, const std::string & body,
        unsigned threads = 32, unsigned blocks = 1) {
    const outcome o = run(body, threads, blocks);
    test_check(t, o.error.find(message) != std::string::npos, "%s: '%s'; expected '%s'", what,
            o.error.c_str(), message);
}

//
// Correct kernels
//

static void test_control(test * t) {
    accepts(t, "copy", "ld.global.f32 %f1, [%rd3]; st.global.f32 [%rd4], %f1;", 128,
            [](int i) { return 0.5f * (float) i; });
    // lanes leave a loop one after another and meet again at the shuffle
    accepts(t, "divergent loop", R"(
    mov.u32 %r7, 0;
$LOOP:
    setp.ge.s32 %p2, %r7, %r2;
    @%p2 bra $DONE;
    add.s32 %r7, %r7, 1;
    bra.uni $LOOP;
$DONE:
    shfl.sync.bfly.b32 %r8|%p3, %r7, 1, 31, -1;
    cvt.rn.f32.s32 %f1, %r8;
    st.global.f32 [%rd4], %f1;)",
            32, [](int i) { return (float) (i ^ 1); });
    // one side of a branch is far away and comes back
    accepts(t, "code out of line", R"(
    mov.u32 %r7, 1;
    @%p1 bra $FAR;
$NEAR:
    shfl.sync.bfly.b32 %r8|%p3, %r7, 16, 31, -1;
    cvt.rn.f32.s32 %f1, %r8;
    st.global.f32 [%rd4], %f1;
    ret;
$FAR:
    mov.u32 %r7, 2;
    bra.uni $NEAR;)",
            32, [](int i) { return i < 16 ? 1.0f : 2.0f; });
    accepts(t, "shared memory", R"(
    ld.global.f32 %f1, [%rd3];
    st.shared.f32 [%r6], %f1;
    bar.sync 0;
    sub.s32 %r7, 63, %r1;
    shl.b32 %r7, %r7, 2;
    add.s32 %r7, %r7, %r5;
    ld.shared.f32 %f2, [%r7];
    st.global.f32 [%rd4], %f2;)",
            64, [](int i) { return 0.5f * (float) (63 - i); });
    accepts(t, "cp.async that reads, or writes zero", R"(
    selp.b32 %r7, 4, 0, %p1;
    cp.async.ca.shared.global [%r6], [%rd3], 4, %r7;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.f32 %f1, [%r6];
    st.global.f32 [%rd4], %f1;)",
            32, [](int i) { return i < 16 ? 0.5f * (float) i : 0.0f; });
    accepts(t, "cp.async", R"(
    cp.async.ca.shared.global [%r6], [%rd3], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 0;
    xor.b32 %r7, %r1, 33;
    shl.b32 %r7, %r7, 2;
    add.s32 %r7, %r7, %r5;
    ld.shared.f32 %f2, [%r7];
    st.global.f32 [%rd4], %f2;)",
            64, [](int i) { return 0.5f * (float) (i ^ 33); });
    accepts(t, "a half warp shuffles", R"(
    mov.f32 %f1, 0f00000000;
    @!%p1 bra $END;
    shfl.sync.bfly.b32 %r8|%p3, %r1, 1, 31, 65535;
    cvt.rn.f32.s32 %f1, %r8;
$END:
    st.global.f32 [%rd4], %f1;)",
            32, [](int i) { return i < 16 ? (float) (i ^ 1) : 0.0f; });
    // a load of something undefined whose value is not used
    accepts(t, "speculative load", R"(
    ld.shared.f32 %f2, [%r6];
    mov.f32 %f2, 0f40000000;
    st.global.f32 [%rd4], %f2;)",
            32, [](int) { return 2.0f; });
}

// fma, flushed subnormal numbers, division and remainder against the host
static void test_arithmetic(test * t) {
    test_rng          rng = { 1 };
    ptx::module       m;
    const std::string error = m.parse(kernel_of(R"(
    ld.global.f32 %f1, [%rd3];
    ld.global.f32 %f2, [%rd3+128];
    ld.global.f32 %f3, [%rd3+256];
    fma.rn.ftz.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd4], %f4;
    mov.b32 %r7, %f1;
    mov.b32 %r8, %f2;
    div.s32 %r9, %r7, %r8;
    mov.b32 %f5, %r9;
    st.global.f32 [%rd4+128], %f5;
    rem.u32 %r9, %r7, %r8;
    mov.b32 %f5, %r9;
    st.global.f32 [%rd4+256], %f5;
    add.ftz.f32 %f6, %f1, %f3;
    st.global.f32 [%rd4+384], %f6;)"),
            "arithmetic");
    test_check(t, error.empty(), "%s", error.c_str());
    int wrong = 0;
    for (int n = 0; n < 2000 && error.empty(); ++n) {
        float    in[96], out[128];
        uint32_t bits[96];
        for (int i = 0; i < 96; ++i) {
            // close exponents, so that sums cancel and round; some are subnormal
            const uint32_t exponent = (uint32_t) (n % 8 == 0 ? 0 : 120 + test_below(&rng, 12));
            bits[i] = exponent << 23 | (uint32_t) test_below(&rng, 1 << 23) |
                      (uint32_t) test_below(&rng, 2) << 31;
        }
        memcpy(in, bits, sizeof(in));
        const arguments args = { in, out, 0 };
        ptx::memory     mem;
        mem.add("in", in, sizeof(in), ptx::CONSTANT);
        mem.add("out", out, sizeof(out), ptx::FRESH);
        ptx::counts counts;
        ptx::extent one, warp;
        warp.x = 32;
        const std::string found = ptx::launch(
                m.kernels.at("test"), one, warp, &args, sizeof(args), mem, MMA_ALIGNED, &counts);
        test_check(t, found.empty(), "%s", found.c_str());
        for (int i = 0; i < 32; ++i) {
            const auto    flush = [](float x) { return fabsf(x) < 0x1p-126f ? 0.0f : x; };
            const float   a = flush(in[i]), b = flush(in[32 + i]), c = flush(in[64 + i]);
            const int32_t x = (int32_t) bits[i], y = (int32_t) bits[32 + i];
            int32_t       quotient, rest;
            memcpy(&quotient, &out[32 + i], 4);
            memcpy(&rest, &out[64 + i], 4);
            wrong += out[i] != flush(fmaf(a, b, c)) || out[96 + i] != flush(a + c) ||
                     (y != 0 && y != -1 && quotient != x / y) ||
                     (y != 0 && (uint32_t) rest != (uint32_t) x % (uint32_t) y);
        }
    }
    test_check(t, wrong == 0, "%d results of fma, add, div and rem are wrong", wrong);
    printf("fma, add, div and rem: 64,000 cases\n");
}

//
// Errors
//

static void test_text(test * t) {
    rejects(t, "unknown instruction", "frobnicate.s32: unknown instruction",
            "frobnicate.s32 %r7, %r1;");
    rejects(t, "unknown register", "unknown operand %r99", "add.s32 %r7, %r1, %r99;");
    rejects(t, "width", "wrong width", "add.s32 %r7, %r1, %rd1;");
    rejects(t, "width of a load", "wrong width", "ld.global.f32 %rd9, [%rd3];");
    rejects(t, "label", "unknown label", "bra $NOWHERE;");
    rejects(t, "operands", "expected 3 operands", "add.s32 %r7, %r1;");
    rejects(t, "cp.async", "another number of bytes",
            "cp.async.ca.shared.global [%r6], [%rd3], 3;");
    rejects(t, "parameter", "out of bounds", "ld.param.u64 %rd9, [test_param_0+24];");
    test_check(t, run("", 129).error.find("cannot launch") != std::string::npos, "129 threads");
    test_check(t, run("", 32, 1, MMA_ALIGNED, 16).error.find("takes 24 bytes") != std::string::npos,
            "the size of the arguments");
}

static void test_undefined(test * t) {
    rejects(t, "register", "an undefined value is used", "add.s32 %r7, %r9, 1;");
    rejects(t, "register of some lanes", "an undefined value is used",
            "@%p1 mov.u32 %r9, 1; add.s32 %r7, %r9, 1;");
    rejects(t, "predicate", "an undefined value is used", "@%p9 bra $END; $END:");
    rejects(t, "shared memory", "an undefined value is used",
            "ld.shared.f32 %f1, [%r6]; st.global.f32 [%rd4], %f1;");
    rejects(t, "output", "an undefined value is used",
            "ld.global.f32 %f1, [%rd4]; add.ftz.f32 %f1, %f1, %f1;");
    rejects(t, "half of a vector", "an undefined value is used", R"(
    mov.f32 %f1, 0f00000000;
    setp.ne.s32 %p2, %r1, 0;
    @%p2 bra $END;
    st.shared.f32 [%r5], %f1;
    ld.shared.v2.f32 {%f1, %f2}, [%r5];
    st.global.f32 [%rd4], %f2;
$END:)");
}

static void test_addresses(test * t) {
    rejects(t, "after the end", "out of bounds", "ld.global.f32 %f1, [%rd1+1024];");
    rejects(t, "before the start", "out of bounds", "ld.global.f32 %f1, [%rd1+-4];");
    rejects(t, "the last vector", "out of bounds",
            "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+1024];");
    rejects(t, "no buffer", "in no buffer", "mov.u64 %rd9, 64; ld.global.f32 %f1, [%rd9];");
    rejects(t, "constant", "a constant buffer is written",
            "mov.f32 %f1, 0f00000000; st.global.f32 [%rd1], %f1;");
    rejects(t, "misaligned number", "misaligned", "ld.global.f32 %f1, [%rd3+2];");
    rejects(t, "misaligned pair", "misaligned", "ld.global.v2.f32 {%f1, %f2}, [%rd1+4];");
    rejects(t, "misaligned vector", "misaligned",
            "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+8];");
    rejects(t, "misaligned store", "misaligned",
            "mov.f32 %f1, 0f00000000; st.global.v2.f32 [%rd2+4], {%f1, %f1};");
    rejects(t, "misaligned cp.async", "misaligned",
            "cp.async.cg.shared.global [%r5], [%rd1+4], 16;");
    rejects(t, "misaligned cp.async", "misaligned",
            "mov.u32 %r7, 16; cp.async.cg.shared.global [%r5], [%rd1+4], 16, %r7;");
    rejects(t, "half of a cp.async", "a part of its bytes",
            "mov.u32 %r7, 8; cp.async.cg.shared.global [%r5], [%rd1], 16, %r7;");
    rejects(t, "misaligned target", "misaligned",
            "add.s32 %r7, %r5, 4; cp.async.ca.shared.global [%r7], [%rd1], 8;");
    rejects(t, "shared, misaligned", "misaligned",
            "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r5+8];");
    rejects(t, "shared, after a variable", "out of bounds",
            "mov.f32 %f1, 0f00000000; st.shared.f32 [%r5+512], %f1;");
    rejects(t, "shared, before a variable", "out of bounds",
            "mov.f32 %f1, 0f00000000; st.shared.f32 [%r5+-4], %f1;");
}

static void test_races(test * t) {
    const std::string put = "mov.f32 %f1, 0f00000000; st.shared.f32 [%r6], %f1;";
    const std::string neighbor =
            "xor.b32 %r7, %r1, 32; shl.b32 %r7, %r7, 2; add.s32 %r7, %r7, %r5;";
    rejects(t, "read of another warp's number", "a race: written",
            put + neighbor + "ld.shared.f32 %f2, [%r7];", 64);
    rejects(t, "write after another warp's read", "a race: read",
            put + "bar.sync 0;" + neighbor + "ld.shared.f32 %f2, [%r7]; st.shared.f32 [%r6], %f2;",
            64);
    rejects(t, "two writers", "a race: written",
            "mov.f32 %f1, 0f00000000; st.shared.f32 [%r5], %f1;");
    rejects(t, "a lane of the same warp", "a race: read",
            put + "xor.b32 %r7, %r1, 1; shl.b32 %r7, %r7, 2; add.s32 %r7, %r7, %r5;"
                  "ld.shared.f32 %f2, [%r7];");
    rejects(t, "two blocks", "two blocks", "mov.f32 %f1, 0f00000000; st.global.f32 [%rd4], %f1;",
            32, 2);
    rejects(t, "two threads in global memory", "a race: written",
            "mov.f32 %f1, 0f00000000; st.global.f32 [%rd2], %f1;");
    const outcome o = run(put + "bar.sync 0;" + neighbor +
                                  "ld.shared.f32 %f2, [%r7]; bar.sync 0; st.shared.f32 [%r6], %f2;",
            64);
    test_check(t, o.error.empty(), "barriers in between: %s", o.error.c_str());
}

static void test_copies(test * t) {
    const std::string copy = "cp.async.ca.shared.global [%r6], [%rd3], 4; cp.async.commit_group;";
    const std::string use = "ld.shared.f32 %f1, [%r6]; st.global.f32 [%rd4], %f1;";
    rejects(t, "no wait", "before the cp.async to it was waited for", copy + use);
    rejects(t, "wait for an older group", "before the cp.async to it was waited for",
            copy + "cp.async.wait_group 1;" + use);
    rejects(t, "no commit", "before the cp.async to it was waited for",
            "cp.async.ca.shared.global [%r6], [%rd3], 4; cp.async.wait_group 0;" + use);
    rejects(t, "barrier instead of a wait", "before the cp.async to it was waited for",
            copy + "bar.sync 0;" + use);
    rejects(t, "wait without a barrier", "a race: read",
            copy + "cp.async.wait_group 0; xor.b32 %r7, %r4, 4; add.s32 %r7, %r7, %r5;"
                   "ld.shared.f32 %f1, [%r7];");
    rejects(t, "overwritten", "while a cp.async to it is pending",
            copy + "mov.f32 %f1, 0f00000000; st.shared.f32 [%r6], %f1;");
    rejects(t, "pending at the end", "ends with copies pending", copy);
    rejects(t, "from nowhere", "out of bounds", "cp.async.ca.shared.global [%r6], [%rd3+1024], 4;");
    const outcome o = run(copy + "cp.async.wait_group 0;" + use);
    test_check(t, o.error.empty(), "a thread's own copy: %s", o.error.c_str());
}

static void test_warps(test * t) {
    rejects(t, "a lane has ended", "lanes are missing",
            "@%p1 ret; shfl.sync.bfly.b32 %r7|%p2, %r1, 1, 31, -1;");
    rejects(t, "a branch without the others", "lanes are missing", R"(
    @%p1 bra $END;
    shfl.sync.bfly.b32 %r7|%p2, %r1, 1, 31, -1;
$END:)");
    rejects(t, "not in its own mask", "lanes are missing",
            "shfl.sync.bfly.b32 %r7|%p2, %r1, 1, 31, 65535;");
    rejects(t, "source not in the mask", "shuffle from lane", R"(
    @!%p1 bra $END;
    shfl.sync.bfly.b32 %r7|%p2, %r1, 16, 31, 65535;
$END:)");
    rejects(t, "undefined in the source lane", "an undefined value is used",
            "@%p1 mov.u32 %r9, 1; shfl.sync.bfly.b32 %r7|%p2, %r9, 16, 31, -1;");
    rejects(t, "barrier in a branch", "lanes are missing", "@%p1 bar.sync 0;");
    rejects(t, "a warp does not reach the barrier", "barrier not reached by all threads",
            "setp.gt.s32 %p2, %r1, 31; @%p2 ret; bar.sync 0;", 64);
    rejects(t, "two barriers", "barrier not reached by all threads", R"(
    setp.gt.s32 %p2, %r1, 31;
    @%p2 bra $SECOND;
    bar.sync 0;
    bra.uni $END;
$SECOND:
    bar.sync 0;
$END:)",
            64);
    rejects(t, "lanes that ended before the barrier", "barrier not reached by all threads",
            "@%p1 ret; bar.sync 0;");
}

// D = A B + C of one warp, with integers: exact in every order. Then numbers for which the orders
// differ.
static void test_mma(test * t) {
    const std::string mma = R"(
    cvt.rn.f32.s32 %f1, %r2;
    mov.b32 %r7, %f1;
    mov.f32 %f2, 0f3F800000;
    mov.b32 %r8, %f2;
    mov.f32 %f5, 0f00000000;
    mov.f32 %f6, 0f00000000;
    mov.f32 %f7, 0f00000000;
    mov.f32 %f8, 0f00000000;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f5, %f6, %f7, %f8}, {%r7, %r7, %r7, %r7},
        {%r8, %r8}, {%f5, %f6, %f7, %f8};
    st.global.f32 [%rd4], %f5;)";
    for (int order = 0; order < N_MMA_ORDERS; ++order) {
        const outcome o = run(mma, 32, 1, (mma_order) order);
        test_check(t, o.error.empty(), "mma: %s", o.error.c_str());
        for (int l = 0; l < 32 && o.error.empty(); ++l) {
            // row g: lanes 4g .. 4g + 3, each in two columns
            const float want = 2.0f * (float) (4 * (l / 4) * 4 + 6);
            test_check(t, o.out[(size_t) l] == want, "mma, order %d, lane %d: %g; expected %g",
                    order, l, o.out[(size_t) l], want);
        }
    }
    // 1 + 2⁻¹⁰ + 2⁻¹¹ loses its last bit as an operand
    std::string cut = mma;
    cut.replace(cut.find("0f3F800000"), 10, "0f3F803000");
    const outcome o = run(cut);
    test_check(t, o.error.empty() && o.out[0] == 12.0f * (1.0f + 0x1p-10f),
            "an operand is not cut to TF32: %g", o.out[0]);
    rejects(t, "mma without a lane", "lanes are missing", "@%p1 ret;" + mma);
    rejects(t, "mma in a branch", "lanes are missing", "@%p1 bra $END;" + mma + "$END:");

    float c[N_MMA_ORDERS][2];
    for (int order = 0; order < N_MMA_ORDERS; ++order) {
        double a[8], b[8][8];
        for (int k = 0; k < 8; ++k) {
            a[k] = k == 7 ? 1.0 : 0x1p-24; // half of the last bit of 1
            b[k][0] = b[k][1] = 1.0;
        }
        c[order][0] = c[order][1] = 0.0f;
        mma_model::two(c[order], a, b, 0, (mma_order) order);
    }
    test_check(t,
            c[MMA_ALIGNED][0] == 1.0f && c[MMA_GROUPS][0] == 1.0f + 0x1p-22f &&
                    c[MMA_UP][0] == 1.0f + 0x1p-21f && c[MMA_DOWN][0] == 1.0f,
            "orders of additions: %a, %a, %a, %a", c[MMA_ALIGNED][0], c[MMA_GROUPS][0],
            c[MMA_UP][0], c[MMA_DOWN][0]);
}

int main() {
    test t = {};
    test_control(&t);
    test_arithmetic(&t);
    test_text(&t);
    test_undefined(&t);
    test_addresses(&t);
    test_races(&t);
    test_copies(&t);
    test_warps(&t);
    test_mma(&t);
    return test_end(&t, "test-ptx");
}
