// The CUDA chunk kernels of the Householder scan, run by cuda-emu.h on the CPU, against the oracle
// (kit/cuda-chunk.h); where nothing rounds, the bits of the step kernel. cuda-emu.h emulates the
// tensor cores too. The code that chooses kernels on a GPU also chooses them here
// (launch-householder.cuh). With --ptx <folder>, the PTX of the kernels is interpreted instead
// (kit/ptx/ptx.h), with tensor cores that add in several orders: a part of the cases, or all of
// them with --all.

#include "kit/cuda-emu.h"

#include "cuda/launch-householder.cuh"

#include "kit/cuda-chunk.h"

static std::string run_node(ggml_tensor * op, int n_orders, const path_gpu & on) {
    return run_on_device(op, householder_work_floats(op, on), n_orders,
            [&](const ggml_tensor * node, float * work, auto && launch) {
                launch_householder(node, on, work, launch);
            });
}

// Limits of the NMSE, up to 512 tokens
static const double independent = 1e-10; // independent keys
static const double shared_mean = 1e-8;  // keys with a common mean

static const chunk_suite suite = {
    make_householder,
    "householder.ptx",
    test_householder_names,
    { 0, 1, 2, 5 }, // beta with every kind of gate; r and w with a gate per channel
    { 0, 1, 2, 5 },
    { 0, 1, 2, 5 },
    5,
    3, // modes with beta
    independent,
    50,
    5,
    {
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_NONE, CHUNK_DELTA>,
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_HEAD, CHUNK_DELTA>,
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_CHANNEL, CHUNK_DELTA>,
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_CHANNEL, CHUNK_RANK_ONE>,
    },
    {
            (const void *) chunk_scan<16, true>,
            (const void *) chunk_scan<32, true>,
            (const void *) chunk_scan<64, true>,
            (const void *) chunk_scan<96, true>,
            (const void *) chunk_scan<128, true>,
            (const void *) chunk_scan<192, true>,
            (const void *) chunk_scan<256, true>,
    },
    {},
    householder_choose,
};

// Gates so small that their products vanish, gates larger than 1, and beta above 2. Nothing is
// clamped or divided by a gate.
static void test_hard_gates(test * t) {
    test_rng   rng = { 4 };
    test_worst worst = worst_of("gates 1e-30 .. 1.2, beta 2.2 .. 2.5", independent);
    for (int n = 0; n < 16; ++n) {
        const int  mode = n < 12 ? 1 + n % 2 : 5, n_h = suite.factors(mode, 1 + n / 2 % 3);
        owned_scan c(suite.make, { mode, 24, 8, 1, n_h, n, batch_of({ 90 / n_h }, 0, n) }, &rng);
        fill_hard_gates(c.s.householder.gate, &rng, n < 6 || n == 12, mode == 5);
        if (n >= 6 && n < 12) {
            test_fill_uniform(c.s.householder.beta, &rng, 2.2, 2.5);
        }
        run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_CHUNK);
    }
    test_worst_print(&worst);
}

// A NaN in v appears in its column, from its token on, and in no other column, head or sequence.
static void test_nan(test * t) {
    test_rng          rng = { 6 };
    const problem     p = { 1, 24, 20, 2, 2, 1, batch_of({ 50, 40 }) }; // v has two heads
    owned_scan        c(suite.make, p, &rng);
    test_scan &       s = c.s;
    ggml_tensor *     state = s.householder.state;
    const std::string before = bytes_of(state);
    const int64_t     first = ((const int32_t *) s.householder.ids->data)[GGML_SCAN_FIRST];
    const int64_t     token = first + 35, column = 17;
    test_check(t, s.householder.v->ne[1] == 2, "v has %d heads", (int) s.householder.v->ne[1]);
    ggml_tensor * clean = build(t, &c.a, &s, GGML_SCAN_PATH_CHUNK);
    test_check(t, run_node(clean, 1).empty(), "%s", s.text);
    memcpy(state->data, before.data(), before.size());
    test_set(s.householder.v, column, 1, 0, token, NAN);
    ggml_tensor * op = build(t, &c.a, &s, GGML_SCAN_PATH_CHUNK);
    test_check(t, run_node(op, 1).empty(), "%s", s.text);

    bool there = true, elsewhere = false;
    for (int64_t n = 0; n < op->ne[2]; ++n) {
        for (int64_t h = 0; h < 2; ++h) {
            for (int64_t j = 0; j < p.d_v; ++j) {
                const float x = test_get(op, j, h, n, 0);
                if (h == 1 && j == column && n >= first && n < first + p.batch.len[0]) {
                    // earlier tokens of the chunk multiply the NaN by zero
                    there = there && (n < token || isnan(x));
                } else {
                    elsewhere = elsewhere || x != test_get(clean, j, h, n, 0);
                }
            }
        }
    }
    test_check(t, there, "a NaN in v is missing in the output");
    test_check(t, !elsewhere, "a NaN in v changed another column, head or sequence");
    printf("  a NaN stays in its column, head and sequence\n");
}

