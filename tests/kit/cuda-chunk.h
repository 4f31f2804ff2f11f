#pragma once

// What the tests of the CUDA chunk kernels of both scans have in common: every instance with every
// kind of gate, random shapes, lengths around the ends of chunks, ragged batches, slots in place,
// forks, snapshots, strides, head counts, ids out of range, cuts into calls, long sequences.
// Include the launcher of one of the scans first.

#include "kit/cuda-node.h"

// A test defines it: what its scan has of everything below
struct chunk_suite {
    make_fn *              make;
    const char *           ptx_file;
    const char * const *   names;    // of modes
    std::vector<int>       modes;    // all that have a chunk path
    std::set<int>          firsts;   // modes that run all kernels; the others use the same ones
    std::vector<int>       some;     // modes of the longer tests
    int                    two_rows; // a mode that has no chunk path with d_k = 1
    int                    n_factor_modes;       // the modes below have several factors per token
    double                 limit;                // of the NMSE, up to 512 tokens
    int                    n_random;             // shapes per mode
    int                    random_share;         // of them with PTX: an n-th
    std::set<const void *> prepare, scan, gates; // all of its kernels but those of the step path
    struct path_choice (*choose)(const ggml_tensor *, const path_gpu &);

    int factors(int mode, int n) const {
        return mode < n_factor_modes ? n : 1;
    }
};

// Padded and exact sizes of every instance
inline const int chunk_sizes[] = { 4, 16, 20, 32, 36, 64, 68, 96, 100, 128, 132, 192, 196, 256 };

// The number of kernels of `of` that ran
inline int count(const std::set<const void *> & ran, const std::set<const void *> & of) {
    return (int) std::count_if(
            ran.begin(), ran.end(), [&](const void * k) { return of.count(k) > 0; });
}

// True if the chunk kernels computed a part of the last node, or all of it
inline bool chunked(const chunk_suite & u) {
    return count(kernels_last, u.prepare) == 1 && count(kernels_last, u.scan) == 1;
}
inline bool stepped(const chunk_suite & u) {
    return kernels_last.size() >
           (size_t) (count(kernels_last, u.prepare) + count(kernels_last, u.scan) +
                     count(kernels_last, u.gates));
}

inline void run_chunk(
        test * t, const chunk_suite & u, const problem & p, test_rng * rng, test_worst * worst) {
    owned_scan c(u.make, p, rng);
    run(t, &c.a, &c.s, worst, GGML_SCAN_PATH_CHUNK);
    test_check(t, chunked(u) && !stepped(u), "the chunk kernels did not run, or not alone: %s",
            c.s.text);
}

//
// Shapes
//

// Padded and exact sizes of every instance, with every mode in turn
inline void test_instances(test * t, const chunk_suite & u) {
    static const int columns[] = { 20, 16, 7 }; // two blocks, one, part of one

    test_rng rng = { 1 };
    int      n = 0;
    for (const int mode : u.modes) {
        test_worst worst = worst_of(u.names[mode], u.limit);
        for (int i = 0; i < 14; ++i, ++n) {
            const int     n_h = u.factors(mode, 1 + n % 4), d_k = chunk_sizes[i];
            const problem p = { mode, d_k, columns[i % 3], d_k > 64 ? 1 : 2, n_h, n,
                batch_of({ 70 / n_h + 1, 3 }, n % 3, n) }; // more than a chunk
            if (u.firsts.count(mode) > 0 || ptx_run.takes(7)) {
                run_chunk(t, u, p, &rng, &worst);
            }
        }
        test_worst_print(&worst);
    }
}

struct chunk_head {
    int mode, d_k, d_v, n_h;
};

// Heads of real checkpoints
inline void test_real_sizes(
        test * t, const chunk_suite & u, const char * what, const std::vector<chunk_head> & heads) {
    test_rng   rng = { 11 };
    test_worst worst = worst_of(what, u.limit);
    for (const chunk_head & x : heads) {
        const problem p = { x.mode, x.d_k, x.d_v, 1, x.n_h, 1, batch_of({ 70 / x.n_h, 5 }, 0, 1) };
        run_chunk(t, u, p, &rng, &worst);
    }
    test_worst_print(&worst);
}

// A length in tokens, often at the end of a chunk of 64 factors or of a group of 16
inline int64_t random_length(test_rng * rng, int n_h, int64_t most) {
    static const int factors[] = { 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130 };
    if (test_below(rng, 3) == 0) {
        return 1 + test_below(rng, most);
    }
    return std::min<int64_t>((factors[test_below(rng, 12)] + n_h - 1) / n_h, most);
}

