// The CUDA kernels, run by cuda-emu.h on the CPU, against the double-precision loop: every instance, random shapes in every mode, ragged batches,
// slots in place, forks, snapshots, strides, head counts, ids out of range, cuts into calls. Every launch runs in three orders of its threads and
// blocks, which agree to the bit. The instance and the grid are chosen by the code that chooses them on a card (launch*.cuh).

#include "cuda-emu.h"

#include "cuda/launch-householder.cuh"
#include "cuda/launch-short-conv.cuh"
#include "cuda/launch-signed.cuh"

#include "util.h"

#include <cstdio>
#include <memory>
#include <set>

//
// Running a node
//

static std::set<const void *> kernels_run; // addresses of the instances that were launched

// The node on buffers of the device: out and state are copied back, everything else must not be written. Returns what the emulation found.
static std::string run_node(ggml_tensor * op, int n_orders = cuda_emu::N_ORDERS) {
    ggml_tensor node = *op;
    ggml_tensor src[GGML_MAX_SRC];
    std::unique_ptr<cuda_emu::buffer> mem[GGML_MAX_SRC];
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (op->src[i] != nullptr) {
            src[i] = *op->src[i];
            mem[i].reset(new cuda_emu::buffer("source " + std::to_string(i), src[i].data, ggml_nbytes(&src[i])));
            src[i].data = mem[i]->data();
            node.src[i] = &src[i];
            if (i != SCAN_SRC_STATE) {
                mem[i]->set_constant();
            }
        }
    }
    cuda_emu::buffer out("out", ggml_nbytes(op));
    memset(out.data(), 0x41, out.size()); // no NaN, so that every NaN in it was written
    node.data = out.data();

    std::string found;
    auto launch = [&](auto kernel, dim3 grid, dim3 block, const auto & args) {
        kernels_run.insert((const void *) kernel);
        if (found.empty()) {
            found = cuda_emu::launch(grid, block, 0, [&] { kernel(args); }, n_orders);
        }
    };
    switch (op->op) {
        case GGML_OP_HOUSEHOLDER_SCAN: launch_householder(&node, launch); break;
        case GGML_OP_SIGNED_SCAN:      launch_signed     (&node, launch); break;
        default:                       launch_short_conv (&node, launch); break;
    }
    memcpy(op->data, out.data(), out.size());
    memcpy(op->src[SCAN_SRC_STATE]->data, mem[SCAN_SRC_STATE]->data(), mem[SCAN_SRC_STATE]->size());
    return found;
}

static ggml_tensor * build(test * t, test_arena * a, const test_scan * s) {
    ggml_tensor * op = test_scan_build(t, a, s, GGML_SCAN_PATH_STEP);
    test_alloc(a, op);
    return op;
}

// bytes of a tensor as they are, gaps included
static std::string bytes_of(const ggml_tensor * x) {
    return std::string((const char *) x->data, ggml_nbytes(x));
}

static bool untouched(const oracle & o, const ggml_tensor * state, const std::string & before) {
    for (int64_t slot = 0; slot < o.n_slots; slot++) {
        const size_t at = slot*state->nb[1];
        if (!o.written[slot] && memcmp((const char *) state->data + at, before.data() + at, o.slot_size*sizeof(float)) != 0) {
            return false;
        }
    }
    return true;
}

// One call against the oracle.
static void run(test * t, test_arena * a, test_scan * s, test_worst * worst) {
    ggml_tensor *     state  = *test_scan_state(s);
    const std::string before = bytes_of(state);
    oracle            o      = test_scan_oracle(s);
    ggml_tensor *     op     = build(t, a, s);
    const std::string found  = run_node(op);
    test_check(t, found.empty(), "%s: %s", found.c_str(), s->text);
    test_bound(t, worst, test_scan_nmse_out(&o, op), s->text);
    test_bound(t, worst, test_scan_nmse_state(&o, s), s->text);
    test_check(t, untouched(o, state, before), "a slot that ids do not name was written: %s", s->text);
    oracle_free(&o);
}

