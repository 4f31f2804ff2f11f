#pragma once

// Shared by the tests of the CUDA chunk kernels of both scans. Include the launcher of one of them
// first.

#include "kit/cuda-node.h"

#include <algorithm>

typedef test_scan make_fn(test_arena *, const problem &, test_rng *);

// A test defines it: what its scan has of everything below
struct chunk_suite {
    make_fn *              make;
    const char *           ptx_file;
    std::set<const void *> prepare, scan, gates; // all of its kernels but those of the step path
    struct path_choice (*choose)(const ggml_tensor *, const path_gpu &);
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

inline test_worst worst_of(const char * what, double limit) {
    test_worst w = {};
    w.what = what;
    w.limit = limit;
    return w;
}

inline void run_chunk(test * t, const chunk_suite & u, const problem & p, test_rng * rng,
        test_worst * worst, int n_orders = ALL_ORDERS) {
    test_arena a;
    test_arena_init(&a);
    test_scan s = u.make(&a, p, rng);
    run(t, &a, &s, worst, GGML_SCAN_PATH_CHUNK, n_orders);
    test_check(t, chunked(u) && !stepped(u), "the chunk kernels did not run, or not alone: %s",
            s.text);
    test_arena_free(&a);
}

// A length in tokens, often at the end of a chunk of 64 factors or of a group of 16
inline int64_t random_length(test_rng * rng, int n_h, int64_t most) {
    static const int factors[] = { 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130 };
    if (test_below(rng, 3) == 0) {
        return 1 + test_below(rng, most);
    }
    return std::min<int64_t>((factors[test_below(rng, 12)] + n_h - 1) / n_h, most);
}

// A ring: the newest snapshot uses the slot that the sequence reads; one snapshot is -1
inline void run_ring(
        test * t, const chunk_suite & u, problem p, test_rng * rng, test_worst * worst) {
    p.d_k = 16;
    p.d_v = 18;
    p.H = 2;
    p.turn = p.mode;
    p.batch.n_seqs = 1;
    p.batch.n_snap = 4;
    p.batch.turn = 1; // forked
    test_arena a;
    test_arena_init(&a);
    test_scan s = u.make(&a, p, rng);
    int32_t * id = (int32_t *) (*test_scan_ids(&s))->data;
    id[GGML_SCAN_SNAPS + 0] = id[GGML_SCAN_SLOT_IN];
    id[GGML_SCAN_SNAPS + 2] = -1;
    run(t, &a, &s, worst, GGML_SCAN_PATH_CHUNK);
    test_arena_free(&a);
}

// A single sequence in calls of random lengths, with chunks and with the path of the launcher's
// choice, where some calls use the step kernel
inline void run_chunk_cuts(test * t, const chunk_suite & u, const problem & p, test_rng * rng,
        test_worst * worst, int64_t most) {
    test_arena a;
    test_arena_init(&a);
    test_scan         s = u.make(&a, p, rng);
    ggml_tensor *     state = *test_scan_state(&s);
    const std::string before = bytes_of(state);
    oracle            o = test_scan_oracle(&s);
    for (const ggml_scan_path path : { GGML_SCAN_PATH_AUTO, GGML_SCAN_PATH_CHUNK }) {
        memcpy(state->data, before.data(), before.size());
        ggml_tensor *     op = build(t, &a, &s, path);
        const std::string out =
                run_in_calls(t, &s, rng, path, path == GGML_SCAN_PATH_AUTO ? p.batch.len[0] : most);
        test_check(t, out.size() == ggml_nbytes(op), "calls of %s", s.text);
        memcpy(op->data, out.data(), out.size());
        test_bound(t, worst, test_scan_nmse_out(&o, op), s.text);
        test_bound(t, worst, test_scan_nmse_state(&o, &s), s.text);
    }
    oracle_free(&o);
    test_arena_free(&a);
}

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

// A batch with long and short sequences, on the path of the launcher's choice: each sequence gives
// the bits that it gives alone on its path.
inline void run_mixed(
        test * t, const chunk_suite & u, const problem & p, test_rng * rng, test_worst * worst) {
    test_arena a;
    test_arena_init(&a);
    test_scan         s = u.make(&a, p, rng);
    ggml_tensor *     state = *test_scan_state(&s);
    ggml_tensor *     ids = *test_scan_ids(&s);
    const std::string before = bytes_of(state);
    run(t, &a, &s, worst, GGML_SCAN_PATH_AUTO, 1);
    test_check(t, chunked(u) && stepped(u), "only one path: %s", s.text);
    if (gpu.on()) { // another GPU may choose other paths
        test_arena_free(&a);
        return;
    }
    memcpy(state->data, before.data(), before.size());
    ggml_tensor * all = build(t, &a, &s, GGML_SCAN_PATH_AUTO);
    test_check(t, run_node(all, 1).empty(), "mixed: %s", s.text);
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
        test_scan     one = test_scan_gather(&b, &s, idx.data(), (int64_t) idx.size());
        ggml_tensor * now = test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", ids->ne[0], 1, 1, 1);
        memcpy(now->data, id, ids->ne[0] * sizeof(int32_t));
        ((int32_t *) now->data)[GGML_SCAN_FIRST] = 0;
        *test_scan_ids(&one) = now;

        memcpy(state->data, before.data(), before.size());
        ggml_tensor * alone =
                build(t, &b, &one, chunk ? GGML_SCAN_PATH_CHUNK : GGML_SCAN_PATH_STEP);
        test_check(t, run_node(alone, 1).empty() && chunked(u) == chunk, "alone: %s", s.text);
        test_check(t,
                memcmp(alone->data, (const char *) all->data + id[GGML_SCAN_FIRST] * row,
                        ggml_nbytes(alone)) == 0,
                "sequence %d of %d tokens is not the same alone: %s", (int) i,
                (int) id[GGML_SCAN_COUNT], s.text);
        for (int64_t x = GGML_SCAN_SLOT_OUT; x < ids->ne[0]; ++x) {
            const bool    is_slot = x == GGML_SCAN_SLOT_OUT || x >= GGML_SCAN_SNAPS;
            const int64_t at = is_slot && id[x] >= 0 ? id[x] * (int64_t) state->nb[1] : -1;
            test_check(t,
                    at < 0 || memcmp((const char *) state->data + at, after.data() + at,
                                      state->ne[0] * sizeof(float)) == 0,
                    "the state of sequence %d is not the same alone: %s", (int) i, s.text);
        }
        test_arena_free(&b);
    }
    test_check(t, n_chunk > 0 && n_chunk < ids->ne[1], "%d of %d sequences use chunks", n_chunk,
            (int) ids->ne[1]);
    test_arena_free(&a);
}

