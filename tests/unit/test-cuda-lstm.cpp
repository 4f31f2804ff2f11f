// The CUDA kernel of the LSTM scan, run by cuda-emu.h on the CPU, against the oracle: every
// instance, LSTM and sLSTM, ragged batches, slots in place, snapshots, ids out of range, cuts into
// calls, large gates. --ptx and --device as in test-cuda-kernels.cpp.

#include "kit/cuda-emu.h"

#include "cuda/launch-lstm.cuh"

#include "cuda/path-cost.h"

#include "kit/cuda-node.h"

static std::string run_node(ggml_tensor * op, int n_orders, const path_gpu &) {
    return run_on_device(op, 0, n_orders,
            [&](const ggml_tensor * node, float *, auto && launch) { launch_lstm(node, launch); });
}

static test_scan make_lstm(test_arena * a, const problem & p, test_rng * rng) {
    test_problem x = full(p);
    x.hard = p.mean; // size of the gates; 0 means 1
    return test_make_lstm(a, &x, rng);
}

static void test_forms(test * t) {
    static const int lengths[] = { 1, 5, 32, 33, 70, 128, 300, 600, 1024, 1100, 2048 };
    test_rng         rng = { 1 };
    test_worst       worst = worst_of("LSTM and sLSTM", 1e-11);
    int              n = 0;
    for (int d : lengths) {
        for (int form = 0; form < GGML_LSTM_SCAN_FORMS; ++form) {
            for (int turn = 0; turn < (d > 128 ? 1 : 4); ++turn, ++n) {
                problem p = { form, 1, d, d > 128 ? 1 : 1 + turn % 3, 1, turn + n, {} };
                p.batch = d > 128 ? batch_of({ 3, 1 }, 1, turn) : random_batch(&rng, n, 12);
                owned_scan c(make_lstm, p, &rng);
                run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_STEP, d > 128 ? 1 : (int) ALL_ORDERS);
                if (d == 33 || d == 70) {
                    run_out_of_range(t, &c.a, &c.s, &rng);
                    p.batch = batch_of({ 20 }, 0, turn);
                    owned_scan cuts(make_lstm, p, &rng);
                    run_cuts(t, &cuts.a, &cuts.s, &rng);
                }
            }
        }
    }
    printf("LSTM scan: %d shapes, heads of 1 to 2048; some with ids out of range and cuts\n", n);
    test_worst_print(&worst);
}

// exp overflows without the running maximum, and underflows at the first token
static void test_large_gates(test * t) {
    test_rng   rng = { 3 };
    test_worst worst = worst_of("large gates", 1e-9);
    problem    p = { GGML_LSTM_SCAN_SLSTM, 1, 20, 2, 1, 2, batch_of({ 30, 12 }, 0, 2) };
    p.mean = 60.0;
    owned_scan c(make_lstm, p, &rng);
    run(t, &c.a, &c.s, &worst);
    test_worst_print(&worst);
}

int main(int argc, char ** argv) {
    test      t = {};
    const int end = begin_test(argc, argv, { "lstm.ptx" });
    if (end >= 0) {
        return end;
    }
    test_forms(&t);
    test_large_gates(&t);
    test_check(&t, kernels_run.size() == 6, "%d kernels ran; expected 6: two forms of 1, 2 and 4",
            (int) kernels_run.size());
    if (ptx_run.on) {
        test_check(&t, ptx_run.print(false) == 0, "kernels of the PTX did not run");
    }
    return test_end(&t, "test-cuda-lstm");
}
