// The CUDA step and plain kernels and the short convolution, run by cuda-emu.h on the CPU, against
// the oracle: every instance, random shapes in every mode, heads of real checkpoints, ragged
// batches, slots in place, forks, snapshots, strides, head counts, ids out of range, cuts into
// calls, long sequences. Every launch runs in three orders of its threads and blocks, with
// bit-identical results; the longest ones run in one order. The code that chooses instance and grid
// on a GPU also chooses them here (launch*.cuh). With --ptx <folder>, the PTX of the kernels is
// interpreted instead (kit/ptx/ptx.h): a part of the cases, or all of them with --all. --count
// prints how many instructions, bytes and blocks the kernels of some shapes take. --device [name]
// computes on a device of ggml, and --sweep [name] times step and chunk there.

#include "kit/cuda-emu.h"

#include "cuda/launch-householder.cuh"
#include "cuda/launch-short-conv.cuh"
#include "cuda/launch-signed.cuh"

#include "kit/cuda-node.h"

static std::string run_node(ggml_tensor * op, int n_orders, const path_gpu & on) {
    const int64_t n = op->op == GGML_OP_HOUSEHOLDER_SCAN ? householder_work_floats(op, on)
                      : op->op == GGML_OP_SIGNED_SCAN    ? signed_work_floats(op, on)
                                                         : 0;
    return run_on_device(
            op, n, n_orders, [&](const ggml_tensor * node, float * work, auto && launch) {
                switch (op->op) {
                    case GGML_OP_HOUSEHOLDER_SCAN:
                        launch_householder(node, on, work, launch);
                        break;
                    case GGML_OP_SIGNED_SCAN: launch_signed(node, on, work, launch); break;
                    default: launch_short_conv(node, launch); break;
                }
            });
}

// Claims that a tensor of a step kernel is aligned, if `claim` says so.
template <typename Args> static void claim_aligned(Args &, bool) {}
static void claim_aligned(householder_cuda_args & args, bool claim) {
    args.k.aligned |= claim;
}
static void claim_aligned(signed_cuda_args & args, bool claim) {
    args.x.aligned |= claim;
}

template <typename Run>
static std::string run_claimed(ggml_tensor * op, bool claim, Run && launcher) {
    return run_on_device(op, 0, 1, [&](const ggml_tensor * node, float *, auto && launch) {
        launcher(node, [&](auto kernel, dim3 grid, dim3 block, auto args) {
            claim_aligned(args, claim);
            launch(kernel, grid, block, args);
        });
    });
}

// The launcher decides from addresses and strides whether rows can be read 16 bytes at a time. A
// wrong decision is found: every access is checked for its alignment.
static void test_alignment(test * t) {
    const auto householder = [](const ggml_tensor * node, auto && launch) {
        launch_householder(node, test_gpu, nullptr, launch);
    };
    const auto sign = [](const ggml_tensor * node, auto && launch) {
        launch_signed(node, test_gpu, nullptr, launch);
    };
    for (int i = 0; i < 4; ++i) {
        const bool is_signed = i >= 2, claim = i % 2 == 1;
        test_rng   rng = { 21 };
        owned_scan c(is_signed ? make_signed : make_householder,
                { is_signed ? (int) MODE_CHANNEL : 1, 32, 16, 2, 1, TEST_GAPS, batch_of({ 5 }) },
                &rng);
        ggml_tensor *     op = build(t, &c.a, &c.s, GGML_SCAN_PATH_STEP);
        const std::string found =
                is_signed ? run_claimed(op, claim, sign) : run_claimed(op, claim, householder);
        test_check(t, claim ? found.find("misaligned") != std::string::npos : found.empty(),
                "rows with gaps, %s: '%s'; expected %s", claim ? "called aligned" : "as they are",
                found.c_str(), claim ? "'misaligned'" : "no error");
    }
}

// Padded and exact sizes of every instance, then one that only the plain kernel supports
static const int instance_sizes[] = { 4, 16, 20, 32, 36, 64, 68, 96, 100, 128, 132, 192, 196, 256,
    260 };