// A sequence out of range: NaN for its tokens, no state touched, the others computed.
static void run_out_of_range(test * t, test_arena * a, test_scan * s, test_rng * rng) {
    ggml_tensor *     state  = *test_scan_state(s);
    ggml_tensor *     ids    = *test_scan_ids(s);
    const std::string before = bytes_of(state);
    const int64_t     which  = test_below(rng, ids->ne[1]);
    int32_t *         id     = (int32_t *) ids->data + which*ids->ne[0];
    const int         column[3] = { GGML_SCAN_SLOT_IN, GGML_SCAN_SLOT_OUT, (int) ids->ne[0] - 1 };
    for (int c = 0; c < 3; c++) {
        const int32_t good = id[column[c]];
        id[column[c]] = c == 1 ? -1 : (int32_t) state->ne[1];
        if (c == 2 && ids->ne[0] == GGML_SCAN_SNAPS) { // no snapshots: the last column is the count
            id[column[c]] = -1;
        }
        memcpy(state->data, before.data(), before.size());
        oracle            o     = test_scan_oracle(s);
        ggml_tensor *     op    = build(t, a, s);
        const std::string found = run_node(op);
        test_check(t, found.empty(), "ids out of range: %s: %s", found.c_str(), s->text);
        if (column[c] != GGML_SCAN_COUNT) { // else it has no tokens that could be told
            test_check(t, test_scan_nmse_out(&o, op) <= 1e-11, "ids out of range: not NaN, or the others are wrong: %s", s->text);
        }
        test_check(t, test_scan_nmse_state(&o, s) <= 1e-11 && untouched(o, state, before), "ids out of range: a state is wrong: %s", s->text);
        oracle_free(&o);
        id[column[c]] = good;
    }
    memcpy(state->data, before.data(), before.size());
}

// A sequence cut into calls gives the bits of one call.
static void run_cuts(test * t, test_arena * a, test_scan * s, test_rng * rng) {
    ggml_tensor *     state  = *test_scan_state(s);
    ggml_tensor *     ids    = *test_scan_ids(s);
    const std::string before = bytes_of(state);
    const int64_t     T      = test_batch_tokens(&s->batch);
    int32_t           id[4];
    memcpy(id, ids->data, sizeof(id));

    ggml_tensor * whole = build(t, a, s);
    test_check(t, run_node(whole, 1).empty(), "whole: %s", s->text);
    const std::string whole_state = bytes_of(state);
    memcpy(state->data, before.data(), before.size());

    bool same = true;
    for (int64_t done = 0; done < T; ) {
        test_arena b;
        test_arena_init(&b);
        const int64_t n = std::min<int64_t>(1 + test_below(rng, 6), T - done);
        int64_t       idx[8];
        for (int64_t i = 0; i < n; i++) {
            idx[i] = done + i;
        }
        test_scan     call = test_scan_gather(&b, s, idx, n);
        ggml_tensor * now  = test_tensor(&b, GGML_TYPE_I32, TEST_DENSE, "ids", GGML_SCAN_SNAPS, 1, 1, 1);
        const int32_t cut[4] = { done == 0 ? id[0] : id[1], id[1], 0, (int32_t) n };
        memcpy(now->data, cut, sizeof(cut));
        *test_scan_ids(&call) = now;
        ggml_tensor * op = build(t, &b, &call);
        test_check(t, run_node(op, 1).empty(), "cut: %s", s->text);
        const size_t row = ggml_nbytes(whole)/T;
        same = same && memcmp((const char *) whole->data + done*row, op->data, n*row) == 0;
        done += n;
        test_arena_free(&b);
    }
    test_check(t, same && bytes_of(state) == whole_state, "calls of 1 to 6 tokens give other bits than one call: %s", s->text);
    memcpy(state->data, before.data(), before.size());
}

//
// Cases
//

struct problem {
    int         mode;
    int         d_k, d_v, H, n_h;
    int         turn;       // of the batch; also picks layout and head counts
    test_batch  batch;
};

static void describe(test_scan * s, const char * mode, const problem & p) {
    int n = snprintf(s->text, sizeof(s->text), "%s, %dx%d, H %d, n_h %d, turn %d, snapshots %d, lengths", mode, p.d_k, p.d_v, p.H, p.n_h, p.turn,
            p.batch.n_snap);
    for (int i = 0; i < p.batch.n_seqs; i++) {
        n += snprintf(s->text + n, sizeof(s->text) - n, " %d", (int) p.batch.len[i]);
    }
}

