// The CUDA chunk kernels of the signed-gate scan, run by cuda-emu.h on the CPU, against the oracle
// (kit/cuda-chunk.h); gates that are zero, tiny or larger than 1; where nothing rounds, the bits of
// the step kernel. With --ptx <folder>, the PTX of the kernels is interpreted instead
// (kit/ptx/ptx.h): a part of the cases, or all of them with --all.

#include "kit/cuda-emu.h"

#include "cuda/launch-signed.cuh"

#include "kit/cuda-chunk.h"

static std::string run_node(ggml_tensor * op, int n_orders, const path_gpu & on) {
    return run_on_device(op, signed_work_floats(op, on), n_orders,
            [&](const ggml_tensor * node, float * work, auto && launch) {
                launch_signed(node, on, work, launch);
            });
}

static const double limit = 1e-12; // of the NMSE, up to 512 tokens, as for the step path

static const chunk_suite suite = {
    make_signed,
    "signed.ptx",
    test_signed_names,
    // the others (Mamba, a bonus without a gate per channel) are computed step by step
    { MODE_NONE, MODE_HEAD, MODE_CHANNEL, MODE_CONST_HEAD, MODE_CONST_CHANNEL, MODE_BONUS,
            MODE_MAMBA2, MODE_MAMBA2_SIGNED, MODE_MLSTM, MODE_MLSTM_HARD },
    { MODE_NONE, MODE_HEAD, MODE_CHANNEL, MODE_BONUS },
    { MODE_HEAD, MODE_CHANNEL, MODE_BONUS, MODE_MAMBA2, MODE_MLSTM },
    MODE_BONUS,
    0, // one factor per token
    limit,
    30,
    8,
    {
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_NONE, CHUNK_DIAGONAL>,
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_HEAD, CHUNK_DIAGONAL>,
            (const void *) chunk_prepare<HOUSEHOLDER_GATE_CHANNEL, CHUNK_DIAGONAL>,
    },
    {
            (const void *) chunk_scan<16, false>,
            (const void *) chunk_scan<32, false>,
            (const void *) chunk_scan<64, false>,
            (const void *) chunk_scan<96, false>,
            (const void *) chunk_scan<128, false>,
            (const void *) chunk_scan<192, false>,
            (const void *) chunk_scan<256, false>,
    },
    { (const void *) signed_chunk_gates, (const void *) mlstm_normalize },
    signed_choose,
};

// Gates so small that their products vanish, exact zeros, and gates larger than 1. Nothing is
// clamped or divided by a gate.
static void test_hard_gates(test * t) {
    test_rng   rng = { 5 };
    test_worst worst = worst_of("gates 0, 1e-30 .. 1.2, of any sign", limit);
    for (int n = 0; n < 12; ++n) {
        const int  mode = n % 3 == 0 ? MODE_HEAD : n % 3 == 1 ? MODE_CHANNEL : MODE_BONUS;
        owned_scan c(suite.make, { mode, 24, 8, 1, 1, n, batch_of({ 90 }, 0, n) }, &rng);
        fill_hard_gates(c.s.sign.gate, &rng, n < 6, true);
        run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_CHUNK);
    }
    test_worst_print(&worst);
}

// Where nothing rounds, chunk and step kernels give the same bits, in one call or in many: small
// integers and gates 0, 1 and −1.
static void test_exact(test * t) {
    const int T = is_short() ? 300 : 2000;
    test_rng  rng = { 9 };
    for (const int mode : { MODE_NONE, MODE_HEAD, MODE_CHANNEL, MODE_BONUS }) {
        owned_scan              c(suite.make, { mode, 20, 18, 1, 1, 0, batch_of({ T }) }, &rng);
        ggml_signed_scan_args & x = c.s.sign;
        x.scale = 0.5f;
        fill_integers(x.c, &rng, 2);
        fill_integers(x.b, &rng, 2);
        fill_integers(x.x, &rng, 3);
        fill_integers(x.bonus, &rng, 2);
        fill_integers(x.gate, &rng, 1);
        fill_integers(x.state, &rng, 4);
        run_exact(t, suite, &c.a, &c.s);
    }
    printf("exact: %d tokens of integers, gates 0, 1 and -1: chunk and step are equal\n", T);
}