inline void test_random(test * t, const chunk_suite & u) {
    test_rng rng = { 2 };
    int      n = 0;
    printf("%d random shapes per mode, up to 200 tokens:\n", u.n_random);
    for (const int mode : u.modes) {
        test_worst worst = worst_of(u.names[mode], u.limit);
        for (int i = 0; i < u.n_random; ++i, ++n) {
            problem p = { mode, 1, 1, 1, u.factors(mode, 1 + i % 4), n, {} };
            p.d_k = 1 + (int) test_below(&rng, i % 8 == 0 ? 256 : 40);
            p.d_k += p.d_k == 1 && mode == u.two_rows;
            p.d_v = 1 + (int) test_below(&rng, 24);
            p.H = p.d_k > 40 ? 1 : 1 + (int) test_below(&rng, 2);
            p.batch.n_seqs = 1 + (int) test_below(&rng, 3);
            p.batch.n_snap = (int) test_below(&rng, 4);
            p.batch.turn = n;
            const int64_t most = i % 10 == 9 ? 200 : p.d_k > 40 || p.n_h > 2 ? 40 : 70;
            for (int s = 0; s < p.batch.n_seqs; ++s) {
                p.batch.len[s] = random_length(&rng, p.n_h, most) + (s == 0 ? 3 : 0);
            }
            if (ptx_run.takes(u.random_share)) {
                run_chunk(t, u, p, &rng, &worst);
            }
        }
        test_worst_print(&worst);
    }
}

// Snapshots before, at and after every end of a chunk; numbers of factors that do not divide 64, up
// to one token per chunk. Then rings: the newest snapshot uses the slot that the sequence reads,
// and one snapshot is -1.
inline void test_borders(test * t, const chunk_suite & u) {
    static const struct {
        int                            n_h;
        std::initializer_list<int64_t> len;
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
    static const int snapshots[] = { 0, 1, 2, 6 };

    test_rng   rng = { 3 };
    test_worst worst = worst_of("ends of chunks", u.limit);
    int        n = 0;
    for (const auto & one : cases) {
        for (const int mode : u.some) {
            if (u.factors(mode, one.n_h) == one.n_h) {
                const test_batch batch = batch_of(one.len, snapshots[(n + n / 4) % 4], n);
                run_chunk(t, u, { mode, 12, 5, 1, one.n_h, n, batch }, &rng, &worst);
                ++n;
            }
        }
    }
    for (const int mode : u.some) {
        const int n_h = u.factors(mode, 2);
        // forked
        owned_scan c(u.make, { mode, 16, 18, 2, n_h, mode, batch_of({ 80 / n_h }, 4, 1) }, &rng);
        int32_t *  id = (int32_t *) (*test_scan_ids(&c.s))->data;
        id[GGML_SCAN_SNAPS + 0] = id[GGML_SCAN_SLOT_IN];
        id[GGML_SCAN_SNAPS + 2] = -1;
        run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_CHUNK);
    }
    test_worst_print(&worst);
}

//
// Gates
//

// Gates close to ±1, so that little is forgotten
inline void fill_gates_near_one(ggml_tensor * gate, test_rng * rng) {
    test_fill_uniform(gate, rng, 0.97, 1.0);
    for (int64_t x = 0; x < gate->ne[3] * gate->ne[0]; x += 1 + test_below(rng, 7)) {
        test_set(gate, x % gate->ne[0], 0, 0, x / gate->ne[0],
                -test_get(gate, x % gate->ne[0], 0, 0, x / gate->ne[0]));
    }
}

// Gates of any sign and size: products that vanish if `tiny`, else 0.8 to 1.2; zero with
// probability 1/40 if `zeros`
inline void fill_hard_gates(ggml_tensor * gate, test_rng * rng, bool tiny, bool zeros) {
    for (int64_t x = 0; x < gate->ne[3] * gate->ne[0]; ++x) {
        const double size = tiny ? pow(10.0, -30.0 * pow(test_uniform(rng, 0.0, 1.0), 4.0))
                                 : test_uniform(rng, 0.8, 1.2);
        const bool   zero = zeros && test_below(rng, 40) == 0;
        test_set(gate, x % gate->ne[0], 0, 0, x / gate->ne[0],
                zero ? 0.0f : (float) (test_below(rng, 2) == 0 ? -size : size));
    }
}

//
// Properties of every path
//