// up to three sequences of 0 .. most tokens; the first has at least three, because the output of a single one may cancel to nothing
static test_batch random_batch(test_rng * rng, int turn, int64_t most) {
    test_batch b = {};
    b.n_seqs = 1 + (int) test_below(rng, 3);
    b.n_snap = (int) test_below(rng, 4);
    b.turn   = turn;
    for (int i = 0; i < b.n_seqs; i++) {
        b.len[i] = test_below(rng, most) + (i == 0 ? 3 : 0);
    }
    return b;
}

static test_layout layout_of(const problem & p) { return (test_layout) (p.turn % TEST_REVERSED); } // all that keep rows contiguous

static ggml_tensor * tokens(test_arena * a, const problem & p, const char * name, int width, int heads, int factors, int64_t T) {
    return test_tensor(a, GGML_TYPE_F32, layout_of(p), name, width, test_divisor(p.H, p.turn + heads), factors, T);
}

static ggml_tensor * state_of(test_arena * a, const problem & p, int64_t size) {
    return test_tensor(a, GGML_TYPE_F32, p.turn % 4 == 3 ? TEST_GAPS : TEST_DENSE, "state", size*p.H, test_batch_slots(&p.batch), 1, 1);
}

// any sign, and sometimes 0: whoever divides by gates is found
static void fill_gates(ggml_tensor * x, test_rng * rng, double lo) {
    test_fill_uniform(x, rng, lo, 1.0);
    for (int64_t t = 0; t < x->ne[3]; t++) {
        for (int64_t h = 0; h < x->ne[1]; h++) {
            for (int64_t i = 0; i < x->ne[0]; i++) {
                const int64_t dice = test_below(rng, 50);
                if (dice < 16) {
                    test_set(x, i, h, 0, t, dice == 0 ? 0.0f : -test_get(x, i, h, 0, t));
                }
            }
        }
    }
}

// modes 0..5: {beta, r and w} x {no gate, gate per head, gate per channel}
static const char * const householder_names[6] = { "beta, no gate", "beta, gate per head", "beta, gate per channel", "r and w, no gate",
    "r and w, gate per head", "r and w, gate per channel" };

static test_scan make_householder(test_arena * a, const problem & p, test_rng * rng) {
    const int64_t T  = test_batch_tokens(&p.batch);
    const bool    rw = p.mode >= 3;
    test_scan     s  = {};
    s.op    = test_scan::TEST_HOUSEHOLDER;
    s.batch = p.batch;
    ggml_householder_scan_args & x = s.householder;
    x.state = state_of(a, p, (int64_t) p.d_k*p.d_v);
    x.ids   = test_batch_ids(a, &p.batch);
    x.q     = tokens(a, p, "q", p.d_k, 0, 1,     T);
    x.k     = tokens(a, p, "k", p.d_k, 1, p.n_h, T);
    x.v     = tokens(a, p, "v", p.d_v, 2, p.n_h, T);
    x.scale = 1.0f/sqrtf((float) p.d_k);
    test_fill_slots (x.state, x.ids, rng);
    test_fill_unit  (x.q, rng, 0.0);
    test_fill_unit  (x.k, rng, 0.0);
    test_fill_normal(x.v, rng, 1.0);
    if (rw) { // as RWKV-7 makes them: r of length 1, w = r ∘ a with a in (0, 1)
        x.r = tokens(a, p, "r", p.d_k, 3, 1, T);
        x.w = tokens(a, p, "w", p.d_k, 3, 1, T);
        test_fill_unit   (x.r, rng, 0.0);
        test_fill_uniform(x.w, rng, 0.0, 1.0);
        for (int64_t t = 0; t < T; t++) {
            for (int64_t h = 0; h < x.r->ne[1]; h++) {
                for (int64_t i = 0; i < p.d_k; i++) {
                    test_set(x.w, i, h, 0, t, test_get(x.r, i, h, 0, t)*test_get(x.w, i, h, 0, t));
                }
            }
        }
    } else {
        x.beta = tokens(a, p, "beta", 1, 3, p.n_h, T);
        test_fill_uniform(x.beta, rng, p.turn % 3 == 0 ? 2.0 : 0.0, 2.0);
    }
    if (p.mode % 3 != 0) {
        x.gate = tokens(a, p, "gate", p.mode % 3 == 1 ? 1 : p.d_k, 4, 1, T);
        if (rw) {
            test_fill_uniform(x.gate, rng, 0.55, 1.0);
        } else {
            fill_gates(x.gate, rng, 0.8);
        }
    }
    describe(&s, householder_names[p.mode], p);
    return s;
}

