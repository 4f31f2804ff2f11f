#pragma once

// Shared by the tests of the CUDA kernels: runs a node with cuda-emu.h, or with the PTX that nvcc
// made of the kernels, and compares it with the oracle; makes scans of any shape.
// Include the launchers of the kernels first.

#include "kit/gpu.h"
#include "kit/ptx/ptx-session.h"
#include "kit/scan-problem.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

//
// Running a node
//

// A launch runs in all orders; with sanitizers, which are slow and find no races, in one.
enum { ALL_ORDERS = LRNN_SANITIZE ? 1 : (int) cuda_emu::N_ORDERS };

inline std::set<const void *> kernels_run;  // addresses of all instances launched so far
inline std::set<const void *> kernels_last; // those launched for the last node

// The GPU that the launchers choose kernels for: an A100
inline const path_gpu test_gpu = { true, 80, 108 };

inline ptx_session ptx_run; // used if a folder with PTX was given
inline gpu_run     gpu;     // used if a device was given

// Fewer and shorter cases. With sanitizers and PTX, which are slow, they reach all of the code.
inline bool is_short() {
    return LRNN_SANITIZE || (ptx_run.on && !ptx_run.all);
}

// Reads the options of a test. Returns -1, or the exit code with which the test has to end.
inline int begin_test(int argc, char ** argv, const std::vector<std::string> & ptx_files) {
    if (argc > 1 && strcmp(argv[1], "--device") == 0) {
        return gpu.begin(argc > 2 ? argv[2] : "");
    }
    return ptx_run.begin(argc, argv, ptx_files);
}

// Runs a node on device buffers. Output and state are copied back; nothing else may be written.
// `dispatch(node, work, launch)` calls its launcher; `work` is a buffer full of NaN. Returns the
// failure that the emulator or the interpreter found; empty: none.
template <typename Dispatch>
std::string run_on_device(
        ggml_tensor * op, int64_t work_floats, int n_orders, Dispatch && dispatch) {
    if (gpu.on()) { // the launcher only tells which kernels it chooses
        float unused;
        kernels_last.clear();
        dispatch(op, work_floats > 0 ? &unused : nullptr,
                [&](auto kernel, dim3, dim3, const auto &) {
                    kernels_run.insert((const void *) kernel);
                    kernels_last.insert((const void *) kernel);
                });
        return gpu.run(op);
    }
    ggml_tensor                       node = *op;
    ggml_tensor                       src[GGML_MAX_SRC];
    std::unique_ptr<cuda_emu::buffer> mem[GGML_MAX_SRC];
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        if (op->src[i] != nullptr) {
            src[i] = *op->src[i];
            mem[i].reset(new cuda_emu::buffer(
                    "source " + std::to_string(i), src[i].data, ggml_nbytes(&src[i])));
            src[i].data = mem[i]->data();
            node.src[i] = &src[i];
            if (i != SCAN_SRC_STATE) {
                mem[i]->set_constant();
            }
        }
    }
    cuda_emu::buffer out("out", ggml_nbytes(op));
    cuda_emu::buffer work("work", work_floats * sizeof(float));
    memset(out.data(), 0x41, out.size()); // not NaN, so every NaN in it was written
    node.data = out.data();

    ptx::memory memory;
    for (int i = 0; i < GGML_MAX_SRC && ptx_run.on; ++i) {
        if (mem[i]) {
            memory.add(mem[i]->name(), mem[i]->data(), mem[i]->size(),
                    i == SCAN_SRC_STATE ? ptx::READ_WRITE : ptx::CONSTANT);
        }
    }
    memory.add(out.name(), out.data(), out.size(), ptx::FRESH);
    memory.add(work.name(), work.data(), work.size(), ptx::FRESH);

    std::string found;
    kernels_last.clear();
    dispatch(&node, work_floats > 0 ? work.as<float>() : nullptr,
            [&](auto kernel, dim3 grid, dim3 block, const auto & args) {
                kernels_run.insert((const void *) kernel);
                kernels_last.insert((const void *) kernel);
                if (found.empty()) {
                    found = ptx_run.on ? ptx_run.launch((const void *) kernel,
                                                 { grid.x, grid.y, grid.z },
                                                 { block.x, block.y, block.z }, &args, sizeof(args),
                                                 memory)
                                       : cuda_emu::launch(
                                                 grid, block, 0, [&] { kernel(args); }, n_orders);
                }
            });
    memcpy(op->data, out.data(), out.size());
    memcpy(op->src[SCAN_SRC_STATE]->data, mem[SCAN_SRC_STATE]->data(), mem[SCAN_SRC_STATE]->size());
    return found;
}