// Where nothing rounds, chunk and step kernels give the same, correct bits, in one call or in many.
static void test_exact(test * t) {
    const int          T = is_short() ? 400 : 4000;
    test_rng           rng = { 9 };
    std::vector<float> want;
    test_arena         a;
    test_arena_init(&a);
    test_scan         s = make_word(&a, &rng, T, true, &want);
    ggml_tensor *     state = s.householder.state;
    const std::string before = bytes_of(state);
    const std::string right((const char *) want.data(), want.size() * sizeof(float));

    ggml_tensor * step = build(t, &a, &s, GGML_SCAN_PATH_STEP);
    test_check(t, run_node(step, 1).empty(), "step: %s", s.text);
    const std::string step_state = bytes_of(state);
    test_check(t, bytes_of(step) == right, "step is wrong: %s", s.text);

    memcpy(state->data, before.data(), before.size());
    ggml_tensor * chunk = build(t, &a, &s, GGML_SCAN_PATH_CHUNK);
    test_check(t, run_node(chunk, 1).empty(), "chunk: %s", s.text);
    test_check(t, bytes_of(chunk) == right, "chunk is wrong: %s", s.text);
    test_check(t, bytes_of(state) == step_state, "the states of chunk and step differ: %s", s.text);

    memcpy(state->data, before.data(), before.size());
    test_check(t,
            run_in_calls(t, &s, &rng, GGML_SCAN_PATH_AUTO, 300) == right &&
                    bytes_of(state) == step_state,
            "chunk in several calls is wrong: %s", s.text);
    test_arena_free(&a);
    printf("exact: %d letters of S_5 with a value written at every factor: step, chunk and calls "
           "of\n"
           "  up to 300 letters are correct to the bit\n",
            T);
}

// r and w: rows of S change their signs and integers are added, so nothing rounds.
static void test_exact_rank_one(test * t) {
    const int                    T = is_short() ? 300 : 2000;
    test_rng                     rng = { 13 };
    owned_scan                   c(suite.make, { 5, 20, 18, 1, 1, 0, batch_of({ T }) }, &rng);
    ggml_householder_scan_args & x = c.s.householder;
    x.scale = 0.5f;
    test_fill(x.r, 0.0f);
    test_fill(x.w, 0.0f);
    fill_integers(x.q, &rng, 2);
    fill_integers(x.k, &rng, 1);
    fill_integers(x.v, &rng, 3);
    fill_integers(x.state, &rng, 4);
    for (int64_t n = 0; n < T; ++n) {
        for (int64_t i = 0; i < x.gate->ne[0]; ++i) {
            test_set(x.gate, i, 0, 0, n, test_below(&rng, 60) == 0 ? 0.0f : n % 3 ? 1.0f : -1.0f);
        }
        const int64_t i = test_below(&rng, x.gate->ne[0]); // row i: (g − 2 g) S
        test_set(x.r, i, 0, 0, n, 1.0f);
        test_set(x.w, i, 0, 0, n, 2.0f * test_get(x.gate, i, 0, 0, n));
    }
    run_exact(t, suite, &c.a, &c.s);
    printf("exact: %d tokens with r and w, integers: chunk and step give the same numbers\n", T);
}

// Blocks of the kernel that prepares: one per chunk at most, and never more than tokens.
static void test_grid(test * t) {
    static const struct {
        int      n_seqs, n_snap, T;
        unsigned chunks;
    } cases[] = {
        { 1, 0, 128, 3 }, // two full chunks, one partial
        { 2, 3, 128, 6 }, // and a tail each
        { 2, 60, 90, 5 },
        { 3, 0, 3, 3 },
    };
    test_rng rng = { 11 };
    for (const auto & one : cases) {
        problem p = { 0, 16, 4, 1, 1, 0, {} };
        p.batch.n_seqs = one.n_seqs;
        p.batch.n_snap = one.n_snap;
        std::fill_n(p.batch.len, one.n_seqs, one.T / one.n_seqs);
        owned_scan    c(suite.make, p, &rng);
        ggml_tensor * op = build(t, &c.a, &c.s, GGML_SCAN_PATH_CHUNK);
        unsigned      x = 0;
        float         work;
        launch_householder(op, test_gpu, &work, [&](auto kernel, dim3 grid, dim3, const auto &) {
            x = suite.prepare.count((const void *) kernel) > 0 ? grid.x : x;
        });
        test_check(t, x == one.chunks, "%d sequences, %d snapshots, %d tokens: %u blocks",
                one.n_seqs, one.n_snap, one.T, x);
    }
}