enum signed_mode { NONE, HEAD, CHANNEL, CONST_HEAD, CONST_CHANNEL, BONUS, BONUS_HEAD, BONUS_NONE, MAMBA, MAMBA_SIGNED, MAMBA2, MAMBA2_SIGNED,
    MLSTM, MLSTM_HARD, N_SIGNED };

static const char * const signed_names[N_SIGNED] = { "no gate", "gate per head", "gate per channel", "constant gate per head",
    "constant gate per channel", "bonus, gate per channel", "bonus, gate per head", "bonus, no gate", "Mamba", "Mamba signed", "Mamba-2",
    "Mamba-2 signed", "mLSTM", "mLSTM, hard gates" };

static double log_sigmoid(double x) { return x < 0.0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

static test_scan make_signed(test_arena * a, const problem & p, test_rng * rng) {
    const int64_t T     = test_batch_tokens(&p.batch);
    const bool    mlstm = p.mode >= MLSTM;
    const double  hard  = 60.0; // F32 has no number for exp(−88), and from the zero state a short sequence may have no other
    const int64_t size  = (int64_t) p.d_k*p.d_v + (mlstm ? p.d_k + 1 : 0);
    test_scan     s     = {};
    s.op    = test_scan::TEST_SIGNED;
    s.batch = p.batch;
    ggml_signed_scan_args & x = s.sign;
    x.state = state_of(a, p, size);
    x.ids   = test_batch_ids(a, &p.batch);
    x.c     = tokens(a, p, "c", p.d_k, 0, 1, T);
    x.b     = tokens(a, p, "b", p.d_k, 1, 1, T);
    x.x     = tokens(a, p, "x", p.d_v, 2, 1, T);
    x.scale = 1.0f/sqrtf((float) p.d_k);
    x.eps   = 1e-6f;
    x.form  = p.mode == MAMBA_SIGNED || p.mode == MAMBA2_SIGNED ? GGML_SIGNED_SCAN_TWO_EXP_M1 : GGML_SIGNED_SCAN_EXP;
    test_fill_slots (x.state, x.ids, rng);
    test_fill_normal(x.c, rng, 1.0);
    test_fill_normal(x.b, rng, 1.0);
    test_fill_normal(x.x, rng, 1.0);

    const bool head  = p.mode == HEAD || p.mode == CONST_HEAD || p.mode == BONUS_HEAD;
    const bool fixed = p.mode == CONST_HEAD || p.mode == CONST_CHANNEL;
    if (head || fixed || p.mode == CHANNEL || p.mode == BONUS) {
        x.gate = tokens(a, p, "gate", head ? 1 : p.d_k, 3, 1, fixed ? 1 : T);
        fill_gates(x.gate, rng, 0.8);
    }
    if (p.mode == BONUS || p.mode == BONUS_HEAD || p.mode == BONUS_NONE) {
        x.bonus = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bonus", p.d_k, test_divisor(p.H, p.turn + 4), 1, 1);
        test_fill_normal(x.bonus, rng, 1.0);
    }
    if (p.mode >= MAMBA && p.mode <= MAMBA2_SIGNED) { // dt A from nearly 0 to −3
        const bool one = p.mode >= MAMBA2;
        x.dt = tokens(a, p, "dt", one ? 1 : p.d_v, 3, 1, T);
        x.A  = test_tensor(a, GGML_TYPE_F32, p.turn % 2 == 0 ? TEST_REVERSED : TEST_DENSE, "A", one ? 1 : p.d_v, one ? 1 : p.d_k,
                test_divisor(p.H, p.turn + 4), 1);
        test_fill_uniform(x.dt, rng, 0.001, 0.3);
        test_fill_uniform(x.A,  rng, -10.0, -0.1);
    }
    if (mlstm) {
        const bool any = p.mode == MLSTM_HARD;
        x.log_f = tokens(a, p, "log_f", 1, 3, 1, T);
        x.log_i = tokens(a, p, "log_i", 1, 4, 1, T);
        for (int64_t t = 0; t < T; t++) {
            for (int64_t h = 0; h < x.log_f->ne[1]; h++) {
                test_set(x.log_f, 0, h, 0, t, (float) log_sigmoid(any ? test_uniform(rng, -hard, hard) : 3.0 + 1.5*test_normal(rng)));
            }
            for (int64_t h = 0; h < x.log_i->ne[1]; h++) {
                test_set(x.log_i, 0, h, 0, t, (float) (any ? test_uniform(rng, -hard, hard) : 2.0*test_normal(rng)));
            }
        }
        for (int64_t slot = 0; slot < x.state->ne[1]; slot++) {
            for (int64_t h = 0; h < p.H && !isnan(test_get(x.state, 0, slot, 0, 0)); h++) { // any m is legal in a state
                test_set(x.state, h*size + size - 1, slot, 0, 0, (float) test_uniform(rng, any ? -50.0 : -2.0, any ? 50.0 : 2.0));
            }
        }
    }
    describe(&s, signed_names[p.mode], p);
    return s;
}

typedef test_scan make_fn(test_arena *, const problem &, test_rng *);

// padded and exact sizes of every instance, then one that only the plain kernel takes
static const int instance_sizes[] = { 4, 16, 20, 32, 36, 64, 68, 96, 100, 128, 132, 192, 196, 256, 260 };

// every mode in every instance, then fifty random shapes a mode
static void test_modes(test * t, make_fn * make, int n_modes, const char * const * names) {
    test_rng rng = { 1 };
    int      n   = 0;
    for (int mode = 0; mode < n_modes; mode++) {
        char       what[80];
        test_worst worst = {};
        snprintf(what, sizeof(what), "%s", names[mode]);
        worst.what  = what;
        worst.limit = 1e-12;
        const bool one_factor = make == make_signed || mode >= 3;
        const int  n_sizes    = (int) (sizeof(instance_sizes)/sizeof(instance_sizes[0]));
        for (int i = 0; i < n_sizes + 50; i++, n++) {
            problem p = {};
            p.mode = mode;
            p.turn = n;
            p.n_h  = one_factor ? 1 : 1 + n % 4;
            if (i < n_sizes) {
                p.d_k   = instance_sizes[i];
                p.d_v   = i % 3 == 0 ? (p.d_k <= 16 ? 72 : 40) : i % 3 == 1 ? 8 : 20; // more than a block of columns, one warp, something between
                p.H     = 2;
                p.batch = random_batch(&rng, n, p.d_k > 128 ? 2 : 5);
            } else { // small ones more often; the contract says multiples of 4, the kernels take any
                const int64_t largest = test_below(&rng, 5) == 0 ? 256 : 64;
                p.d_k   = 1 + (int) test_below(&rng, largest);
                p.d_v   = 1 + (int) test_below(&rng, 40);
                p.H     = p.d_k*p.d_v > 4096 ? 1 : 1 + (int) test_below(&rng, 4);
                p.batch = random_batch(&rng, n, p.d_k*p.d_v > 2048 ? 2 : 7);
            }
            test_arena a;
            test_arena_init(&a);
            test_scan s = make(&a, p, &rng);
            run(t, &a, &s, &worst);
            test_arena_free(&a);
        }
        test_worst_print(&worst);
    }
}

static void test_slots(test * t, make_fn * make, int n_modes) {
    test_rng rng = { 2 };
    for (int mode = 0; mode < n_modes; mode++) {
        for (int big = 0; big < 2; big++) { // an instance, the plain kernel
            problem p = {};
            p.mode = mode;
            p.d_k  = big ? 260 : 24;
            p.d_v  = big ? 3   : 20;
            p.H    = big ? 1   : 2;
            p.n_h  = make == make_householder && mode < 3 ? 3 : 1;
            p.turn = mode + big;

            test_arena a;
            test_arena_init(&a);
            p.batch = {};
            p.batch.n_seqs = 3;
            p.batch.len[0] = 5;
            p.batch.len[1] = 1;
            p.batch.len[2] = 3;
            p.batch.n_snap = 2;
            p.batch.turn   = mode;
            test_scan s = make(&a, p, &rng);
            run_out_of_range(t, &a, &s, &rng);

            p.batch = {};
            p.batch.n_seqs = 1;
            p.batch.len[0] = big ? 7 : 29; // more than one piece of events
            p.batch.turn   = mode;
            s = make(&a, p, &rng);
            run_cuts(t, &a, &s, &rng);
            test_arena_free(&a);
        }
    }
    printf("  ids out of range: NaN for the sequence, no state touched, the others computed; calls of 1 to 6 tokens give the bits of one call\n");
}

// Up to 256 tokens with no gate, where nothing is forgotten and errors add up
static void test_length(test * t) {
    test_rng   rng   = { 3 };
    test_worst worst = {};
    worst.what  = "200 and 256 tokens";
    worst.limit = 1e-12;
    for (int mode = 0; mode < 6; mode++) {
        problem p = {};
        p.mode = mode;
        p.d_k  = 64;
        p.d_v  = 8;
        p.H    = 1;
        p.n_h  = mode < 3 ? 2 : 1;
        p.turn = 3*mode; // beta = 2
        p.batch.n_seqs = 1;
        p.batch.len[0] = 256;
        p.batch.turn   = mode;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_householder(&a, p, &rng);
        run(t, &a, &s, &worst);
        test_arena_free(&a);
    }
    for (int mode = 0; mode < N_SIGNED; mode++) {
        problem p = {};
        p.mode = mode;
        p.d_k  = 32;
        p.d_v  = 8;
        p.H    = 1;
        p.n_h  = 1;
        p.turn = mode;
        p.batch.n_seqs = 1;
        p.batch.len[0] = 200;
        p.batch.turn   = mode;
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_signed(&a, p, &rng);
        run(t, &a, &s, &worst);
        test_arena_free(&a);
    }
    test_worst_print(&worst);
}

static test_scan make_conv(test_arena * a, const problem & p, test_rng * rng) {
    const int64_t T     = test_batch_tokens(&p.batch);
    const bool    shift = p.mode == 0; // token shift, else bit 0: bias, bit 1: SiLU
    test_scan     s     = {};
    s.op    = test_scan::TEST_CONV;
    s.batch = p.batch;
    s.conv.state = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "state", (int64_t) p.d_v*p.d_k, test_batch_slots(&p.batch), 1, 1);
    s.conv.ids   = test_batch_ids(a, &p.batch);
    s.conv.x     = test_tensor(a, GGML_TYPE_F32, p.turn % 2 == 0 ? TEST_DENSE : TEST_GAPS, "x", p.d_v, T, 1, 1);
    s.conv.silu  = p.mode >= 3;
    test_fill_slots (s.conv.state, s.conv.ids, rng);
    test_fill_normal(s.conv.x, rng, 1.0);
    if (!shift) {
        s.conv.weight = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "weight", p.d_k + 1, p.d_v, 1, 1);
        test_fill_normal(s.conv.weight, rng, 1.0);
    }
    if (p.mode == 2 || p.mode == 4) {
        s.conv.bias = test_tensor(a, GGML_TYPE_F32, TEST_DENSE, "bias", p.d_v, 1, 1, 1);
        test_fill_normal(s.conv.bias, rng, 1.0);
    }
    describe(&s, shift ? "token shift" : "convolution", p);
    return s;
}