// Every mode in every instance, then fifty random shapes per mode
static void test_modes(test * t, make_fn * make, int n_modes, const char * const * names) {
    test_rng rng = { 1 };
    int      n = 0;
    for (int mode = 0; mode < n_modes; ++mode) {
        test_worst worst = worst_of(names[mode], 1e-12);
        const bool one_factor = make == make_signed || mode >= 3;
        const int  n_sizes = (int) (sizeof(instance_sizes) / sizeof(instance_sizes[0]));
        for (int i = 0; i < n_sizes + 50; ++i, ++n) {
            problem p = { mode, 1, 1, 2, one_factor ? 1 : 1 + n % 4, n, {} };
            if (i < n_sizes) {
                // columns: more than a block, one warp, in between
                const int columns[] = { instance_sizes[i] <= 16 ? 72 : 40, 8, 20 };

                // exact sizes: dense, so that rows are aligned; padded ones: any other layout
                p.turn = n - n % TEST_REVERSED + (i % 2 == 1 ? 0 : 1 + n % (TEST_REVERSED - 1));
                p.d_k = instance_sizes[i];
                p.d_v = columns[i % 3];
                p.batch = random_batch(&rng, n, p.d_k > 128 ? 2 : 5);
            } else { // small sizes more often, not only multiples of 4
                const int64_t largest = test_below(&rng, 5) == 0 ? 256 : 64;
                p.d_k = 1 + (int) test_below(&rng, largest);
                p.d_v = 1 + (int) test_below(&rng, 40);
                p.H = p.d_k * p.d_v > 4096 ? 1 : 1 + (int) test_below(&rng, 4);
                p.batch = random_batch(&rng, n, p.d_k * p.d_v > 2048 ? 2 : 7);
            }
            if (i >= n_sizes && !ptx_run.takes(5)) {
                continue;
            }
            owned_scan c(make, p, &rng);
            run(t, &c.a, &c.s, &worst);
        }
        test_worst_print(&worst);
    }
}

// Heads of real checkpoints: many groups of columns per head, none of them padded
static void test_real_sizes(test * t) {
    static const struct {
        const char * what;
        make_fn *    make;
        int          mode, d_k, d_v, n_h;
    } cases[] = {
        { "OLMo-Hybrid, 96 x 192", make_householder, 1, 96, 192, 1 },
        { "DeltaProduct, 256 x 512", make_householder, 0, 256, 512, 2 },
        { "KDA, 128 x 128", make_householder, 2, 128, 128, 1 },
        { "RWKV-7, 64 x 64", make_householder, 5, 64, 64, 1 },
        { "Mamba signed, 16 x 1536", make_signed, MODE_MAMBA_SIGNED, 16, 1536, 1 },
        { "Mamba-2, 128 x 64", make_signed, MODE_MAMBA2, 128, 64, 1 },
        { "GLA, 256 x 512", make_signed, MODE_CHANNEL, 256, 512, 1 },
        { "RWKV-6, 64 x 64", make_signed, MODE_BONUS, 64, 64, 1 },
        { "mLSTM, 256 x 512", make_signed, MODE_MLSTM, 256, 512, 1 },
    };
    test_rng rng = { 6 };
    for (const auto & one : cases) {
        test_worst worst = worst_of(one.what, 1e-12);
        owned_scan c(one.make,
                { one.mode, one.d_k, one.d_v, 2, one.n_h, 1, batch_of({ 6, 1 }, 1, 1) }, &rng);
        run(t, &c.a, &c.s, &worst);
        test_worst_print(&worst);
    }
}

static void test_slots(test * t, make_fn * make, int n_modes) {
    test_rng rng = { 2 };
    for (int mode = 0; mode < n_modes; ++mode) {
        for (int big = 0; big < 2; ++big) { // a step kernel, the plain kernel
            const int  n_h = make == make_householder && mode < 3 ? 3 : 1;
            problem    p = { mode, big ? 260 : 24, big ? 3 : 20, big ? 1 : 2, n_h, mode + big,
                   batch_of({ 5, 1, 3 }, 2, mode) };
            owned_scan ids(make, p, &rng);
            run_out_of_range(t, &ids.a, &ids.s, &rng);
            p.batch = batch_of({ big ? 7 : 29 }, 0, mode); // more than one buffer of factors
            owned_scan cuts(make, p, &rng);
            run_cuts(t, &cuts.a, &cuts.s, &rng);
        }
    }
    printf("  ids out of range: NaN for the sequence, no state touched, the others computed;\n"
           "  calls of 1 to 6 tokens are bit-identical to one call\n");
}