inline void test_out_of_range(test * t, const chunk_suite & u) {
    test_rng rng = { 5 };
    for (size_t i = 0; i < u.some.size(); ++i) {
        const int        mode = u.some[i], n_h = u.factors(mode, 2);
        const test_batch batch = batch_of({ 70 / n_h, 1, 35 }, i == 1 ? 0 : 2, mode);
        owned_scan       c(u.make, { mode, 24, 20, 2, n_h, mode, batch }, &rng);
        run_out_of_range(t, &c.a, &c.s, &rng, GGML_SCAN_PATH_CHUNK, u.limit);
    }
    printf("  ids out of range: NaN for the sequence, no state touched, the others computed\n");
}

// A single sequence in calls of random lengths, with chunks and with the path of the launcher's
// choice, where some calls use the step kernel
inline void run_chunk_cuts(
        test * t, const chunk_suite & u, const problem & p, test_rng * rng, test_worst * worst) {
    owned_scan        c(u.make, p, rng);
    ggml_tensor *     state = *test_scan_state(&c.s);
    const std::string before = bytes_of(state);
    oracle            o = test_scan_oracle(&c.s);
    for (const ggml_scan_path path : { GGML_SCAN_PATH_AUTO, GGML_SCAN_PATH_CHUNK }) {
        memcpy(state->data, before.data(), before.size());
        ggml_tensor *     op = build(t, &c.a, &c.s, path);
        const int64_t     most = path == GGML_SCAN_PATH_AUTO ? p.batch.len[0] : 60;
        const std::string out = run_in_calls(t, &c.s, rng, path, most);
        test_check(t, out.size() == ggml_nbytes(op), "calls of %s", c.s.text);
        memcpy(op->data, out.data(), out.size());
        test_bound(t, worst, test_scan_nmse_out(&o, op), c.s.text);
        test_bound(t, worst, test_scan_nmse_state(&o, &c.s), c.s.text);
    }
    oracle_free(&o);
}

inline void test_cuts(test * t, const chunk_suite & u) {
    test_rng   rng = { 7 };
    test_worst worst = worst_of("cut into calls", u.limit);
    int        n = 0;
    for (const int mode : u.some) {
        for (int n_h = 1; n_h <= u.factors(mode, 3); ++n_h, ++n) {
            const problem p = { mode, 20, 12, 1, n_h, n, batch_of({ 160 }, 0, n) };
            run_chunk_cuts(t, u, p, &rng, &worst);
        }
    }
    test_worst_print(&worst);
}

struct chunk_length {
    int    mode, d_k, n_h, T;
    double limit, mean, beta_lo; // mean of the keys, smallest beta
};

// Long sequences; gates forget little
inline void test_lengths(
        test * t, const chunk_suite & u, const std::vector<chunk_length> & lengths) {
    test_rng rng = { 8 };
    printf("long sequences:\n");
    for (const chunk_length & one : lengths) {
        if (is_short() && one.T > 512) {
            continue;
        }
        char what[80];
        snprintf(what, sizeof(what), "T = %d, beta from %g, mean of keys %g", one.T, one.beta_lo,
                one.mean);
        test_worst       worst = worst_of(what, one.limit);
        const test_batch batch = batch_of({ one.T }, 0, one.mode);
        owned_scan       c(u.make, { one.mode, one.d_k, 8, 1, one.n_h, 0, batch, one.mean }, &rng);
        const bool       is_householder = c.s.op == test_scan::TEST_HOUSEHOLDER;
        ggml_tensor *    gate = is_householder ? c.s.householder.gate : c.s.sign.gate;
        if (is_householder && c.s.householder.beta != nullptr) {
            test_fill_uniform(c.s.householder.beta, &rng, one.beta_lo, 2.0);
        }
        if (gate != nullptr) {
            fill_gates_near_one(gate, &rng);
        }
        run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_CHUNK, 1);
        test_worst_print(&worst);
    }
}

// Integers from −most to most in every element of x; none in no tensor
inline void fill_integers(ggml_tensor * x, test_rng * rng, int most) {
    for (int64_t n = 0; x != nullptr && n < ggml_nelements(x); ++n) {
        const int64_t i = n / x->ne[0];
        test_set(x, n % x->ne[0], i % x->ne[1], i / x->ne[1] % x->ne[2], i / x->ne[1] / x->ne[2],
                (float) (test_below(rng, 2 * most + 1) - most));
    }
}

