// The CUDA chunk kernels of the signed-gate scan, run by cuda-emu.h on the CPU, against the oracle:
// every instance with every kind of gate, random shapes, lengths around the ends of chunks, ragged
// batches, slots in place, forks, snapshots, strides, head counts, ids out of range, cuts into
// calls, gates that are zero, tiny or larger than 1, long sequences; where nothing rounds, the bits
// of the step kernel. With --ptx <folder>, the PTX of the kernels is interpreted instead
// (kit/ptx/ptx.h): a part of the cases, or all of them with --all.

#include "kit/cuda-emu.h"

#include "cuda/launch-signed.cuh"

#include "kit/cuda-chunk.h"

static std::string run_node(ggml_tensor * op, int n_orders) {
    return run_on_device(op, signed_work_floats(op, test_gpu), n_orders,
            [&](const ggml_tensor * node, float * work, auto && launch) {
                launch_signed(node, test_gpu, work, launch);
            });
}

static const chunk_suite suite = {
    make_signed,
    "signed.ptx",
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

static const double limit = 1e-12; // of the NMSE, up to 512 tokens, as for the step path

// The modes with a chunk path. The others (Mamba, a bonus without a gate per channel) are computed
// step by step.
static const int modes[] = { NONE, HEAD, CHANNEL, CONST_HEAD, CONST_CHANNEL, BONUS, MAMBA2,
    MAMBA2_SIGNED, MLSTM, MLSTM_HARD };

// Padded and exact sizes of every instance, with every mode in turn; each kind of gate in each
static void test_instances(test * t) {
    test_rng rng = { 1 };
    int      n = 0;
    for (const int mode : modes) {
        test_worst worst = worst_of(signed_names[mode], limit);
        for (int i = 0; i < 14; ++i, ++n) {
            static const int columns[] = { 20, 16, 7 }; // two blocks, one, part of one

            problem p = {};
            p.mode = mode;
            p.d_k = chunk_sizes[i];
            p.d_v = columns[i % 3];
            p.H = p.d_k > 64 ? 1 : 2;
            p.n_h = 1;
            p.turn = n;
            p.batch.n_seqs = 2;
            p.batch.n_snap = n % 3;
            p.batch.turn = n;
            p.batch.len[0] = 71; // more than a chunk
            p.batch.len[1] = 3;
            // the modes between these use the same kernels
            const bool always = mode == NONE || mode == HEAD || mode == CHANNEL || mode == BONUS;
            if (always || ptx_run.takes(7)) {
                run_chunk(t, suite, p, &rng, &worst);
            }
        }
        test_worst_print(&worst);
    }
}

// Heads of real checkpoints: Mamba-2, GLA, RWKV-6, xLSTM-7B
static void test_real_sizes(test * t) {
    static const struct {
        int mode, d_k, d_v;
    } cases[] = { { MAMBA2, 128, 64 }, { CHANNEL, 256, 512 }, { BONUS, 64, 64 },
        { MLSTM, 256, 512 } };
    test_rng   rng = { 2 };
    test_worst worst = worst_of("128 x 64, 256 x 512, 64 x 64, 256 x 512", limit);
    for (const auto & one : cases) {
        problem p = {};
        p.mode = one.mode;
        p.d_k = one.d_k;
        p.d_v = one.d_v;
        p.H = 1;
        p.n_h = 1;
        p.turn = 1;
        p.batch.n_seqs = 2;
        p.batch.len[0] = 70;
        p.batch.len[1] = 5;
        p.batch.turn = 1;
        run_chunk(t, suite, p, &rng, &worst);
    }
    test_worst_print(&worst);
}

static void test_random(test * t) {
    test_rng rng = { 3 };
    int      n = 0;
    for (const int mode : modes) {
        test_worst worst = worst_of(signed_names[mode], limit);
        for (int i = 0; i < 30; ++i, ++n) {
            problem p = {};
            p.mode = mode;
            p.d_k = 1 + (int) test_below(&rng, i % 8 == 0 ? 256 : 40);
            p.d_v = 1 + (int) test_below(&rng, 24);
            p.H = p.d_k > 40 ? 1 : 1 + (int) test_below(&rng, 2);
            p.n_h = 1;
            p.turn = n;
            p.batch.n_seqs = 1 + (int) test_below(&rng, 3);
            p.batch.n_snap = (int) test_below(&rng, 4);
            p.batch.turn = n;
            const int64_t most = i % 10 == 9 ? 200 : p.d_k > 40 ? 40 : 70;
            for (int s = 0; s < p.batch.n_seqs; ++s) {
                p.batch.len[s] = random_length(&rng, 1, most) + (s == 0 ? 3 : 0);
            }
            // with d_k = 1, a gate per channel is a gate per head, and a bonus needs the step path
            p.d_k += p.d_k == 1 && mode == BONUS;
            if (ptx_run.takes(8)) {
                run_chunk(t, suite, p, &rng, &worst);
            }
        }
        test_worst_print(&worst);
    }
}

// Snapshots before, at and after every end of a chunk
static void test_borders(test * t) {
    test_rng             rng = { 4 };
    test_worst           worst = worst_of("ends of chunks", limit);
    static const int64_t cases[][4] = { { 64, 0, 1, 63 }, { 65, 2, 128, 0 }, { 130, 66, 67, 5 } };
    int                  n = 0;
    for (const auto & len : cases) {
        for (const int mode : { HEAD, CHANNEL, BONUS, MLSTM }) {
            problem p = {};
            p.mode = mode;
            p.d_k = 12;
            p.d_v = 5;
            p.H = 1;
            p.n_h = 1;
            p.turn = n;
            p.batch.n_seqs = 4;
            p.batch.n_snap = n % 4 == 3 ? 6 : n % 4;
            p.batch.turn = n;
            memcpy(p.batch.len, len, sizeof(len));
            run_chunk(t, suite, p, &rng, &worst);
            n += 1;
        }
        n += 1; // other numbers of snapshots
    }

    for (const int mode : { HEAD, BONUS, MLSTM }) {
        problem p = {};
        p.mode = mode;
        p.n_h = 1;
        p.batch.len[0] = 80;
        run_ring(t, suite, p, &rng, &worst);
    }
    test_worst_print(&worst);
}

// Gates so small that their products vanish, exact zeros, and gates larger than 1. Nothing is
// clamped or divided by a gate.
static void test_hard_gates(test * t) {
    test_rng   rng = { 5 };
    test_worst worst = worst_of("gates 0, 1e-30 .. 1.2, of any sign", limit);
    for (int n = 0; n < 12; ++n) {
        problem p = {};
        p.mode = n % 3 == 0 ? HEAD : n % 3 == 1 ? CHANNEL : BONUS;
        p.d_k = 24;
        p.d_v = 8;
        p.H = 1;
        p.n_h = 1;
        p.turn = n;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 90;
        p.batch.turn = n;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        fill_hard_gates(s.sign.gate, &rng, n < 6, true);
        run(t, &a, &s, &worst, GGML_SCAN_PATH_CHUNK);
        test_arena_free(&a);
    }
    test_worst_print(&worst);
}

static void test_out_of_range(test * t) {
    test_rng rng = { 6 };
    for (const int mode : { MAMBA2, CHANNEL, BONUS, MLSTM }) {
        problem p = {};
        p.mode = mode;
        p.d_k = 24;
        p.d_v = 20;
        p.H = 2;
        p.n_h = 1;
        p.turn = mode;
        p.batch.n_seqs = 3;
        p.batch.len[0] = 70;
        p.batch.len[1] = 1;
        p.batch.len[2] = 35;
        p.batch.n_snap = mode == CHANNEL ? 0 : 2;
        p.batch.turn = mode;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        run_out_of_range(t, &a, &s, &rng, GGML_SCAN_PATH_CHUNK, limit);
        test_arena_free(&a);
    }
    printf("  ids out of range: NaN for the sequence, no state touched, the others computed\n");
}

static void test_cuts(test * t) {
    test_rng   rng = { 7 };
    test_worst worst = worst_of("cut into calls", limit);
    for (const int mode : { HEAD, CHANNEL, BONUS, MAMBA2_SIGNED, MLSTM }) {
        problem p = {};
        p.mode = mode;
        p.d_k = 20;
        p.d_v = 12;
        p.H = 1;
        p.n_h = 1;
        p.turn = mode;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 190;
        p.batch.turn = mode;
        run_chunk_cuts(t, suite, p, &rng, &worst, 60);
    }
    test_worst_print(&worst);
}

// Long sequences, with gates close to ±1, so that little is forgotten
static void test_lengths(test * t) {
    static const struct {
        int    mode, d_k, T;
        double most;
    } cases[] = {
        { NONE, 64, 512, limit },
        { HEAD, 128, 512, limit },
        { CHANNEL, 64, 512, limit },
        { BONUS, 64, 512, limit },
        { MAMBA2_SIGNED, 64, 512, limit },
        { MLSTM, 64, 512, limit },
        { NONE, 32, 4096, 1e-11 }, // 8 times the tokens, 10 times the limit
        { CHANNEL, 32, 4096, 1e-11 },
    };
    test_rng rng = { 8 };
    printf("long sequences:\n");
    for (const auto & one : cases) {
        if (is_short() && one.T > 512) {
            continue;
        }
        char what[80];
        snprintf(what, sizeof(what), "T = %d, %s", one.T, signed_names[one.mode]);
        test_worst worst = worst_of(what, one.most);
        problem    p = {};
        p.mode = one.mode;
        p.d_k = one.d_k;
        p.d_v = 8;
        p.H = 1;
        p.n_h = 1;
        p.batch.n_seqs = 1;
        p.batch.len[0] = one.T;
        p.batch.turn = one.mode;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        if (s.sign.gate != nullptr) {
            fill_gates_near_one(s.sign.gate, &rng);
        }
        run(t, &a, &s, &worst, GGML_SCAN_PATH_CHUNK, 1);
        test_worst_print(&worst);
        test_arena_free(&a);
    }
}

// Where nothing rounds, chunk and step kernels give the same bits, in one call or in many: small
// integers and gates 0, 1 and −1.
static void test_exact(test * t) {
    const int T = is_short() ? 300 : 2000;
    test_rng  rng = { 9 };
    for (const int mode : { NONE, HEAD, CHANNEL, BONUS }) {
        problem p = {};
        p.mode = mode;
        p.d_k = 20;
        p.d_v = 18;
        p.H = 1;
        p.n_h = 1;
        p.batch.n_seqs = 1;
        p.batch.len[0] = T;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        s.sign.scale = 0.5f;
        const auto integers = [&](ggml_tensor * x, int most) {
            for (int64_t n = 0; x != nullptr && n < x->ne[3] * x->ne[1] * x->ne[0]; ++n) {
                test_set(x, n % x->ne[0], n / x->ne[0] % x->ne[1], 0, n / x->ne[0] / x->ne[1],
                        (float) (test_below(&rng, 2 * most + 1) - most));
            }
        };
        integers(s.sign.c, 2);
        integers(s.sign.b, 2);
        integers(s.sign.x, 3);
        integers(s.sign.bonus, 2);
        integers(s.sign.gate, 1);
        for (int64_t i = 0; i < s.sign.state->ne[0] * s.sign.state->ne[1]; ++i) {
            test_set(s.sign.state, i % s.sign.state->ne[0], i / s.sign.state->ne[0], 0, 0,
                    (float) (test_below(&rng, 9) - 4));
        }
        run_exact(t, suite, &a, &s);
        test_arena_free(&a);
    }
    printf("exact: %d tokens of integers, gates 0, 1 and -1: chunk and step are equal\n", T);
}

// The table of path-cost.h is tested by test-cuda-paths; here, which kernels run for a choice
static void test_paths(test * t) {
    static const struct {
        int            mode, d_k, n_seqs, T;
        ggml_scan_path path;
        bool           step, chunk;
    } cases[] = {
        { HEAD, 16, 1, 15, GGML_SCAN_PATH_AUTO, true, false },
        { HEAD, 16, 1, 400, GGML_SCAN_PATH_AUTO, false, true },
        { CHANNEL, 16, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
        { BONUS, 16, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
        { MLSTM, 16, 2, 400, GGML_SCAN_PATH_AUTO, true, true },
        { HEAD, 16, 1, 1, GGML_SCAN_PATH_CHUNK, false, true },
        { HEAD, 16, 1, 200, GGML_SCAN_PATH_STEP, true, false },
        { HEAD, 16, 1, 200, GGML_SCAN_PATH_REFERENCE, true, false },
        { BONUS_HEAD, 16, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
        { BONUS_NONE, 16, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
        { MAMBA, 16, 1, 200, GGML_SCAN_PATH_AUTO, true, false },
        { HEAD, 257, 1, 200, GGML_SCAN_PATH_CHUNK, true, false },
        { MLSTM, 256, 1, 2, GGML_SCAN_PATH_CHUNK, false, true },
    };
    test_rng   rng = { 10 };
    test_worst worst = worst_of("choice of kernels", limit);
    for (const auto & one : cases) {
        problem p = {};
        p.mode = one.mode;
        p.d_k = one.d_k;
        p.d_v = 3;
        p.H = 1;
        p.n_h = 1;
        p.turn = 1;
        p.batch.n_seqs = one.n_seqs;
        for (int i = 0; i < one.n_seqs; ++i) {
            p.batch.len[i] = i == 0 ? one.T - 10 * (one.n_seqs - 1) : 10;
        }
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        run(t, &a, &s, &worst, one.path, 1);
        test_check(t, chunked(suite) == one.chunk && stepped(suite) == one.step,
                "%s, %s, %d tokens, d_k %d: step %d, chunk %d", signed_names[one.mode],
                test_path_names[one.path], one.T, one.d_k, stepped(suite), chunked(suite));

        // on a GPU without TF32 every path uses the step kernel
        const path_gpu    turing = { false, 75, 40 };
        ggml_tensor *     op = build(t, &a, &s, one.path);
        const std::string found = run_on_device(op, signed_work_floats(op, turing), 1,
                [&](const ggml_tensor * node, float * work, auto && launch) {
                    launch_signed(node, turing, work, launch);
                });
        test_check(t, found.empty() && !chunked(suite), "without tensor cores: %s", s.text);
        test_arena_free(&a);
    }
    test_worst_print(&worst);
}

// Long and short sequences in one batch
static void test_mixed(test * t) {
    static const struct {
        int n_seqs, len, others, n_snap;
    } cases[] = { { 64, 448, 1, 0 }, { 4, 509, 1, 2 }, { 5, 300, 200, 0 } };
    test_rng   rng = { 14 };
    test_worst worst = worst_of("mixed batches", limit);
    int        n = 0;
    for (const auto & one : cases) {
        for (const int mode : { HEAD, CHANNEL, BONUS, MAMBA2, MLSTM }) {
            problem p = {};
            p.mode = mode;
            p.d_k = 24;
            p.d_v = 20;
            p.H = 1;
            p.n_h = 1;
            p.turn = n;
            p.batch.n_seqs = one.n_seqs;
            p.batch.n_snap = one.n_snap;
            p.batch.turn = n++;
            for (int i = 0; i < one.n_seqs; ++i) {
                p.batch.len[i] = i == one.n_seqs / 2 ? one.len : i == 1 ? 3 : one.others;
            }
            run_mixed(t, suite, p, &rng, &worst);
        }
    }
    test_worst_print(&worst);
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
    const auto barriers = [&](const char * what, const std::string & kernel, int n) {
        for (int i = 0; i < n; ++i) { // the third one of `chan`: half of the threads write
            all.push_back({ what, { kernel, "bar.sync", i, "bar.sync", "//" },
                    kernel == chan && i == 2 ? "an undefined value is used" : "a race" });
        }
    };
    barriers("prepare, gate per head: a deleted barrier", head, 4);
    barriers("prepare, gate per channel: a deleted barrier", chan, 3);
    barriers("chunk: a deleted barrier", chunk, 3);
    run_all_broken(t, suite, all, [&](const breakage & b) {
        problem p = {};
        // without a gate per head, its barrier does not make the last one of a chunk redundant
        p.mode = b.change.kernel == chan                           ? CHANNEL
                 : b.change.kernel == chunk && b.change.which == 2 ? NONE
                                                                   : HEAD;
        p.d_k = 64;
        p.d_v = 20;
        p.H = 1;
        p.n_h = 1;
        p.turn = 1;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 150;
        return p;
    });
}

int main(int argc, char ** argv) {
    test      t = {};
    const int end = begin_test(argc, argv, { "signed.ptx" });
    if (end >= 0) {
        return end;
    }
    printf("signed, chunk: every instance; NMSE of outputs and states:\n");
    test_instances(&t);
    test_real_sizes(&t);
    printf("30 random shapes per mode, up to 200 tokens:\n");
    test_random(&t);
    test_borders(&t);
    test_hard_gates(&t);
    test_out_of_range(&t);
    test_cuts(&t);
    test_paths(&t);
    test_mixed(&t);
    test_lengths(&t);
    test_exact(&t);
    test_check(&t, count(kernels_run, suite.gates) == 2, "the kernels for gates did not run");
    if (ptx_run.on) {
        test_broken(&t);
    }
    return end_chunk_test(&t, suite, "test-cuda-signed-chunk");
}