// 256 tokens in all orders, then 4,096 in one. Without a gate nothing is forgotten and errors add
// up.
static void test_length(test * t) {
    test_rng rng = { 3 };
    for (int longer = 0; longer < (is_short() ? 1 : 2); ++longer) {
        test_worst worst =
                worst_of(longer ? "4096 tokens, step" : "256 tokens, step", longer ? 1e-11 : 1e-12);
        for (int i = 0; i < 6 + TEST_SIGNED_MODES; ++i) {
            const bool    householder = i < 6;
            const problem p = { householder ? i : i - 6, householder ? 64 : 32, 8, 1, i < 3 ? 2 : 1,
                3 * i, // beta = 2
                batch_of({ longer ? 4096 : 256 }, 0, i) };
            owned_scan    c(householder ? make_householder : make_signed, p, &rng);
            run(t, &c.a, &c.s, &worst, GGML_SCAN_PATH_STEP, longer ? 1 : (int) ALL_ORDERS);
        }
        test_worst_print(&worst);
    }
}

static void test_conv(test * t) {
    test_rng   rng = { 4 };
    test_worst worst = worst_of("short convolution", 1e-12);
    for (int n = 0; n < 300; ++n) {
        problem p = { n % TEST_CONV_MODES, 1, 1, 1, 1, n, {} };
        p.d_k = p.mode == 0 ? 1 : 1 + (int) test_below(&rng, n % 3 == 0 ? 14 : 4);
        p.d_k = n == 12 ? CONV_PIECE : n == 14 ? CONV_PIECE + 6 : p.d_k; // a tail of a piece
        p.d_v = 1 + (int) test_below(&rng, 80);
        // often shorter than the width: a tail consists of the old tail and new inputs; some are
        // longer than a piece
        p.batch = random_batch(&rng, n, n % 5 == 4 || p.d_k > 14 ? 150 : n % 2 == 0 ? 4 : 30);
        if (n % 5 == 4) {
            p.batch.len[0] = CONV_PIECE * (n / 5 % 3) + n / 15 % 3; // at the end of a piece
        }
        if (n >= 30 && !ptx_run.takes(5)) {
            continue;
        }
        owned_scan c(make_conv, p, &rng);
        run(t, &c.a, &c.s, &worst);
        if (n < 30) {
            run_out_of_range(t, &c.a, &c.s, &rng);
            p.batch = batch_of({ 20 }, 0, n);
            owned_scan cuts(make_conv, p, &rng);
            run_cuts(t, &cuts.a, &cuts.s, &rng);
        }
    }
    printf("short convolution: 300 random shapes; 30 of them with ids out of range and cuts\n");
    test_worst_print(&worst);
}

// cuda_exp over its whole range against double
static void test_exp(test * t) {
    double worst = 0.0;
    for (double x = -87.0; x < 88.7; x += 0.00137) {
        const double got = cuda_exp((float) x), want = exp((double) (float) x);
        worst = std::max(worst, fabs(got - want) / want);
    }
    test_check(t, worst < 2.0 * 0x1p-24 * 2.0, "cuda_exp has a relative error of %g", worst);
    test_check(t,
            cuda_exp(0.0f) == 1.0f && cuda_exp(-200.0f) == 0.0f && cuda_exp(-INFINITY) == 0.0f &&
                    isinf(cuda_exp(100.0f)) && isinf(cuda_exp(INFINITY)) && isnan(cuda_exp(NAN)),
            "cuda_exp at the ends of its range");
    printf("cuda_exp from -87 to 88.7: relative error up to %.1f of 2^-24\n", worst * 0x1p24);
}