// Where nothing rounds, step and chunk give the same numbers, in outputs and states.
inline void run_exact(test * t, const chunk_suite & u, test_arena * a, test_scan * s) {
    ggml_tensor *     state = *test_scan_state(s);
    const std::string before = bytes_of(state);
    ggml_tensor *     step = build(t, a, s, GGML_SCAN_PATH_STEP);
    test_check(t, run_node(step, 1).empty() && !chunked(u), "step: %s", s->text);
    const std::string last = bytes_of(state);

    memcpy(state->data, before.data(), before.size());
    ggml_tensor * chunk = build(t, a, s, GGML_SCAN_PATH_CHUNK);
    test_check(t, run_node(chunk, 1).empty() && chunked(u), "chunk: %s", s->text);
    test_check(t, equal_numbers(bytes_of(chunk), bytes_of(step)), "outputs differ: %s", s->text);
    test_check(t, equal_numbers(bytes_of(state), last), "states differ: %s", s->text);
}

//
// Choice of kernels
//

struct chunk_choice {
    int            mode, d_k, n_h, n_seqs, T;
    ggml_scan_path path;
    bool           step, chunk;
};

// The table of path-cost.h is tested by test-cuda-paths; here, which kernels run for a choice
inline void test_paths(test * t, const chunk_suite & u, const std::vector<chunk_choice> & cases) {
    test_rng   rng = { 10 };
    test_worst worst = worst_of("choice of kernels", u.limit);
    for (const chunk_choice & one : cases) {
        const test_batch batch =
                one.n_seqs == 1 ? batch_of({ one.T }) : batch_of({ one.T - 10, 10 });
        owned_scan c(u.make, { one.mode, one.d_k, 3, 1, one.n_h, 1, batch }, &rng);
        run(t, &c.a, &c.s, &worst, one.path, 1);
        test_check(t, chunked(u) == one.chunk && stepped(u) == one.step,
                "%s, %s: step %d, chunk %d", test_path_names[one.path], c.s.text, stepped(u),
                chunked(u));

        // on a GPU without TF32 every path uses the step kernel
        const path_gpu    turing = { false, 75, 40 };
        const std::string found = run_node(build(t, &c.a, &c.s, one.path), 1, turing);
        test_check(t,
                found.empty() && stepped(u) &&
                        count(kernels_last, u.prepare) + count(kernels_last, u.scan) == 0,
                "without tensor cores: %s", c.s.text);
    }
    test_worst_print(&worst);
}

// A batch with long and short sequences, on the path of the launcher's choice: each sequence gives
// the bits that it gives alone on its path.
inline void run_mixed(
        test * t, const chunk_suite & u, const problem & p, test_rng * rng, test_worst * worst) {
    owned_scan        c(u.make, p, rng);
    ggml_tensor *     state = *test_scan_state(&c.s);
    ggml_tensor *     ids = *test_scan_ids(&c.s);
    const std::string before = bytes_of(state);
    run(t, &c.a, &c.s, worst, GGML_SCAN_PATH_AUTO, 1);
    test_check(t, chunked(u) && stepped(u), "only one path: %s", c.s.text);
    if (gpu.on()) { // another GPU may choose other paths
        return;
    }
    memcpy(state->data, before.data(), before.size());
    ggml_tensor * all = build(t, &c.a, &c.s, GGML_SCAN_PATH_AUTO);
    test_check(t, run_node(all, 1).empty(), "mixed: %s", c.s.text);
    const std::string after = bytes_of(state);

    const int     from = u.choose(all, test_gpu).from;
    const int64_t row = ggml_nbytes(all) / all->ne[2]; // bytes of the output of a token
    int           n_chunk = 0;
    for (int64_t i = 0; i < ids->ne[1]; ++i) {
        const int32_t * id = (const int32_t *) ids->data + i * ids->ne[0];
        const bool      chunk = id[GGML_SCAN_COUNT] >= from;
        n_chunk += chunk;
        if (id[GGML_SCAN_COUNT] == 0 || (i > 8 && !chunk)) {
            continue;
        }
        test_arena           b;
        std::vector<int64_t> idx(id[GGML_SCAN_COUNT]);
        for (size_t x = 0; x < idx.size(); ++x) {
            idx[x] = id[GGML_SCAN_FIRST] + (int64_t) x;
        }
        test_arena_init(&b);
        test_scan     one = test_scan_gather(&b, &c.s, idx.data(), (int64_t) idx.size());
        ggml_tensor * now = test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", ids->ne[0], 1, 1, 1);
        memcpy(now->data, id, ids->ne[0] * sizeof(int32_t));
        ((int32_t *) now->data)[GGML_SCAN_FIRST] = 0;
        *test_scan_ids(&one) = now;

        memcpy(state->data, before.data(), before.size());
        ggml_tensor * alone =
                build(t, &b, &one, chunk ? GGML_SCAN_PATH_CHUNK : GGML_SCAN_PATH_STEP);
        test_check(t, run_node(alone, 1).empty() && chunked(u) == chunk, "alone: %s", c.s.text);
        test_check(t,
                memcmp(alone->data, (const char *) all->data + id[GGML_SCAN_FIRST] * row,
                        ggml_nbytes(alone)) == 0,
                "sequence %d of %d tokens is not the same alone: %s", (int) i,
                (int) id[GGML_SCAN_COUNT], c.s.text);
        for (int64_t x = GGML_SCAN_SLOT_OUT; x < ids->ne[0]; ++x) {
            const bool    is_slot = x == GGML_SCAN_SLOT_OUT || x >= GGML_SCAN_SNAPS;
            const int64_t at = is_slot && id[x] >= 0 ? id[x] * (int64_t) state->nb[1] : -1;
            test_check(t,
                    at < 0 || memcmp((const char *) state->data + at, after.data() + at,
                                      state->ne[0] * sizeof(float)) == 0,
                    "the state of sequence %d is not the same alone: %s", (int) i, c.s.text);
        }
        test_arena_free(&b);
    }
    test_check(t, n_chunk > 0 && n_chunk < ids->ne[1], "%d of %d sequences use chunks", n_chunk,
            (int) ids->ne[1]);
}