static void test_conv(test * t) {
    test_rng   rng   = { 4 };
    test_worst worst = {};
    worst.what  = "short convolution";
    worst.limit = 1e-12;
    for (int n = 0; n < 300; n++) {
        problem p = {};
        p.mode  = n % 5;
        p.d_k   = p.mode == 0 ? 1 : 1 + (int) test_below(&rng, n % 3 == 0 ? 14 : 4);
        p.d_v   = 1 + (int) test_below(&rng, 80);
        p.H     = 1;
        p.n_h   = 1;
        p.turn  = n;
        p.batch = random_batch(&rng, n, n % 2 == 0 ? 4 : 30); // often shorter than the width: a tail of old tail and new inputs
        test_arena a;
        test_arena_init(&a);
        test_scan s = make_conv(&a, p, &rng);
        run(t, &a, &s, &worst);
        if (n < 30) {
            run_out_of_range(t, &a, &s, &rng);
            p.batch        = {};
            p.batch.n_seqs = 1;
            p.batch.len[0] = 20;
            p.batch.turn   = n;
            s = make_conv(&a, p, &rng);
            run_cuts(t, &a, &s, &rng);
        }
        test_arena_free(&a);
    }
    printf("short convolution: 300 random shapes; ids out of range and cuts into calls in 30 of them\n");
    test_worst_print(&worst);
}