// What the kernels execute for shapes of checkpoints; the batches are short, to take seconds
static void count_kernels(test * t) {
    static const struct {
        const char *   what;
        make_fn *      make;
        int            mode, d_k, d_v, H, n_h;
        int            n_seqs, len, others; // tokens of the first sequence and of each other one
        int            n_snap;
        ggml_scan_path path;
    } cases[] = {
        { "mLSTM, 8 heads of 256 x 512, 64 tokens", make_signed, MODE_MLSTM, 256, 512, 8, 1, 1, 64,
                0, 0, GGML_SCAN_PATH_STEP },
        { "mLSTM, 8 heads of 256 x 512, 1 token", make_signed, MODE_MLSTM, 256, 512, 8, 1, 1, 1, 0,
                0, GGML_SCAN_PATH_STEP },
        { "convolution, 2048 channels, 512 tokens", make_conv, 3, 3, 2048, 1, 1, 1, 512, 0, 0,
                GGML_SCAN_PATH_AUTO },
        { "convolution, 2048 channels, 1 token", make_conv, 3, 3, 2048, 1, 1, 1, 1, 0, 0,
                GGML_SCAN_PATH_AUTO },
        { "token shift, 2048 channels, 512 tokens", make_conv, 0, 1, 2048, 1, 1, 1, 512, 0, 0,
                GGML_SCAN_PATH_AUTO },
        { "gated DeltaNet, 2 heads of 128 x 128, 64 tokens, step", make_householder, 1, 128, 128, 2,
                1, 1, 64, 0, 0, GGML_SCAN_PATH_STEP },
        { "gated DeltaNet, 2 heads of 128 x 128, 512 tokens, chunk", make_householder, 1, 128, 128,
                2, 1, 1, 512, 0, 0, GGML_SCAN_PATH_CHUNK },
        { "the same with 8 snapshots", make_householder, 1, 128, 128, 2, 1, 1, 512, 0, 8,
                GGML_SCAN_PATH_CHUNK },
        { "KDA, 2 heads of 128 x 128, 512 tokens, chunk", make_householder, 2, 128, 128, 2, 1, 1,
                512, 0, 0, GGML_SCAN_PATH_CHUNK },
        { "DeltaProduct, 2 heads of 128 x 128, n_h 2, 256 tokens, chunk", make_householder, 0, 128,
                128, 2, 2, 1, 256, 0, 0, GGML_SCAN_PATH_CHUNK },
        { "gated DeltaNet, 1 prompt of 448 and 63 of 1 token, auto", make_householder, 1, 128, 128,
                2, 1, 64, 448, 1, 0, GGML_SCAN_PATH_AUTO },
        { "gated DeltaNet, 1 prompt of 448 and 63 of 1 token, chunk", make_householder, 1, 128, 128,
                2, 1, 64, 448, 1, 0, GGML_SCAN_PATH_CHUNK },
        { "Mamba-2, 2 heads of 128 x 64, 64 tokens", make_signed, MODE_MAMBA2, 128, 64, 2, 1, 1, 64,
                0, 0, GGML_SCAN_PATH_STEP },
        { "GLA, 2 heads of 128 x 128, 64 tokens", make_signed, MODE_CHANNEL, 128, 128, 2, 1, 1, 64,
                0, 0, GGML_SCAN_PATH_STEP },
        { "RWKV-7, 2 heads of 64 x 64, 64 tokens", make_householder, 5, 64, 64, 2, 1, 1, 64, 0, 0,
                GGML_SCAN_PATH_STEP },
    };
    for (const auto & one : cases) {
        test_rng rng = { 14 };
        problem  p = { one.mode, one.d_k, one.d_v, one.H, one.n_h, 0, batch_of({ one.len }) };
        p.batch.n_seqs = one.n_seqs;
        p.batch.n_snap = one.n_snap;
        std::fill_n(p.batch.len + 1, one.n_seqs - 1, one.others);
        owned_scan        c(one.make, p, &rng);
        const std::string found = run_node(build(t, &c.a, &c.s, one.path), 1);
        test_check(t, found.empty(), "%s: %s", found.c_str(), one.what);
        ptx_run.print_counts(one.what);
    }
}