// Errors in PTX; case_of(b) is the case that finds one
template <typename Case>
void run_all_broken(
        test * t, const chunk_suite & u, const std::vector<breakage> & all, Case && case_of) {
    test_rng rng = { 12 };
    for (const breakage & b : all) {
        const problem p = case_of(b);
        test_arena    a;
        test_arena_init(&a);
        test_scan s = u.make(&a, p, &rng);
        run_broken(t, &a, &s, u.ptx_file, b, GGML_SCAN_PATH_CHUNK);
        test_arena_free(&a);
    }
}

// All kernels ran; with PTX, all of its kernels
inline int end_chunk_test(test * t, const chunk_suite & u, const char * name) {
    const int n_prepare = count(kernels_run, u.prepare), n_scan = count(kernels_run, u.scan);
    test_check(t, n_prepare == (int) u.prepare.size() && n_scan == (int) u.scan.size(),
            "%d of %d and %d of %d kernels ran", n_prepare, (int) u.prepare.size(), n_scan,
            (int) u.scan.size());
    printf("all %d chunk kernels ran: %d that prepare, %d that take the state through chunks\n",
            n_prepare + n_scan, n_prepare, n_scan);
    if (ptx_run.on) {
        test_check(t, ptx_run.print(true) == 0, "kernels of the PTX did not run");
    }
    return test_end(t, name);
}
