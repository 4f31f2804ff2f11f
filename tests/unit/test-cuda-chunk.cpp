// The CUDA chunk kernels of the Householder scan, run by cuda-emu.h on the CPU, against the oracle:
// every instance with every kind of gate, random shapes, lengths around the ends of chunks, ragged
// batches, slots in place, forks, snapshots, strides, head counts, ids out of range, cuts into
// calls, long sequences; where nothing rounds, the bits of the step kernel. cuda-emu.h emulates the
// tensor cores too. The code that chooses kernels on a GPU also chooses them here
// (launch-householder.cuh). With --ptx <folder>, the PTX of the kernels is interpreted instead
// (kit/ptx/ptx.h), with tensor cores that add in several orders: a part of the cases, or all of
// them with --all.

#include "kit/cuda-emu.h"

#include "cuda/launch-householder.cuh"

#include "kit/cuda-chunk.h"

static std::string run_node(ggml_tensor * op, int n_orders) {
    return run_on_device(op, householder_work_floats(op, test_gpu), n_orders,
            [&](const ggml_tensor * node, float * work, auto && launch) {
                launch_householder(node, test_gpu, work, launch);
            });
}

static const chunk_suite suite = {
    make_householder,
    "householder.ptx",
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

// The modes with a chunk path: beta with every kind of gate; r and w with a gate per channel
static const int modes[] = { 0, 1, 2, 5 };

// Factors per token: n_h with beta
static int factors_of(int mode, int n_h) {
    return mode < 3 ? n_h : 1;
}

// Limits of the NMSE, up to 512 tokens
static const double independent = 1e-10; // independent keys
static const double shared_mean = 1e-8;  // keys with a common mean

//
// Shapes
//

// Padded and exact sizes of every instance, with every kind of gate
static void test_instances(test * t) {
    test_rng rng = { 1 };
    int      n = 0;
    for (const int mode : modes) {
        test_worst worst = worst_of(householder_names[mode], independent);
        for (int i = 0; i < 14; ++i, ++n) {
            static const int columns[] = { 20, 16, 7 }; // two blocks, one, part of one

            problem p = {};
            p.mode = mode;
            p.d_k = chunk_sizes[i];
            p.d_v = columns[i % 3];
            p.H = p.d_k > 64 ? 1 : 2;
            p.n_h = factors_of(mode, 1 + n % 4);
            p.turn = n;
            p.batch.n_seqs = 2;
            p.batch.n_snap = n % 3;
            p.batch.turn = n;
            p.batch.len[0] = 70 / p.n_h + 1; // more than a chunk
            p.batch.len[1] = 3;
            run_chunk(t, suite, p, &rng, &worst);
        }
        test_worst_print(&worst);
    }
}

// Heads of real checkpoints: OLMo-Hybrid, DeltaProduct of fla, KDA, RWKV-7
static void test_real_sizes(test * t) {
    static const struct {
        int gate, d_k, d_v, n_h;
    } cases[] = { { 1, 96, 192, 1 }, { 0, 256, 512, 2 }, { 2, 128, 128, 1 }, { 5, 64, 64, 1 } };
    test_rng   rng = { 11 };
    test_worst worst = worst_of("96 x 192, 256 x 512, 128 x 128, 64 x 64", independent);
    for (const auto & one : cases) {
        problem p = {};
        p.mode = one.gate;
        p.d_k = one.d_k;
        p.d_v = one.d_v;
        p.H = 1;
        p.n_h = one.n_h;
        p.turn = 1;
        p.batch.n_seqs = 2;
        p.batch.len[0] = 70 / one.n_h;
        p.batch.len[1] = 5;
        p.batch.turn = 1;
        run_chunk(t, suite, p, &rng, &worst);
    }
    test_worst_print(&worst);
}

static void test_random(test * t) {
    test_rng rng = { 2 };
    int      n = 0;
    for (const int mode : modes) {
        test_worst worst = worst_of(householder_names[mode], independent);
        for (int i = 0; i < 50; ++i, ++n) {
            problem p = {};
            p.mode = mode;
            p.d_k = 1 + (int) test_below(&rng, i % 8 == 0 ? 256 : 40);
            p.d_k += p.d_k == 1 && mode == 5; // one channel is a gate per head
            p.d_v = 1 + (int) test_below(&rng, 24);
            p.H = p.d_k > 40 ? 1 : 1 + (int) test_below(&rng, 2);
            p.n_h = factors_of(mode, 1 + i % 4);
            p.turn = n;
            p.batch.n_seqs = 1 + (int) test_below(&rng, 3);
            p.batch.n_snap = (int) test_below(&rng, 4);
            p.batch.turn = n;
            const int64_t most = i % 10 == 9 ? 200 : p.d_k > 40 || p.n_h > 2 ? 40 : 70;
            for (int s = 0; s < p.batch.n_seqs; ++s) {
                p.batch.len[s] = random_length(&rng, p.n_h, most) + (s == 0 ? 3 : 0);
            }
            if (ptx_run.takes(5)) {
                run_chunk(t, suite, p, &rng, &worst);
            }
        }
        test_worst_print(&worst);
    }
}

// Snapshots before, at and after every end of a chunk; numbers of factors that do not divide 64, up
// to one token per chunk
static void test_borders(test * t) {
    test_rng   rng = { 3 };
    test_worst worst = worst_of("ends of chunks", independent);
    static const struct {
        int     n_h;
        int64_t len[4];
    } cases[] = {
        { 1, { 64, 0, 1, 63 } },
        { 1, { 65, 2, 128, 0 } },
        { 1, { 130, 66, 67, 5 } },
        { 2, { 32, 33, 1, 64 } },
        { 3, { 21, 22, 42, 43 } },
        { 5, { 12, 13, 1, 25 } },
        { 7, { 9, 10, 0, 19 } },
        { 33, { 1, 2, 3, 0 } },
        { 63, { 2, 1, 0, 3 } },
        { 64, { 1, 2, 3, 0 } },
    };
    int n = 0;
    for (const auto & one : cases) {
        for (const int mode : modes) {
            if (factors_of(mode, one.n_h) != one.n_h) {
                continue;
            }
            problem p = {};
            p.mode = mode;
            p.d_k = 12;
            p.d_v = 5;
            p.H = 1;
            p.n_h = one.n_h;
            p.turn = n;
            p.batch.n_seqs = 4;
            p.batch.n_snap = n % 4 == 3 ? 6 : n % 4;
            p.batch.turn = n;
            memcpy(p.batch.len, one.len, sizeof(one.len));
            run_chunk(t, suite, p, &rng, &worst);
            ++n;
        }
    }

    for (const int mode : modes) {
        problem p = {};
        p.mode = mode;
        p.n_h = factors_of(mode, 2);
        p.batch.len[0] = 40;
        run_ring(t, suite, p, &rng, &worst);
    }
    test_worst_print(&worst);
}

// Gates so small that their products vanish, gates larger than 1, and beta above 2. Nothing is
// clamped or divided by a gate.
static void test_hard_gates(test * t) {
    test_rng   rng = { 4 };
    test_worst worst = worst_of("gates 1e-30 .. 1.2, beta 2.2 .. 2.5", independent);
    for (int n = 0; n < 16; ++n) {
        problem p = {};
        p.mode = n < 12 ? 1 + n % 2 : 5;
        p.d_k = 24;
        p.d_v = 8;
        p.H = 1;
        p.n_h = factors_of(p.mode, 1 + n / 2 % 3);
        p.turn = n;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 90 / p.n_h;
        p.batch.turn = n;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_householder(&a, p, &rng);
        fill_hard_gates(s.householder.gate, &rng, n < 6 || n == 12, p.mode == 5);
        if (n >= 6 && n < 12) {
            test_fill_uniform(s.householder.beta, &rng, 2.2, 2.5);
        }
        run(t, &a, &s, &worst, GGML_SCAN_PATH_CHUNK);
        test_arena_free(&a);
    }
    test_worst_print(&worst);
}

//
// Properties of every path
//

static void test_out_of_range(test * t) {
    test_rng rng = { 5 };
    for (const int mode : modes) {
        problem p = {};
        p.mode = mode;
        p.d_k = 24;
        p.d_v = 20;
        p.H = 2;
        p.n_h = factors_of(mode, 2);
        p.turn = mode;
        p.batch.n_seqs = 3;
        p.batch.len[0] = 40;
        p.batch.len[1] = 1;
        p.batch.len[2] = 35;
        p.batch.n_snap = mode == 2 ? 0 : 2;
        p.batch.turn = mode;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_householder(&a, p, &rng);
        run_out_of_range(t, &a, &s, &rng, GGML_SCAN_PATH_CHUNK, independent);
        test_arena_free(&a);
    }
    printf("  ids out of range: NaN for the sequence, no state touched, the others computed\n");
}

// A NaN in v appears in its column, from its token on, and in no other column, head or sequence.
static void test_nan(test * t) {
    test_rng rng = { 6 };
    problem  p = {};
    p.mode = 1;
    p.d_k = 24;
    p.d_v = 20;
    p.H = 2;
    p.n_h = 2;
    p.turn = 1; // v has two heads
    p.batch.n_seqs = 2;
    p.batch.len[0] = 50;
    p.batch.len[1] = 40;
    test_arena a;
    test_arena_init(&a);
    test_scan         s = make_householder(&a, p, &rng);
    ggml_tensor *     state = s.householder.state;
    const std::string before = bytes_of(state);
    const int64_t     first = ((const int32_t *) s.householder.ids->data)[GGML_SCAN_FIRST];
    const int64_t     token = first + 35, column = 17;
    test_check(t, s.householder.v->ne[1] == 2, "v has %d heads", (int) s.householder.v->ne[1]);
    ggml_tensor * clean = build(t, &a, &s, GGML_SCAN_PATH_CHUNK);
    test_check(t, run_node(clean, 1).empty(), "%s", s.text);
    memcpy(state->data, before.data(), before.size());
    test_set(s.householder.v, column, 1, 0, token, NAN);
    ggml_tensor * op = build(t, &a, &s, GGML_SCAN_PATH_CHUNK);
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
    test_arena_free(&a);
    printf("  a NaN stays in its column, head and sequence\n");
}

static void test_cuts(test * t) {
    test_rng   rng = { 7 };
    test_worst worst = worst_of("cut into calls", independent);
    for (int n = 0; n < 10; ++n) {
        problem p = {};
        p.mode = n < 9 ? n % 3 : 5;
        p.d_k = 20;
        p.d_v = 12;
        p.H = 1;
        p.n_h = factors_of(p.mode, 1 + n / 3);
        p.turn = n;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 150;
        p.batch.turn = n;
        run_chunk_cuts(t, suite, p, &rng, &worst, 40);
    }
    test_worst_print(&worst);
}

//
// Lengths
//

static void test_lengths(test * t) {
    static const struct {
        int    d_k, n_h, T, gate;
        double mean, beta_lo, limit;
    } cases[] = {
        { 64, 1, 512, 0, 0.0, 2.0, independent },
        { 128, 1, 512, 0, 0.0, 2.0, independent },
        { 64, 2, 512, 1, 0.0, 2.0, independent },
        { 64, 1, 512, 2, 0.0, 2.0, independent },
        { 64, 3, 512, 0, 0.0, 0.0, independent },
        { 64, 1, 512, 5, 0.0, 2.0, independent },
        { 128, 1, 512, 0, 1.0, 2.0, shared_mean },
        { 64, 3, 512, 0, 1.0, 2.0, shared_mean },
        { 64, 1, 512, 1, 3.0, 2.0, shared_mean },
        { 64, 1, 512, 2, 1.0, 2.0, shared_mean },
        { 64, 1, 4096, 0, 0.0, 2.0, 1e-9 },
        { 32, 2, 4096, 1, 0.0, 0.0, 1e-9 }, // 8 times the tokens, 10 times the limit
        { 64, 1, 2048, 0, 1e6, 2.0, 1e-6 }, // equal keys: every T_ei is ±4
        { 64, 1, 512, 0, 1e6, 2.0, 1e-6 },
    };
    test_rng rng = { 8 };
    printf("long sequences:\n");
    for (const auto & one : cases) {
        if (is_short() && one.T > 512) {
            continue;
        }
        char what[80];
        snprintf(what, sizeof(what), "T = %d, beta %g..2, mean of keys %g", one.T, one.beta_lo,
                one.mean);
        test_worst worst = worst_of(what, one.limit);
        problem    p = {};
        p.mode = one.gate;
        p.d_k = one.d_k;
        p.d_v = 8;
        p.H = 1;
        p.n_h = one.n_h;
        p.mean = one.mean;
        p.batch.n_seqs = 1;
        p.batch.len[0] = one.T;
        p.batch.turn = one.gate;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_householder(&a, p, &rng);
        if (s.householder.beta != nullptr) {
            test_fill_uniform(s.householder.beta, &rng, one.beta_lo, 2.0);
        }
        if (s.householder.gate != nullptr) {
            fill_gates_near_one(s.householder.gate, &rng);
        }
        run(t, &a, &s, &worst, GGML_SCAN_PATH_CHUNK, 1);
        test_worst_print(&worst);
        test_arena_free(&a);
    }
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
    const int T = is_short() ? 300 : 2000;
    test_rng  rng = { 13 };
    problem   p = {};
    p.mode = 5;
    p.d_k = 20;
    p.d_v = 18;
    p.H = 1;
    p.n_h = 1;
    p.batch.n_seqs = 1;
    p.batch.len[0] = T;
    test_arena a;
    test_arena_init(&a);
    test_scan                    s = make_householder(&a, p, &rng);
    ggml_householder_scan_args & x = s.householder;
    x.scale = 0.5f;
    test_fill(x.r, 0.0f);
    test_fill(x.w, 0.0f);
    for (int64_t n = 0; n < T; ++n) {
        for (int64_t i = 0; i < p.d_k; ++i) {
            test_set(x.q, i, 0, 0, n, (float) (test_below(&rng, 5) - 2));
            test_set(x.k, i, 0, 0, n, (float) (test_below(&rng, 3) - 1));
            test_set(x.gate, i, 0, 0, n, test_below(&rng, 60) == 0 ? 0.0f : n % 3 ? 1.0f : -1.0f);
        }
        for (int64_t j = 0; j < p.d_v; ++j) {
            test_set(x.v, j, 0, 0, n, (float) (test_below(&rng, 7) - 3));
        }
        const int64_t i = test_below(&rng, p.d_k); // row i: (g − 2 g) S
        test_set(x.r, i, 0, 0, n, 1.0f);
        test_set(x.w, i, 0, 0, n, 2.0f * test_get(x.gate, i, 0, 0, n));
    }
    for (int64_t i = 0; i < ggml_nelements(x.state); ++i) {
        ((float *) x.state->data)[i] = (float) (test_below(&rng, 9) - 4);
    }
    run_exact(t, suite, &a, &s);
    test_arena_free(&a);
    printf("exact: %d tokens with r and w, integers: chunk and step give the same numbers\n", T);
}

//
// Choice of kernels
//

// The table of path-cost.h is tested by test-cuda-paths; here, which kernels run for a choice
static void test_paths(test * t) {
    static const struct {
        int            mode, d_k, n_h, n_seqs, T;
        ggml_scan_path path;
        bool           step, chunk;
    } cases[] = {
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
    };
    test_rng   rng = { 10 };
    test_worst worst = worst_of("choice of kernels", independent);
    for (const auto & one : cases) {
        problem p = {};
        p.mode = one.mode;
        p.d_k = one.d_k;
        p.d_v = 3;
        p.H = 1;
        p.n_h = one.n_h;
        p.turn = 1;
        p.batch.n_seqs = one.n_seqs;
        for (int i = 0; i < one.n_seqs; ++i) {
            p.batch.len[i] = i == 0 ? one.T - 10 * (one.n_seqs - 1) : 10;
        }
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_householder(&a, p, &rng);
        run(t, &a, &s, &worst, one.path, 1);
        test_check(t, chunked(suite) == one.chunk && stepped(suite) == one.step,
                "%s, %d tokens, n_h %d, d_k %d: step %d, chunk %d", test_path_names[one.path],
                one.T, one.n_h, one.d_k, stepped(suite), chunked(suite));

        // on a GPU without TF32 every path uses the step kernel
        const path_gpu    turing = { false, 75, 40 };
        ggml_tensor *     op = build(t, &a, &s, one.path);
        const std::string found = run_on_device(op, householder_work_floats(op, turing), 1,
                [&](const ggml_tensor * node, float * work, auto && launch) {
                    launch_householder(node, turing, work, launch);
                });
        test_check(t, found.empty() && kernels_last.size() == 1 && stepped(suite),
                "without tensor cores: %s", s.text);
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
    test_worst worst = worst_of("mixed batches", independent);
    int        n = 0;
    for (const auto & one : cases) {
        for (const int mode : modes) {
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
        problem p = {};
        p.d_k = 16;
        p.d_v = 4;
        p.H = 1;
        p.n_h = 1;
        p.batch.n_seqs = one.n_seqs;
        p.batch.n_snap = one.n_snap;
        for (int i = 0; i < one.n_seqs; ++i) {
            p.batch.len[i] = one.T / one.n_seqs;
        }
        test_arena a;
        test_arena_init(&a);
        test_scan     s = make_householder(&a, p, &rng);
        ggml_tensor * op = build(t, &a, &s, GGML_SCAN_PATH_CHUNK);
        unsigned      x = 0;
        float         work;
        launch_householder(op, test_gpu, &work, [&](auto kernel, dim3 grid, dim3, const auto &) {
            x = suite.prepare.count((const void *) kernel) > 0 ? grid.x : x;
        });
        test_check(t, x == one.chunks, "%d sequences, %d snapshots, %d tokens: %u blocks",
                one.n_seqs, one.n_snap, one.T, x);
        test_arena_free(&a);
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
    for (int n = 0; n < 4; ++n) { // before the third one half of the threads write
        all.push_back(
                { "prepare, r and w: a deleted barrier", { rank, "bar.sync", n, "bar.sync", "//" },
                        n == 2 ? "an undefined value is used" : "a race" });
    }
    for (int n = 0; n < 6; ++n) {
        all.push_back({ "prepare: a deleted barrier", { prepare, "bar.sync", n, "bar.sync", "//" },
                "a race" });
        all.push_back({ "chunk: a deleted barrier", { chunk, "bar.sync", n, "bar.sync", "//" },
                "a race" });
    }
    run_all_broken(t, suite, all, [&](const breakage & b) {
        problem p = {};
        // with a gate per head, its barrier makes the last one of a chunk redundant
        p.mode = b.change.kernel == rank                           ? 5
                 : b.change.kernel == chunk && b.change.which == 5 ? 0
                                                                   : 1;
        p.d_k = 64;
        p.d_v = 20;
        p.H = 1;
        p.n_h = factors_of(p.mode, 2);
        p.turn = 1;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 75;
        return p;
    });
}

int main(int argc, char ** argv) {
    test      t = {};
    const int end = begin_test(argc, argv, { "householder.ptx" });
    if (end >= 0) {
        return end;
    }
    printf("householder, chunk: every instance with every gate; NMSE of outputs and states:\n");
    test_instances(&t);
    test_real_sizes(&t);
    printf("50 random shapes per gate, up to 200 tokens, n_h 1 to 4:\n");
    test_random(&t);
    test_borders(&t);
    test_hard_gates(&t);
    test_out_of_range(&t);
    test_nan(&t);
    test_cuts(&t);
    test_paths(&t);
    test_mixed(&t);
    test_grid(&t);
    test_lengths(&t);
    test_exact(&t);
    test_exact_rank_one(&t);
    run_s5(&t, GGML_SCAN_PATH_CHUNK);
    if (ptx_run.on) {
        test_broken(&t);
    }
    return end_chunk_test(&t, suite, "test-cuda-chunk");
}