// Errors in the PTX of the chunk kernels. Every barrier is needed.
static void test_broken(test * t) {
    const std::string prepare = "chunk_prepareILi1ELi0E", rank = "chunk_prepareILi2ELi2E",
                      chunk = "chunk_scanILi64ELb1E";
    std::vector<breakage> all = {
        { "prepare: a removed wait",
                { prepare, "cp.async.wait_group", 0, "cp.async.wait_group 1;", "" },
                "before the cp.async to it was waited for" },
        { "prepare, r and w: a removed wait",
                { rank, "cp.async.wait_group", 0, "cp.async.wait_group 0;", "" },
                "before the cp.async to it was waited for" },
        { "prepare, r and w: swapped rows of a fragment", { rank, "mma.sync", 2, "}, {", PTX_SWAP },
                nullptr },
        { "prepare, r and w: an argument that is not loaded",
                { rank, "ld.param.u32", 0, "ld.param", "//" }, "an undefined value is used" },
        { "prepare: swapped rows of a fragment", { prepare, "mma.sync", 2, "}, {", PTX_SWAP },
                nullptr },
        { "chunk: swapped rows of a fragment", { chunk, "mma.sync", 2, "}, {", PTX_SWAP },
                nullptr },
        { "chunk: a misaligned vector load", { chunk, "ld.shared.v4", 0, "]", "+8]" },
                "misaligned" },
    };
    add_barriers(&all, "prepare, r and w: a deleted barrier", rank, 4, 2);
    add_barriers(&all, "prepare: a deleted barrier", prepare, 6);
    add_barriers(&all, "chunk: a deleted barrier", chunk, 6);
    run_all_broken(t, suite, all, [&](const breakage & b) -> problem {
        // with a gate per head, its barrier makes the last one of a chunk redundant
        const bool is_last = b.change.kernel == chunk && b.change.which == 5;
        const int  mode = b.change.kernel == rank ? 5 : is_last ? 0 : 1;
        return { mode, 64, 20, 1, suite.factors(mode, 2), 1, batch_of({ 75 }) };
    });
}

int main(int argc, char ** argv) {
    test      t = {};
    const int end = begin_test(argc, argv, { "householder.ptx" });
    if (end >= 0) {
        return end;
    }
    printf("householder, chunk: every instance with every gate; NMSE of outputs and states:\n");
    test_instances(&t, suite);
    // OLMo-Hybrid, DeltaProduct of fla, KDA, RWKV-7
    test_real_sizes(&t, suite, "96 x 192, 256 x 512, 128 x 128, 64 x 64",
            { { 1, 96, 192, 1 }, { 0, 256, 512, 2 }, { 2, 128, 128, 1 }, { 5, 64, 64, 1 } });
    test_random(&t, suite);
    test_borders(&t, suite);
    test_hard_gates(&t);
    test_out_of_range(&t, suite);
    test_nan(&t);
    test_cuts(&t, suite);
    test_paths(&t, suite,
            {
                    { 0, 16, 1, 1, 15, GGML_SCAN_PATH_AUTO, true, false },
                    { 1, 16, 2, 1, 400, GGML_SCAN_PATH_AUTO, false, true },
                    { 1, 16, 1, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
                    { 5, 16, 1, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
                    { 0, 16, 1, 1, 1, GGML_SCAN_PATH_CHUNK, false, true },
                    { 0, 16, 1, 2, 20, GGML_SCAN_PATH_CHUNK, false, true },
                    { 0, 16, 1, 1, 200, GGML_SCAN_PATH_STEP, true, false },
                    { 0, 16, 1, 1, 200, GGML_SCAN_PATH_REFERENCE, true, false },
                    { 4, 16, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false }, // not per channel
                    { 3, 16, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
                    { 0, 257, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
                    { 0, 256, 1, 1, 2, GGML_SCAN_PATH_CHUNK, false, true },
                    { 0, 8, 65, 1, 3, GGML_SCAN_PATH_CHUNK, true, false },
                    { 0, 8, 64, 1, 3, GGML_SCAN_PATH_CHUNK, false, true },
            });
    test_mixed(&t, suite);
    test_grid(&t);
    test_lengths(&t, suite,
            {
                    { 0, 64, 1, 512, independent, 0.0, 2.0 },
                    { 0, 128, 1, 512, independent, 0.0, 2.0 },
                    { 1, 64, 2, 512, independent, 0.0, 2.0 },
                    { 2, 64, 1, 512, independent, 0.0, 2.0 },
                    { 0, 64, 3, 512, independent, 0.0, 0.0 },
                    { 5, 64, 1, 512, independent, 0.0, 2.0 },
                    { 0, 128, 1, 512, shared_mean, 1.0, 2.0 },
                    { 0, 64, 3, 512, shared_mean, 1.0, 2.0 },
                    { 1, 64, 1, 512, shared_mean, 3.0, 2.0 },
                    { 2, 64, 1, 512, shared_mean, 1.0, 2.0 },
                    { 0, 64, 1, 4096, 1e-9, 0.0, 2.0 },
                    { 1, 32, 2, 4096, 1e-9, 0.0, 0.0 }, // 8 times the tokens, 10 times the limit
                    { 0, 64, 1, 2048, 1e-6, 1e6, 2.0 }, // equal keys: every T_ei is ±4
                    { 0, 64, 1, 512, 1e-6, 1e6, 2.0 },
            });
    test_exact(&t);
    test_exact_rank_one(&t);
    run_s5(&t, GGML_SCAN_PATH_CHUNK);
    if (ptx_run.on) {
        test_broken(&t);
    }
    return end_chunk_test(&t, suite, "test-cuda-chunk");
}