// Long and short sequences in one batch
inline void test_mixed(test * t, const chunk_suite & u) {
    static const struct {
        int n_seqs, len, others, n_snap;
    } cases[] = { { 64, 448, 1, 0 }, { 4, 509, 1, 2 }, { 5, 300, 200, 0 } };
    test_rng   rng = { 14 };
    test_worst worst = worst_of("mixed batches", u.limit);
    int        n = 0;
    for (const auto & one : cases) {
        for (const int mode : u.some) {
            problem p = { mode, 24, 20, 1, 1, n, {} };
            p.batch.n_seqs = one.n_seqs;
            p.batch.n_snap = one.n_snap;
            p.batch.turn = n++;
            for (int i = 0; i < one.n_seqs; ++i) {
                p.batch.len[i] = i == one.n_seqs / 2 ? one.len : i == 1 ? 3 : one.others;
            }
            run_mixed(t, u, p, &rng, &worst);
        }
    }
    test_worst_print(&worst);
}

//
// Errors in PTX
//

// Deletes the first n barriers of a kernel, one at a time. Before the one of index `undefined`,
// half of the threads write.
inline void add_barriers(std::vector<breakage> * all, const char * what, const std::string & kernel,
        int n, int undefined = -1) {
    for (int i = 0; i < n; ++i) {
        all->push_back({ what, { kernel, "bar.sync", i, "bar.sync", "//" },
                i == undefined ? "an undefined value is used" : "a race" });
    }
}

// Every error is found; case_of(b) is the case that finds it
template <typename Case>
void run_all_broken(
        test * t, const chunk_suite & u, const std::vector<breakage> & all, Case && case_of) {
    test_rng rng = { 12 };
    for (const breakage & b : all) {
        owned_scan c(u.make, case_of(b), &rng);
        run_broken(t, &c.a, &c.s, u.ptx_file, b, GGML_SCAN_PATH_CHUNK);
    }
}

// All kernels ran; with PTX, all of its kernels
inline int end_chunk_test(test * t, const chunk_suite & u, const char * name) {
    const int n_prepare = count(kernels_run, u.prepare), n_scan = count(kernels_run, u.scan),
              n_gates = count(kernels_run, u.gates);
    test_check(t,
            n_prepare == (int) u.prepare.size() && n_scan == (int) u.scan.size() &&
                    n_gates == (int) u.gates.size(),
            "%d of %d, %d of %d and %d of %d kernels ran", n_prepare, (int) u.prepare.size(),
            n_scan, (int) u.scan.size(), n_gates, (int) u.gates.size());
    printf("all %d chunk kernels ran: %d that prepare, %d that take the state through chunks\n",
            n_prepare + n_scan, n_prepare, n_scan);
    if (ptx_run.on) {
        test_check(t, ptx_run.print(true) == 0, "kernels of the PTX did not run");
    }
    return test_end(t, name);
}
