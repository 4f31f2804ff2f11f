// Step or chunks on a GPU (ops/cuda/path-cost.h): the choice for GPUs, heads and batches, and
// properties of the model. No GPU is needed; the model was not measured on one.

#include "kit/check.h"
#include "ops/cuda/path-cost.h"

static const struct path_gpu a100 = { true, 80, 108 };
static const struct path_gpu h100 = { true, 90, 132 };
static const struct path_gpu rtx3090 = { true, 86, 82 };
static const struct path_gpu rtx4090 = { true, 89, 128 };
static const struct path_gpu rtx5090 = { true, 120, 170 };

enum { STEP = 1, CHUNK = 2 };

static int chosen(const struct path_gpu * gpu, const struct path_shape * shape) {
    const struct path_choice c = path_choose(gpu, shape);
    return (c.step ? STEP : 0) + (c.chunk ? CHUNK : 0);
}

// Heads of checkpoints
static const struct path_shape delta = { PATH_DELTA, 128, 128, 16, 1, 1, 1 };
static const struct path_shape product = { PATH_DELTA, 128, 128, 16, 2, 1, 1 };
static const struct path_shape kda = { PATH_DELTA_CHANNEL, 128, 128, 16, 1, 1, 1 };
static const struct path_shape rwkv7 = { PATH_RANK_ONE, 64, 64, 32, 2, 1, 1 };
static const struct path_shape mamba2 = { PATH_DIAGONAL, 128, 64, 80, 1, 1, 1 };
static const struct path_shape mlstm = { PATH_DIAGONAL, 256, 512, 8, 1, 1, 1 };
static const struct path_shape gla = { PATH_DIAGONAL_CHANNEL, 256, 512, 4, 1, 1, 1 };

static struct path_shape batch(struct path_shape s, int64_t n_seqs, int64_t n_tokens) {
    s.n_seqs = n_seqs;
    s.n_tokens = n_tokens;
    return s;
}