// Each test defines it with its launchers, which choose kernels for `on`.
static std::string run_node(
        ggml_tensor * op, int n_orders = ALL_ORDERS, const path_gpu & on = test_gpu);

inline ggml_tensor * build(test * t, test_arena * a, const test_scan * s, ggml_scan_path path) {
    ggml_tensor * op = test_scan_build(t, a, s, path);
    test_alloc(a, op);
    return op;
}

// The bytes of a tensor, gaps included
inline std::string bytes_of(const ggml_tensor * x) {
    return std::string((const char *) x->data, ggml_nbytes(x));
}

// True if two buffers of floats have equal numbers; 0 and −0 are equal
inline bool equal_numbers(const std::string & a, const std::string & b) {
    const float * x = (const float *) a.data();
    return a.size() == b.size() &&
           std::equal(x, x + a.size() / sizeof(float), (const float *) b.data());
}

inline bool untouched(const oracle & o, const ggml_tensor * state, const std::string & before) {
    for (int64_t slot = 0; slot < o.n_slots; ++slot) {
        const size_t at = slot * state->nb[1];
        if (!o.written[slot] && memcmp((const char *) state->data + at, before.data() + at,
                                        o.slot_size * sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

// Compares one call with the oracle. PTX with mma runs once per order of its additions, if n_orders
// is more than 1.
inline void run(test * t, test_arena * a, test_scan * s, test_worst * worst,
        ggml_scan_path path = GGML_SCAN_PATH_STEP, int n_orders = ALL_ORDERS) {
    ggml_tensor *     state = *test_scan_state(s);
    const std::string before = bytes_of(state);
    oracle            o = test_scan_oracle(s);
    ggml_tensor *     op = build(t, a, s, path);
    for (bool again = true; again;) {
        memcpy(state->data, before.data(), before.size());
        const std::string found = run_node(op, n_orders);
        test_check(t, found.empty(), "%s: %s", found.c_str(), s->text);
        const double out = test_scan_nmse_out(&o, op), last = test_scan_nmse_state(&o, s);
        test_bound(t, worst, out, s->text);
        test_bound(t, worst, last, s->text);
        test_check(t, untouched(o, state, before), "a slot that is not in ids was written: %s",
                s->text);
        again = ptx_run.on && ptx_run.next_order(std::max(out, last), n_orders > 1);
    }
    oracle_free(&o);
}

// A sequence out of range: NaN for its tokens, no state touched, the others computed.
inline void run_out_of_range(test * t, test_arena * a, test_scan * s, test_rng * rng,
        ggml_scan_path path = GGML_SCAN_PATH_STEP, double limit = 1e-11) {
    ggml_tensor *     state = *test_scan_state(s);
    ggml_tensor *     ids = *test_scan_ids(s);
    const std::string before = bytes_of(state);
    const int64_t     which = test_below(rng, ids->ne[1]);
    int32_t *         id = (int32_t *) ids->data + which * ids->ne[0];
    const int         column[3] = { GGML_SCAN_SLOT_IN, GGML_SCAN_SLOT_OUT, (int) ids->ne[0] - 1 };
    for (int c = 0; c < 3; ++c) {
        const int32_t good = id[column[c]];
        id[column[c]] = c == 1 ? -1 : (int32_t) state->ne[1];
        if (c == 2 && ids->ne[0] == GGML_SCAN_SNAPS) { // no snapshots: the last column is the count
            id[column[c]] = -1;
        }
        memcpy(state->data, before.data(), before.size());
        oracle            o = test_scan_oracle(s);
        ggml_tensor *     op = build(t, a, s, path);
        const std::string found = run_node(op);
        test_check(t, found.empty(), "ids out of range: %s: %s", found.c_str(), s->text);
        if (column[c] != GGML_SCAN_COUNT) { // with an invalid count, its tokens are unknown
            test_check(t, test_scan_nmse_out(&o, op) <= limit,
                    "ids out of range: not NaN, or other sequences are wrong: %s", s->text);
        }
        test_check(t, test_scan_nmse_state(&o, s) <= limit && untouched(o, state, before),
                "ids out of range: a state is wrong: %s", s->text);
        oracle_free(&o);
        id[column[c]] = good;
    }
    memcpy(state->data, before.data(), before.size());
}

// Runs a single sequence, cut into calls of up to `most` tokens. Returns the outputs and leaves the
// state after the last call.
inline std::string run_in_calls(
        test * t, test_scan * s, test_rng * rng, ggml_scan_path path, int64_t most) {
    const int64_t T = test_batch_tokens(&s->batch);
    ggml_tensor * ids = *test_scan_ids(s);
    int32_t       id[4];
    std::string   out;
    memcpy(id, ids->data, sizeof(id));
    for (int64_t done = 0; done < T;) {
        test_arena b;
        test_arena_init(&b);
        const int64_t        n = std::min<int64_t>(1 + test_below(rng, most), T - done);
        std::vector<int64_t> idx(n);
        for (int64_t i = 0; i < n; ++i) {
            idx[i] = done + i;
        }
        test_scan     call = test_scan_gather(&b, s, idx.data(), n);
        ggml_tensor * now =
                test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, 1, 1, 1);
        const int32_t cut[4] = { done == 0 ? id[0] : id[1], id[1], 0, (int32_t) n };
        memcpy(now->data, cut, sizeof(cut));
        *test_scan_ids(&call) = now;
        ggml_tensor * op = build(t, &b, &call, path);
        test_check(t, run_node(op, 1).empty(), "cut: %s", s->text);
        out += bytes_of(op);
        done += n;
        test_arena_free(&b);
    }
    return out;
}

// A deliberate error in the PTX of a kernel, and how it is found
struct breakage {
    const char * what;
    ptx::edit    change;
    const char * message; // of the interpreter; NULL: the numbers are wrong
};

inline void run_broken(test * t, test_arena * a, test_scan * s, const char * file,
        const breakage & b, ggml_scan_path path) {
    ggml_tensor *     state = *test_scan_state(s);
    const std::string before = bytes_of(state);
    oracle            o = test_scan_oracle(s);
    ggml_tensor *     op = build(t, a, s, path);
    const std::string error = ptx_run.damage(file, b.change);
    test_check(t, error.empty(), "%s: %s", b.what, error.c_str());
    const std::string found = run_node(op, 1);
    const double      nmse = test_scan_nmse_out(&o, op);
    ptx_run.repair();
    ptx_run.last.clear();
    if (b.message != nullptr) {
        test_check(t, found.find(b.message) != std::string::npos, "%s: '%s'; expected '%s'", b.what,
                found.c_str(), b.message);
    } else {
        test_check(t, found.empty() && !(nmse < 1e-6), "%s: '%s', NMSE %g; expected wrong numbers",
                b.what, found.c_str(), nmse);
    }
    printf("  broken on purpose: %s: %s\n", b.what,
            b.message != nullptr ? found.substr(0, found.find(';')).c_str() : "wrong numbers");
    memcpy(state->data, before.data(), before.size());
    oracle_free(&o);
}

// On the step path a sequence cut into calls gives the same bits as one call.
inline void run_cuts(test * t, test_arena * a, test_scan * s, test_rng * rng) {
    ggml_tensor *     state = *test_scan_state(s);
    const std::string before = bytes_of(state);
    ggml_tensor *     whole = build(t, a, s, GGML_SCAN_PATH_STEP);
    test_check(t, run_node(whole, 1).empty(), "whole: %s", s->text);
    const std::string whole_state = bytes_of(state);

    memcpy(state->data, before.data(), before.size());
    const std::string out = run_in_calls(t, s, rng, GGML_SCAN_PATH_STEP, 6);
    test_check(t, out == bytes_of(whole) && bytes_of(state) == whole_state,
            "calls of 1 to 6 tokens differ from one call: %s", s->text);
    memcpy(state->data, before.data(), before.size());
}

//
// Cases
//

struct problem {
    int        mode;
    int        d_k, d_v, H, n_h;
    int        turn; // selects layout, head counts and beta: 2 in every third case, else 0 to 2
    test_batch batch;
    double     mean = 0.0; // of the keys
};

inline test_batch batch_of(std::initializer_list<int64_t> len, int n_snap = 0, int turn = 0) {
    test_batch b = {};
    b.n_seqs = (int) len.size();
    b.n_snap = n_snap;
    b.turn = turn;
    std::copy(len.begin(), len.end(), b.len);
    return b;
}

typedef test_scan make_fn(test_arena *, const problem &, test_rng *);

// A scan with memory of its own
struct owned_scan {
    test_arena a;
    test_scan  s;

    owned_scan(make_fn * make, const problem & p, test_rng * rng) {
        test_arena_init(&a);
        s = make(&a, p, rng);
    }
    ~owned_scan() {
        test_arena_free(&a);
    }
    owned_scan(const owned_scan &) = delete;
};

inline test_worst worst_of(const char * what, double limit) {
    test_worst w = {};
    w.what = what;
    w.limit = limit;
    return w;
}

// Up to three sequences of fewer than `most` tokens. The first has three more, because the output
// of a single token may cancel to zero.
inline test_batch random_batch(test_rng * rng, int turn, int64_t most) {
    test_batch b = {};
    b.n_seqs = 1 + (int) test_below(rng, 3);
    b.n_snap = (int) test_below(rng, 4);
    b.turn = turn;
    for (int i = 0; i < b.n_seqs; ++i) {
        b.len[i] = test_below(rng, most) + (i == 0 ? 3 : 0);
    }
    return b;
}

// Any layout with contiguous rows, some gaps between slots
inline test_problem full(const problem & p) {
    test_problem x = {};
    x.mode = p.mode;
    x.d_k = p.d_k;
    x.d_v = p.d_v;
    x.H = p.H;
    x.n_h = p.n_h;
    x.heads = p.turn;
    x.layout = (test_layout) (p.turn % TEST_REVERSED);
    x.state_gaps = p.turn % 4 == 3;
    x.batch = p.batch;
    x.mean = p.mean;
    x.beta_lo = p.turn % 3 == 0 ? 2.0 : 0.0;
    x.hard = 60.0; // exp(−88) is not representable in F32
    return x;
}

inline test_scan make_householder(test_arena * a, const problem & p, test_rng * rng) {
    const test_problem x = full(p);
    return test_make_householder(a, &x, rng);
}

inline test_scan make_signed(test_arena * a, const problem & p, test_rng * rng) {
    const test_problem x = full(p);
    return test_make_signed(a, &x, rng);
}

inline test_scan make_conv(test_arena * a, const problem & p, test_rng * rng) {
    test_problem x = full(p);
    x.layout = p.turn % 2 == 0 ? TEST_DENSE : TEST_GAPS;
    return test_make_conv(a, &x, rng);
}

// T letters of S_5, each a product of four random transpositions: Householder matrices with β = 2.
// The keys are (e_i − e_j)/√2, rounded to F32; or, if `exact`, (e_i + e_i' − e_j − e_j')/2, with
// every point stored twice and a value v written with every factor: S_i ← S_j + v, S_j ← S_i − v. S
// starts as the identity with two more columns of integers; o = Sᵀ (1, 2, 3, 4, 5). Sets `want` to
// the correct outputs.
inline test_scan make_word(
        test_arena * a, test_rng * rng, int T, bool exact, std::vector<float> * want) {
    const int        N = 5, M = 7, n_h = 4, d_k = exact ? 2 * N : N;
    const test_batch batch = batch_of({ T });
    test_scan        s = test_zero_householder(a, &batch, d_k, M, 1, n_h, 0);
    snprintf(s.text, sizeof(s.text), "a word of %d letters in S_5", T);
    ggml_householder_scan_args & x = s.householder;
    test_fill(x.beta, 2.0f);

    int S[N][M];
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < M; ++j) {
            S[i][j] = j < N ? i == j : j == N ? i + 1 : -(i + 1) * (i + 1);
        }
    }
    for (int i = 0; i < d_k * M; ++i) {
        test_set(x.state, i, ((const int32_t *) x.ids->data)[GGML_SCAN_SLOT_IN], 0, 0,
                (float) S[i / M % N][i % M]);
    }
    want->resize((size_t) T * M);
    const float length = exact ? 0.5f : 0.70710678f;
    for (int n = 0; n < T; ++n) {
        for (int f = 0; f < n_h; ++f) {
            const int i = (int) test_below(rng, N);
            const int j = (i + 1 + (int) test_below(rng, N - 1)) % N;
            for (int copy = 0; copy < d_k; copy += N) {
                test_set(x.k, i + copy, 0, f, n, length);
                test_set(x.k, j + copy, 0, f, n, -length);
            }
            for (int c = 0; c < M; ++c) {
                const int v = exact ? (int) test_below(rng, 7) - 3 : 0;
                const int old = S[i][c];
                test_set(x.v, c, 0, f, n, (float) v);
                S[i][c] = S[j][c] + v;
                S[j][c] = old - v;
            }
        }
        for (int c = 0; c < M; ++c) {
            int sum = 0;
            for (int i = 0; i < N; ++i) {
                sum += (i + 1) * S[i][c];
            }
            (*want)[n * M + c] = (float) sum;
        }
        for (int i = 0; i < N; ++i) {
            test_set(x.q, i, 0, 0, n, (float) (i + 1));
        }
    }
    return s;
}

// A long word with keys that round.
inline void run_s5(test * t, ggml_scan_path path) {
    const int          T = is_short() ? 2000 : 20000;
    test_rng           rng = { 5 };
    std::vector<float> want;
    test_arena         a;
    test_arena_init(&a);
    test_scan         s = make_word(&a, &rng, T, false, &want);
    oracle            o = test_scan_oracle(&s);
    ggml_tensor *     op = build(t, &a, &s, path);
    const std::string found = run_node(op, 1);
    test_check(t, found.empty(), "%s: %s", found.c_str(), s.text);
    int    wrong = 0;
    double worst = 0.0, keys = 0.0;
    for (size_t i = 0; i < want.size(); ++i) {
        const double err = fabs((double) ((float *) op->data)[i] - want[i]);
        wrong += !(err < 0.5);
        worst = std::max(worst, err);
        keys = std::max(keys, fabs(o.out[i] - want[i]));
    }
    oracle_free(&o);
    test_check(t, wrong == 0, "%s, %s: %d of %d numbers are wrong", s.text, test_path_names[path],
            wrong, (int) want.size());
    printf("S_5, %s: %d letters, n_h = 4, unit keys rounded to F32, beta = 2: %d errors, largest\n"
           "  deviation %.1e; from the rounding of the keys alone, in double: %.1e\n",
            test_path_names[path], T, wrong, worst, keys);
    test_arena_free(&a);
}