// A word in S_5, a letter being a product of four transpositions: Householder matrices of β = 2 and keys (e_i − e_j)/√2, rounded to F32.
// S begins as the identity; o = Sᵀ (1, 2, 3, 4, 5) is the permuted row.
static void test_s5(test * t) {
    const int  T = 20000, N = 5, n_h = 4;
    test_rng   rng = { 5 };
    test_arena a;
    test_arena_init(&a);
    test_scan s = {};
    s.op = test_scan::TEST_HOUSEHOLDER;
    snprintf(s.text, sizeof(s.text), "a word in S_5");
    ggml_householder_scan_args & x = s.householder;
    x.state = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "state", N*N, 1, 1, 1);
    x.ids   = test_tensor(&a, GGML_TYPE_I32, TEST_DENSE, "ids", 4, 1, 1, 1);
    x.q     = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "q",    N, 1, 1,   T);
    x.k     = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "k",    N, 1, n_h, T);
    x.v     = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "v",    N, 1, n_h, T);
    x.beta  = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "beta", 1, 1, n_h, T);
    x.scale = 1.0f;
    const int32_t ids[4] = { 0, 0, 0, T };
    memcpy(x.ids->data, ids, sizeof(ids));
    test_fill(x.state, 0.0f);
    test_fill(x.k, 0.0f);
    test_fill(x.v, 0.0f);
    test_fill(x.beta, 2.0f);
    for (int i = 0; i < N; i++) {
        test_set(x.state, i*N + i, 0, 0, 0, 1.0f);
    }

    int row[5] = { 0, 1, 2, 3, 4 }; // the unit vector that each row of S is
    std::vector<int> want(T*N);
    for (int n = 0; n < T; n++) {
        for (int f = 0; f < n_h; f++) {
            const int i = (int) test_below(&rng, N);
            const int j = (i + 1 + (int) test_below(&rng, N - 1)) % N;
            test_set(x.k, i, 0, f, n,  0.70710678f);
            test_set(x.k, j, 0, f, n, -0.70710678f);
            std::swap(row[i], row[j]);
        }
        for (int i = 0; i < N; i++) {
            test_set(x.q, i, 0, 0, n, (float) (i + 1));
            want[n*N + row[i]] = i + 1;
        }
    }
    ggml_tensor * op = build(t, &a, &s);
    test_check(t, run_node(op, 1).empty(), "S_5");
    int    wrong = 0;
    double worst = 0.0;
    for (int i = 0; i < T*N; i++) {
        const double err = fabs((double) ((float *) op->data)[i] - want[i]);
        wrong += !(err < 0.5);
        worst  = std::max(worst, err);
    }
    test_check(t, wrong == 0, "S_5: %d of %d numbers are wrong", wrong, T*N);
    printf("S_5: %d letters, n_h = %d, unit keys rounded to F32, beta = 2: %d errors, the largest deviation is %.1e\n", T, n_h, wrong, worst);
    test_arena_free(&a);
}