// Times step and chunk on a device, for the lengths at which they meet (path-cost.h). A CPU, which
// only tests this function, computes a single short sequence.
static void sweep(test * t) {
    static const struct {
        const char * what;
        make_fn *    make;
        int          mode, d_k, d_v, H;
    } heads[] = {
        { "DeltaNet, 16 heads of 128 x 128", make_householder, 1, 128, 128, 16 },
        { "KDA, 16 heads of 128 x 128", make_householder, 2, 128, 128, 16 },
        { "RWKV-7, 32 heads of 64 x 64", make_householder, 5, 64, 64, 32 },
        { "Mamba-2, 80 heads of 128 x 64", make_signed, MODE_MAMBA2, 128, 64, 80 },
        { "mLSTM, 8 heads of 256 x 512", make_signed, MODE_MLSTM, 256, 512, 8 },
        { "GLA, 4 heads of 256 x 512", make_signed, MODE_CHANNEL, 256, 512, 4 },
    };
    printf("sequences x tokens: microseconds of step and chunk\n");
    gpu.n_times = gpu.is_gpu() ? 20 : 1;
    for (const auto & head : heads) {
        printf("%s\n", head.what);
        for (const int n_seqs : { 1, 8, 64 }) {
            for (const int len : { 16, 64, 128, 512 }) {
                if (!gpu.is_gpu() && n_seqs * len > 16) {
                    continue;
                }
                test_rng rng = { 16 };
                problem  p = { head.mode, head.d_k, head.d_v, head.H, 1, 0, {} };
                p.batch.n_seqs = n_seqs;
                std::fill_n(p.batch.len, n_seqs, len);
                owned_scan c(head.make, p, &rng);
                printf("  %2d x %3d:", n_seqs, len);
                for (const ggml_scan_path path : { GGML_SCAN_PATH_STEP, GGML_SCAN_PATH_CHUNK }) {
                    const std::string found = run_node(build(t, &c.a, &c.s, path), 1);
                    test_check(t, found.empty(), "%s: %s", found.c_str(), c.s.text);
                    printf(" %9.1f", gpu.best_us);
                }
                printf("\n");
            }
        }
    }
}

// Instructions and mma that a warp executed in the kernel of the last node whose name contains
// `part`
static path_count executed(const char * part) {
    path_count n = { 0.0, 0.0 };
    for (const std::string & name : ptx_run.last) {
        const ptx::counts & one = ptx_run.kernels[name].n;
        if (name.find(part) != std::string::npos) {
            n = { (double) one.instructions / 4, (double) one.products / 4 }; // four warps
        }
    }
    return n;
}

// What path-cost.h says of the kernels agrees with what they execute, to a factor of two. Prints
// what they execute: the counts of path-cost.h are a line through those of 64 and 128 rows.
static void test_path_counts(test * t) {
    static const struct {
        path_kind kind;
        make_fn * make;
        int       mode;
    } kinds[] = {
        { PATH_DELTA, make_householder, 1 },
        { PATH_DELTA_CHANNEL, make_householder, 2 },
        { PATH_RANK_ONE, make_householder, 5 },
        { PATH_DIAGONAL, make_signed, MODE_HEAD },
        { PATH_DIAGONAL_CHANNEL, make_signed, MODE_CHANNEL },
    };
    printf("instructions of a warp for a factor (step) and a chunk (prepare, scan):\n");
    for (const auto & one : kinds) {
        for (const int d_k : { 64, 128 }) {
            // of one chunk and of two; the difference is that of a chunk
            path_count step[2], prepare[2], scan[2];
            for (int n = 0; n < 2; ++n) {
                const int tokens = one.kind == PATH_RANK_ONE ? 32 : 64;
                for (const ggml_scan_path path : { GGML_SCAN_PATH_STEP, GGML_SCAN_PATH_CHUNK }) {
                    test_rng   rng = { 15 };
                    const int  d_v = path == GGML_SCAN_PATH_STEP ? 32 : 16; // one block
                    owned_scan c(one.make,
                            { one.mode, d_k, d_v, 1, 1, 0, batch_of({ (n + 1) * tokens }) }, &rng);
                    ptx_run.kernels.clear();
                    ptx_run.last.clear();
                    const std::string found = run_node(build(t, &c.a, &c.s, path), 1);
                    test_check(t, found.empty(), "%s: %s", found.c_str(), c.s.text);
                    if (path == GGML_SCAN_PATH_STEP) {
                        step[n] = executed("step");
                        step[n].fixed /= tokens;
                    } else {
                        prepare[n] = executed("chunk_prepare");
                        scan[n] = executed("chunk_scan");
                    }
                }
            }
            const path_counts * model = path_counts_of(one.kind);
            const struct {
                const char * what;
                path_count   said;
                double       counted;
            } all[] = {
                { "step", model->step, step[1].fixed - step[0].fixed },
                { "prepare", model->prepare, prepare[1].fixed - prepare[0].fixed },
                { "prepare, mma", model->prepare_mma, prepare[1].per_row - prepare[0].per_row },
                { "scan", model->scan, scan[1].fixed - scan[0].fixed },
                { "scan, mma", model->scan_mma, scan[1].per_row - scan[0].per_row },
            };
            printf("  kind %d, %3d rows:", one.kind, d_k);
            for (const auto & x : all) {
                const double said = path_count_get(x.said, d_k);
                printf("  %s %.0f (%.0f)", x.what, x.counted, said);
                test_check(t, x.counted < 2.0 * said && said < 2.0 * x.counted,
                        "path-cost.h, kind %d, %d rows, %s: %.0f; executed %.0f", one.kind, d_k,
                        x.what, said, x.counted);
            }
            printf("\n");
        }
    }
    ptx_run.kernels.clear();
    ptx_run.last.clear();
    kernels_run.clear();
}