// Sequences of `len` tokens, among others if the batch has more tokens
static void test_table(struct test * t) {
    static const struct {
        const struct path_gpu *   gpu;
        const struct path_shape * head;
        int                       n_seqs, n_tokens, len;
        bool                      chunk;
    } cases[] = {
        // one sequence: most of the GPU is idle, and chunks have the shorter way
        { &a100, &delta, 1, 16, 16, false },
        { &a100, &delta, 1, 128, 128, true },
        { &a100, &product, 1, 64, 64, true },
        { &a100, &rwkv7, 1, 16, 16, false },
        { &a100, &rwkv7, 1, 128, 128, true },
        { &a100, &mamba2, 1, 128, 128, true },
        { &a100, &mlstm, 1, 128, 128, true },
        { &a100, &gla, 1, 64, 64, false }, // a gate per channel takes long to prepare
        { &a100, &gla, 1, 512, 512, true },
        { &rtx3090, &delta, 1, 512, 512, true },
        { &rtx4090, &delta, 1, 16, 16, false },
        { &rtx4090, &delta, 1, 128, 128, true },
        { &rtx5090, &kda, 1, 512, 512, true },
        // many sequences: TF32 at eight times the speed of F32
        { &a100, &delta, 8, 8 * 512, 512, true },
        { &a100, &mamba2, 8, 8 * 512, 512, true },
        { &a100, &mamba2, 64, 64 * 512, 512, true },
        { &h100, &gla, 64, 64 * 512, 512, true },
        { &a100, &delta, 64, 64 * 16, 16, false },
        // TF32 at the speed of F32
        { &rtx3090, &delta, 8, 8 * 512, 512, false },
        { &rtx4090, &delta, 8, 8 * 512, 512, false },
        { &rtx4090, &delta, 64, 64 * 128, 128, false },
        { &rtx4090, &delta, 64, 64 * 512, 512, false },
        { &rtx5090, &mamba2, 64, 64 * 512, 512, false },
        // w, r and 32 tokens per chunk: chunks execute more instructions on any GPU
        { &a100, &rwkv7, 64, 64 * 512, 512, false },
        // a prompt among sequences that generate
        { &a100, &delta, 64, 448 + 63, 448, true },
        { &a100, &delta, 64, 448 + 63, 1, false },
        { &a100, &delta, 4, 509 + 3, 509, true },
        { &a100, &delta, 4, 509 + 3, 1, false },
        { &rtx4090, &delta, 64, 448 + 63, 448, true },
        { &rtx4090, &mlstm, 64, 448 + 63, 448, true },
        { &rtx4090, &delta, 64, 448 + 63, 1, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const struct path_shape  s = batch(*cases[i].head, cases[i].n_seqs, cases[i].n_tokens);
        const struct path_choice c = path_choose(cases[i].gpu, &s);
        const bool               chunk = c.chunk && (!c.step || cases[i].len >= c.from);
        test_check(t, chunk == cases[i].chunk,
                "cc %d, kind %d, %dx%d, %d heads, %d sequences, %d tokens: %d tokens take %s",
                cases[i].gpu->cc, s.kind, (int) s.d_k, (int) s.d_v, (int) s.n_head, cases[i].n_seqs,
                cases[i].n_tokens, cases[i].len, chunk ? "chunks" : "steps");
    }
    printf("%d choices\n", (int) (sizeof(cases) / sizeof(cases[0])));
}

// On every GPU and for every head: single tokens take steps, in one launch; with several sequences
// the step kernel is always there for the short ones; on a GPU with fast
// TF32 one long prompt takes chunks alone.
static void test_properties(struct test * t) {
    const struct path_gpu *   GPUs[] = { &a100, &h100, &rtx3090, &rtx4090, &rtx5090 };
    const struct path_shape * heads[] = { &delta, &product, &kda, &rwkv7, &mamba2, &mlstm, &gla };
    for (int c = 0; c < 5; ++c) {
        for (int h = 0; h < 7; ++h) {
            for (int n = 1; n <= 512; n *= 8) {
                const struct path_shape one = batch(*heads[h], n, n);
                test_check(t, chosen(GPUs[c], &one) == STEP, "cc %d, head %d: %d single tokens",
                        GPUs[c]->cc, h, n);
                const struct path_shape  many = batch(*heads[h], n, 2048);
                const struct path_choice choice = path_choose(GPUs[c], &many);
                const int64_t            T = choice.from;
                test_check(t, choice.chunk == (T > 0) && T <= 2048 - n + 1,
                        "cc %d, head %d: chunks from %d tokens", GPUs[c]->cc, h, (int) T);
                test_check(t, choice.step == (n > 1 || !choice.chunk),
                        "cc %d, head %d: one of %d sequences has no kernel", GPUs[c]->cc, h, n);
            }
            const struct path_shape prompt = batch(*heads[h], 1, 2048);
            test_check(t, c > 1 || chosen(GPUs[c], &prompt) == CHUNK,
                    "cc %d, head %d: a prompt of 2048", GPUs[c]->cc, h);
        }
    }
}

// A GPU with slow TF32 never takes chunks where an equal one with fast TF32 takes steps.
static void test_tf32(struct test * t) {
    const struct path_shape * heads[] = { &delta, &product, &kda, &rwkv7, &mamba2, &mlstm, &gla };
    const struct path_gpu     slow = { true, 89, 108 };
    int                       differ = 0;
    for (int h = 0; h < 7; ++h) {
        for (int n = 1; n <= 64; n *= 2) {
            for (int T = 16; T <= 1024; T *= 2) {
                const struct path_shape  s = batch(*heads[h], n, (int64_t) n * T);
                const struct path_choice f = path_choose(&a100, &s);
                const struct path_choice g = path_choose(&slow, &s);
                const bool               bad = g.chunk && (!f.chunk || f.from > g.from);
                differ += f.chunk != g.chunk || f.from != g.from;
                test_check(t, !bad, "head %d, %d sequences of %d: chunks from %d, and from %d", h,
                        n, T, f.from, g.from);
            }
        }
    }
    test_check(t, differ > 0, "the speed of TF32 makes no difference");
}

int main(void) {
    struct test t = { 0 };
    test_table(&t);
    test_properties(&t);
    test_tf32(&t);
    return test_end(&t, "test-cuda-paths");
}