// cuda_exp over its whole range, against double
static void test_exp(test * t) {
    double worst = 0.0;
    for (double x = -87.0; x < 88.7; x += 0.00137) {
        const double got = cuda_exp((float) x), want = exp((double) (float) x);
        worst = std::max(worst, fabs(got - want)/want);
    }
    test_check(t, worst < 2.0*0x1p-24*2.0, "cuda_exp is off by %g of its value", worst);
    test_check(t, cuda_exp(0.0f) == 1.0f && cuda_exp(-200.0f) == 0.0f && cuda_exp(-INFINITY) == 0.0f && isinf(cuda_exp(100.0f)) &&
            isinf(cuda_exp(INFINITY)) && isnan(cuda_exp(NAN)), "cuda_exp at the ends of its range");
    printf("cuda_exp from -87 to 88.7: relative error up to %.1f of 2^-24\n", worst*0x1p24);
}

int main() {
    test t = {};
    test_exp(&t);
    printf("householder: every instance, then 50 random shapes a mode; NMSE of outputs and states:\n");
    test_modes(&t, make_householder, 6, householder_names);
    test_slots(&t, make_householder, 6);
    printf("signed: every instance, then 50 random shapes a mode:\n");
    test_modes(&t, make_signed, N_SIGNED, signed_names);
    test_slots(&t, make_signed, N_SIGNED);
    test_conv(&t);
    test_length(&t);
    test_s5(&t);
    // 7 sizes x (6 householder + 5 signed), two plain kernels, the normaliser, the convolution
    test_check(&t, kernels_run.size() == 7*(6 + 5) + 4, "%d kernels ran; expected %d", (int) kernels_run.size(), 7*(6 + 5) + 4);
    printf("%d kernels were run, which are all\n", (int) kernels_run.size());
    return test_end(&t, "test-cuda-kernels");
}