// Errors in the PTX of the chunk kernels. Every barrier is needed.
static void test_broken(test * t) {
    const std::string     head = "chunk_prepareILi1ELi1E";
    const std::string     chan = "chunk_prepareILi2ELi1E";
    const std::string     chunk = "chunk_scanILi64ELb0E";
    std::vector<breakage> all = {
        { "prepare: a removed wait",
                { chan, "cp.async.wait_group", 0, "cp.async.wait_group 0;", "" },
                "before the cp.async to it was waited for" },
        { "prepare: swapped rows of a fragment", { chan, "mma.sync", 2, "}, {", PTX_SWAP },
                nullptr },
        { "chunk: swapped rows of a fragment", { chunk, "mma.sync", 2, "}, {", PTX_SWAP },
                nullptr },
    };
    add_barriers(&all, "prepare, gate per head: a deleted barrier", head, 4);
    add_barriers(&all, "prepare, gate per channel: a deleted barrier", chan, 3, 2);
    add_barriers(&all, "chunk: a deleted barrier", chunk, 3);
    run_all_broken(t, suite, all, [&](const breakage & b) -> problem {
        // without a gate per head, its barrier does not make the last one of a chunk redundant
        const bool is_last = b.change.kernel == chunk && b.change.which == 2;
        const int  mode = b.change.kernel == chan ? MODE_CHANNEL : is_last ? MODE_NONE : MODE_HEAD;
        return { mode, 64, 20, 1, 1, 1, batch_of({ 150 }) };
    });
}

int main(int argc, char ** argv) {
    test      t = {};
    const int end = begin_test(argc, argv, { "signed.ptx" });
    if (end >= 0) {
        return end;
    }
    printf("signed, chunk: every instance; NMSE of outputs and states:\n");
    test_instances(&t, suite);
    // Mamba-2, GLA, RWKV-6, xLSTM-7B
    test_real_sizes(&t, suite, "128 x 64, 256 x 512, 64 x 64, 256 x 512",
            { { MODE_MAMBA2, 128, 64, 1 }, { MODE_CHANNEL, 256, 512, 1 }, { MODE_BONUS, 64, 64, 1 },
                    { MODE_MLSTM, 256, 512, 1 } });
    test_random(&t, suite);
    test_borders(&t, suite);
    test_hard_gates(&t);
    test_out_of_range(&t, suite);
    test_cuts(&t, suite);
    test_paths(&t, suite,
            {
                    { MODE_HEAD, 16, 1, 1, 15, GGML_SCAN_PATH_AUTO, true, false },
                    { MODE_HEAD, 16, 1, 1, 400, GGML_SCAN_PATH_AUTO, false, true },
                    { MODE_CHANNEL, 16, 1, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
                    { MODE_BONUS, 16, 1, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
                    { MODE_MLSTM, 16, 1, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
                    { MODE_HEAD, 16, 1, 1, 1, GGML_SCAN_PATH_CHUNK, false, true },
                    { MODE_HEAD, 16, 1, 1, 200, GGML_SCAN_PATH_STEP, true, false },
                    { MODE_HEAD, 16, 1, 1, 200, GGML_SCAN_PATH_REFERENCE, true, false },
                    { MODE_BONUS_HEAD, 16, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
                    { MODE_BONUS_NONE, 16, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
                    { MODE_MAMBA, 16, 1, 1, 200, GGML_SCAN_PATH_AUTO, true, false },
                    { MODE_HEAD, 257, 1, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
                    { MODE_MLSTM, 256, 1, 1, 2, GGML_SCAN_PATH_CHUNK, false, true },
            });
    test_mixed(&t, suite);
    test_lengths(&t, suite,
            {
                    { MODE_NONE, 64, 1, 512, limit, 0.0, 0.0 },
                    { MODE_HEAD, 128, 1, 512, limit, 0.0, 0.0 },
                    { MODE_CHANNEL, 64, 1, 512, limit, 0.0, 0.0 },
                    { MODE_BONUS, 64, 1, 512, limit, 0.0, 0.0 },
                    { MODE_MAMBA2_SIGNED, 64, 1, 512, limit, 0.0, 0.0 },
                    { MODE_MLSTM, 64, 1, 512, limit, 0.0, 0.0 },
                    { MODE_NONE, 32, 1, 4096, 1e-11, 0.0,
                            0.0 }, // 8 times the tokens, 10 times the limit
                    { MODE_CHANNEL, 32, 1, 4096, 1e-11, 0.0, 0.0 },
            });
    test_exact(&t);
    if (ptx_run.on) {
        test_broken(&t);
    }
    return end_chunk_test(&t, suite, "test-cuda-signed-chunk");
}