// Errors in the PTX of a step kernel
static void test_broken(test * t) {
    const std::string step = "householder_stepILi64ELi1ELb0E", copy = "cp.async.cg.shared.global";

    const breakage all[] = {
        { "a removed wait", { step, "cp.async.wait_group", 0, "cp.async.wait_group 1;", "" },
                "before the cp.async to it was waited for" },
        { "a removed commit", { step, "cp.async.commit_group", 0, "cp.async.commit_group;", "" },
                "before the cp.async to it was waited for" },
        { "the first barrier deleted", { step, "bar.sync", 0, "bar.sync", "//" }, "a race" },
        { "the second barrier deleted", { step, "bar.sync", 1, "bar.sync", "//" }, "a race" },
        { "a swapped lane", { step, "shfl.sync.bfly", 0, "shfl.sync.bfly", "shfl.sync.up" },
                nullptr },
        { "a misaligned vector load", { step, "ld.shared.v4.f32", 0, "]", "+4]" }, "misaligned" },
        { "a misaligned copy", { step, copy, 0, "], 16,", "+4], 16," }, "misaligned" },
        { "a copy out of bounds", { step, copy, 0, "], 16,", "+1048576], 16," }, "out of bounds" },
        { "an argument that is not loaded", { step, "ld.param.u32", 0, "ld.param", "//" },
                "an undefined value is used" },
    };
    test_rng rng = { 12 };
    for (const breakage & b : all) {
        owned_scan c(make_householder, { 1, 64, 40, 2, 2, 1, batch_of({ 20 }) }, &rng);
        run_broken(t, &c.a, &c.s, "householder.ptx", b, GGML_SCAN_PATH_STEP);
    }
}

int main(int argc, char ** argv) {
    test       t = {};
    const bool is_sweep = argc > 1 && strcmp(argv[1], "--sweep") == 0;
    const int  end = is_sweep ? gpu.begin(argc > 2 ? argv[2] : "")
                              : begin_test(argc, argv,
                                        { "householder.ptx", "signed.ptx", "short-conv.ptx" });
    if (end >= 0) {
        return end;
    }
    if (is_sweep) {
        sweep(&t);
        return test_end(&t, "test-cuda-kernels --sweep");
    }
    if (ptx_run.count) {
        count_kernels(&t);
        return test_end(&t, "test-cuda-kernels --count");
    }
    if (ptx_run.on) {
        test_path_counts(&t);
    }
    test_exp(&t);
    if (!gpu.on()) {
        test_alignment(&t);
    }
    printf("householder: every instance, then 50 random shapes per mode; NMSE of outputs and "
           "states:\n");
    test_modes(&t, make_householder, 6, test_householder_names);
    test_slots(&t, make_householder, 6);
    printf("signed: every instance, then 50 random shapes per mode:\n");
    test_modes(&t, make_signed, TEST_SIGNED_MODES, test_signed_names);
    test_slots(&t, make_signed, TEST_SIGNED_MODES);
    printf("heads of checkpoints:\n");
    test_real_sizes(&t);
    test_conv(&t);
    test_length(&t);
    run_s5(&t, GGML_SCAN_PATH_STEP);
    // 7 sizes x (6 householder + 5 signed), two plain kernels, the normalizer, four convolutions;
    // test-cuda-chunk runs the chunk kernels
    test_check(&t, kernels_run.size() == 7 * (6 + 5) + 7, "%d kernels ran; expected %d",
            (int) kernels_run.size(), 7 * (6 + 5) + 7);
    printf("%d kernels ran: all except the chunk kernels\n", (int) kernels_run.size());
    if (ptx_run.on) {
        test_broken(&t);
        test_check(&t, ptx_run.print(false) == 0, "kernels of the PTX did not run");
    }
    return test_end(&t, "test-cuda-kernels");
}
