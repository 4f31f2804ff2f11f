// Golden models on CUDA devices against the same models on the CPU, in a build with CUDA: two
// sequences in pieces, rewinds, forks, states that move between CPU and device; on one device and
// on two; with weights in F32 and F16, and attention caches in F32 and F16. With --wide, the same
// models with heads of 64 and rows of 256, in Q4_K and Q8_0, and caches in F16 and Q8_0, which
// ggml-cuda reads with tensor cores. With --long, contexts of several tiles of our attention
// kernel, and attention that the device refuses. With --small, a device with too little memory: one
// sentence, and the session goes on. Names after that select models. Skipped without a device;
// kit/cuda-device is one.

#include "file/quantize.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/nmse.h"
#include "kit/rng.h"
#include "kit/widen.h"
#include "lrnn.h"
#include "model/model.h"

#include "ggml-backend.h"

#include <unistd.h>

enum { SEQS = 3, REWIND = 4, TURNS = 12, LENGTH = 64, WIDTH = 256 };
enum { SHORT_LENGTH = 32, REFUSED_LENGTH = 1056 }; // of heads, --long
enum { LONG_CACHE = 768, LONG_BEFORE = 590, LONG_PIECE = 12, LONG_STEPS = 4 };

static char out[64];     // a model file that this process writes
static char rounded[64]; // the same weights in F32

// Largest difference of a logit; logits are about 1 to 10. F32: as in test-gpu.c. F16: ggml-cuda
// rounds activations to F16, by up to 2⁻¹¹. That is 512 times the error for which test-gpu.c found
// 7.1e-5: 3.6e-2. The limit is three times that, because sums are rounded too.
static const double LIMIT_F32 = 1e-3;
static const double LIMIT_F16 = 1e-1;

// Quantized matrices: CPU and device round activations to 8 bits, each in its own way, which F32
// matrices with the same values do not. The device may be as far from these as two times the CPU.
static const double LIMIT_QUANTIZED = 2.0;

struct pair {
    struct lrnn_session * s[2]; // CPU, device
    struct lrnn_error     err;
};

static bool eval_both(struct test * t, struct pair * p, const char * what,
        const struct lrnn_input * in, int n_in, int64_t n_vocab, double * worst) {
    int64_t rows = 0;
    for (int i = 0; i < n_in; ++i) {
        rows += in[i].n_logits;
    }
    for (int i = 0; i < 2; ++i) {
        if (!test_check(t, lrnn_eval(p->s[i], in, n_in, &p->err), "%s: %s", what, p->err.text)) {
            return false;
        }
    }
    for (int64_t i = 0; i < rows * n_vocab; ++i) {
        const double d = fabs((double) lrnn_logits(p->s[0], i / n_vocab)[i % n_vocab] -
                              (double) lrnn_logits(p->s[1], i / n_vocab)[i % n_vocab]);
        *worst = d <= *worst ? *worst : d; // NaN wins
    }
    return true;
}

// The state of a sequence goes from one session to the other.
static bool move_state(struct test * t, struct pair * p, const char * what, int32_t seq, int from) {
    const size_t size = lrnn_seq_size(p->s[from], seq);
    char *       data = malloc(size);
    const bool   ok = data != NULL && lrnn_seq_get(p->s[from], seq, data, size, &p->err) &&
                    lrnn_seq_set(p->s[1 - from], seq, lrnn_seq_length(p->s[from], seq), data, size,
                            &p->err);
    free(data);
    return test_check(t, ok, "%s: %s", what, p->err.text);
}

// Random turns, the same in both sessions
static double compare(
        struct test * t, struct pair * p, const struct golden * g, const char * what) {
    struct test_rng rng = { 7 };
    double          worst = 0.0;
    bool            ok = true;
    for (int turn = 0; ok && turn < TURNS; ++turn) {
        struct lrnn_input in[2];
        for (int i = 0; i < 2; ++i) {
            const int64_t n = 1 + test_below(&rng, turn % 4 == 0 ? 9 : 2);
            in[i] = (struct lrnn_input) { .seq = i,
                .tokens = g->tokens + test_below(&rng, g->n_tokens - n),
                .n_tokens = n,
                .n_logits = n };
        }
        ok = eval_both(t, p, what, in, turn % 3 == 0 ? 2 : 1, g->n_vocab, &worst);
        for (int i = 0; ok && i < 2; ++i) {
            const int64_t can = lrnn_seq_rewindable(p->s[i], 0);
            if (turn % 4 == 1) {
                ok = test_check(t, lrnn_seq_rewind(p->s[i], 0, can < 2 ? can : 2, &p->err),
                        "%s: rewind: %s", what, p->err.text);
            } else if (turn % 4 == 2) {
                ok = test_check(t, lrnn_seq_fork(p->s[i], 0, 1, &p->err), "%s: fork: %s", what,
                        p->err.text);
            }
        }
        if (ok && turn % 4 == 3) {
            ok = move_state(t, p, what, 0, turn / 4 % 2);
        }
    }
    return ok ? worst : INFINITY;
}

// The largest difference of a model on devices from another file of it on the CPU
static double difference(struct test * t, const struct golden * g, const char * what,
        const char * on_cpu, const char * path, const struct lrnn_model_params * params,
        enum lrnn_cache_type cache) {
    const struct lrnn_session_params how = {
        .n_threads = 1, .n_seqs = SEQS, .n_rewind = REWIND, .n_cache = 256, .cache_type = cache
    };
    const struct lrnn_model_params cpu = { 0 };
    struct lrnn_model * model[2] = { test_load_model(on_cpu, &cpu), test_load_model(path, params) };
    struct pair  p = { { test_session(model[0], &how), test_session(model[1], &how) }, { 0 } };
    const double worst = compare(t, &p, g, what);
    for (int i = 0; i < 2; ++i) {
        lrnn_session_free(p.s[i]);
        lrnn_model_free(model[i]);
    }
    return worst;
}

static void run(struct test * t, const struct golden * g, const char * path, const char * split,
        enum lrnn_cache_type cache, double limit) {
    const struct lrnn_model_params params = { .n_gpu_layers = -1,
        .tensor_split = split,
        .devices = split != NULL ? "CUDA0,CUDA1" : "CUDA0" };
    char                           what[128];
    snprintf(what, sizeof(what), "%s%s%s", g->name, split != NULL ? ", two devices" : "",
            cache == LRNN_CACHE_F16 ? ", cache in F16" : "");
    const double worst = difference(t, g, what, path, path, &params, cache);
    test_check(t, worst <= limit, "%s: a logit differs by %g; limit %g", what, worst, limit);
    printf("  %-44s %8.1e\n", what, worst);
}

// Writes a wide model to out, with matrices in Q4_K, or in Q8_0 and F16 where rows are too short;
// and to rounded in F32.
static bool write_wide(const struct golden * g, struct lrnn_error * err) {
    struct model_edit e;
    if (!model_edit_open(&e, g->path)) {
        return false;
    }
    struct lrnn_model * model = widen(&e, LENGTH, WIDTH, out, err);
    bool                ok = model != NULL;
    lrnn_model_free(model);
    for (int to_f32 = 0; ok && to_f32 < 2; ++to_f32) {
        for (int64_t i = 0; i < e.n_tensors; ++i) {
            const struct ggml_tensor * x = e.tensors[i];
            if (widen_is_matrix(x)) {
                model_edit_convert(&e, x->name,
                        to_f32                         ? GGML_TYPE_F32
                        : x->ne[0] % WIDTH == 0        ? GGML_TYPE_Q4_K
                        : x->ne[0] % (LENGTH / 2) == 0 ? GGML_TYPE_Q8_0
                                                       : GGML_TYPE_F16);
            }
        }
        ok = model_edit_write(&e, to_f32 ? rounded : out);
    }
    model_edit_close(&e);
    return ok;
}

static bool has_attention(const struct golden * g) {
    struct lrnn_model * model = test_load_model(g->path, NULL);
    const bool          found = lrnn_model_get_info(model).n_layer_attention > 0;
    lrnn_model_free(model);
    return found;
}

static void run_wide(struct test * t, const struct golden * g) {
    static const enum lrnn_cache_type CACHES[] = { LRNN_CACHE_F16, LRNN_CACHE_Q8_0 };
    const struct lrnn_model_params    cpu = { 0 };
    const struct lrnn_model_params    device = { .n_gpu_layers = -1, .devices = "CUDA0" };
    struct lrnn_error                 err = { 0 };
    if (!test_check(t, write_wide(g, &err), "%s: %s", g->name, err.text)) {
        return;
    }
    const bool attention = has_attention(g);
    for (int i = 0; i < 1 + attention; ++i) {
        char what[128];
        snprintf(what, sizeof(what), "%s, wide%s", g->name,
                !attention ? ""
                : i == 0   ? ", cache in F16"
                           : ", cache in Q8_0");
        const double rounding = difference(t, g, what, rounded, out, &cpu, CACHES[i]);
        const double worst = difference(t, g, what, rounded, out, &device, CACHES[i]);
        test_check(t, worst <= LIMIT_QUANTIZED * rounding,
                "%s: a logit differs by %g from F32; that of the CPU by %g", what, worst, rounding);
        printf("  %-44s %8.1e   CPU %8.1e\n", what, worst, rounding);
    }
}

// A context of LONG_BEFORE tokens, computed on the CPU, whose state moves to the device; there one
// call, then token by token. A warp of our attention kernel then sees up to three tiles of rows.
static void run_long(struct test * t, const struct golden * g, const char * path,
        enum lrnn_cache_type cache, const char * what) {
    const struct lrnn_session_params how = {
        .n_threads = 1, .n_cache = LONG_CACHE, .cache_type = cache
    };
    const struct lrnn_model_params device = { .n_gpu_layers = -1, .devices = "CUDA0" };
    struct lrnn_model * model[2] = { test_load_model(path, NULL), test_load_model(path, &device) };
    struct pair     p = { { test_session(model[0], &how), test_session(model[1], &how) }, { 0 } };
    int32_t         tokens[LONG_CACHE];
    struct test_rng rng = { 3 };
    double          worst = 0.0;
    for (int i = 0; i < LONG_CACHE; ++i) {
        tokens[i] = (int32_t) test_below(&rng, g->n_vocab);
    }
    test_eval(p.s[0], 0, tokens, LONG_BEFORE, 1);
    bool ok = move_state(t, &p, what, 0, 0);
    for (int64_t at = LONG_BEFORE, n = LONG_PIECE; ok && at < LONG_BEFORE + LONG_PIECE + LONG_STEPS;
            at += n, n = 1) {
        const struct lrnn_input in = { .tokens = tokens + at, .n_tokens = n, .n_logits = n };
        ok = eval_both(t, &p, what, &in, 1, g->n_vocab, &worst);
    }
    test_check(t, ok && worst <= LIMIT_F32, "%s: a logit differs by %g; limit %g", what, worst,
            LIMIT_F32);
    printf("  %-44s %8.1e\n", what, worst);
    for (int i = 0; i < 2; ++i) {
        lrnn_session_free(p.s[i]);
        lrnn_model_free(model[i]);
    }
}

// Writes the model with heads of another length, in F32, to out.
static bool write_length(struct test * t, const struct golden * g, uint32_t length) {
    struct lrnn_error   err = { 0 };
    struct model_edit   e;
    struct lrnn_model * model = NULL;
    if (model_edit_open(&e, g->path)) {
        model = widen(&e, length, WIDTH, out, &err);
        model_edit_close(&e);
    }
    const bool ok =
            test_check(t, model != NULL, "%s, heads of %d: %s", g->name, (int) length, err.text);
    lrnn_model_free(model);
    return ok;
}

static void run_long_caches(struct test * t, const struct golden * g) {
    static const enum lrnn_cache_type TYPES[] = { LRNN_CACHE_F32, LRNN_CACHE_F16, LRNN_CACHE_Q8_0 };
    for (int i = 0; i < 3; ++i) {
        const bool q8_0 = TYPES[i] == LRNN_CACHE_Q8_0; // rows of whole blocks
        char       what[128];
        snprintf(what, sizeof(what), "%s, %d tokens, cache in %s", g->name,
                LONG_BEFORE + LONG_PIECE + LONG_STEPS, lrnn_cache_type_name(TYPES[i]));
        if (!q8_0 || write_length(t, g, SHORT_LENGTH)) {
            run_long(t, g, q8_0 ? out : g->path, TYPES[i], what);
        }
    }
}

static void keep_warning(enum lrnn_log_level level, const char * text, void * user) {
    if (level == LRNN_LOG_WARNING) {
        snprintf(user, 256, "%s", text);
    }
}

// Heads that no kernel supports: one sentence, and the caches of all layers are on the CPU.
static void test_refused(struct test * t, const struct golden * g) {
    char                           text[256] = "";
    const struct lrnn_model_params params = {
        .n_gpu_layers = -1, .devices = "CUDA0", .log = keep_warning, .log_user = text
    };
    if (!write_length(t, g, REFUSED_LENGTH)) {
        return;
    }
    struct lrnn_model * model[2] = { test_load_model(out, NULL), test_load_model(out, &params) };
    struct pair p = { { test_session(model[0], NULL), test_session(model[1], NULL) }, { 0 } };
    char        expected[256];
    snprintf(expected, sizeof(expected),
            "the attention of %d layers runs on the CPU: their devices lack the op",
            (int) lrnn_model_get_info(model[0]).n_layer_attention);
    test_check(t, strcmp(text, expected) == 0, "%s, heads of %d: '%s'; expected '%s'", g->name,
            (int) REFUSED_LENGTH, text, expected);
    const struct lrnn_input in = {
        .tokens = g->tokens, .n_tokens = g->n_tokens, .n_logits = g->n_tokens
    };
    double worst = 0.0;
    eval_both(t, &p, g->name, &in, 1, g->n_vocab, &worst);
    test_check(t, worst <= LIMIT_F32, "%s, heads of %d: a logit differs by %g; limit %g", g->name,
            (int) REFUSED_LENGTH, worst, LIMIT_F32);
    printf("  %-44s %8.1e   %s\n", g->name, worst, text);
    for (int i = 0; i < 2; ++i) {
        lrnn_session_free(p.s[i]);
        lrnn_model_free(model[i]);
    }
}

// Writes out with all matrices in another type.
static bool quantize(const struct golden * g, const char * type, struct lrnn_error * err) {
    struct lrnn_model *          model = test_load_model(g->path, NULL);
    struct quantize_overrides *  o = quantize_overrides_new();
    struct quantize_plan         plan = { 0 };
    const struct quantize_params params = { .type = quantize_type_find("Q8_0"), .overrides = o };
    const bool                   ok = o != NULL && quantize_overrides_add(o, type, err) &&
                    quantize_plan_make(&plan, model->file, &params, err) &&
                    quantize_run(&plan, model->file, &params, out, NULL, NULL, err);
    quantize_plan_free(&plan);
    quantize_overrides_free(o);
    lrnn_model_free(model);
    return ok;
}

// True for every model if the command line names none.
static bool is_selected(const struct golden * g, int argc, char ** argv) {
    const int first = argc > 1 && strncmp(argv[1], "--", 2) == 0 ? 2 : 1;
    for (int i = first; i < argc; ++i) {
        if (strcmp(argv[i], g->name) == 0) {
            return true;
        }
    }
    return argc == first;
}

// All layers on a device with less memory than they need; then as many as fit.
static void test_small(struct test * t, const struct golden * g) {
    struct lrnn_error        err = { 0 };
    struct lrnn_model_params params = { .n_gpu_layers = 1000, .devices = "CUDA0" };
    struct lrnn_model *      model = lrnn_model_load(g->path, &params, &err);
    struct lrnn_session *    s =
            model != NULL ? lrnn_session_new(model, &(struct lrnn_session_params) { 0 }, &err)
                             : NULL;
    test_check(t, s == NULL && err.text[0] != '\0', "%s fits", g->name);
    printf("  %s\n", err.text);
    lrnn_session_free(s);
    lrnn_model_free(model);

    params.n_gpu_layers = -1;
    model = test_load_model(g->path, &params);
    s = test_session(model, &(struct lrnn_session_params) { .n_threads = 1 });
    test_eval(s, 0, g->tokens, g->n_tokens, 1);
    test_check(t,
            fabs((double) lrnn_logits(s, 0)[0] -
                    (double) g->logits[(g->n_tokens - 1) * g->n_vocab]) <= LIMIT_F32,
            "%s: the layers that fit compute something else", g->name);
    lrnn_session_free(s);
    lrnn_model_free(model);
}

// The memory of the device is gone while a session runs: one sentence, and the state is kept.
static void test_exhausted(struct test * t, const struct golden * g) {
    enum { FEW = 4, MANY = 200 };
    struct lrnn_error              err = { 0 };
    const struct lrnn_model_params params = { .n_gpu_layers = 1000, .devices = "CUDA0" };
    setenv("LRNN_CUDA_MEMORY", "100000000", 1);
    struct lrnn_model *   model = test_load_model(g->path, &params);
    struct lrnn_session * s = test_session(model, &(struct lrnn_session_params) { 0 });
    test_eval(s, 0, g->tokens, FEW, 1);

    size_t n_free = 0, n_total = 0;
    char   used[32];
    ggml_backend_dev_memory(ggml_backend_dev_by_name("CUDA0"), &n_free, &n_total);
    snprintf(used, sizeof(used), "%zu", n_total - n_free);
    setenv("LRNN_CUDA_MEMORY", used, 1);
    int32_t tokens[MANY];
    for (int i = 0; i < MANY; ++i) {
        tokens[i] = g->tokens[i % g->n_tokens];
    }
    const struct lrnn_input many = { .tokens = tokens, .n_tokens = MANY, .n_logits = MANY };
    test_check(t, !lrnn_eval(s, &many, 1, &err) && err.kind == LRNN_ERROR_NO_MEMORY,
            "a call that the memory of the device cannot hold: %s", err.text);
    printf("  %s\n", err.text);

    setenv("LRNN_CUDA_MEMORY", "100000000", 1);
    test_eval(s, 0, g->tokens + FEW, g->n_tokens - FEW, 1);
    const float * expected = g->logits + (g->n_tokens - 1) * g->n_vocab;
    for (int64_t i = 0; i < g->n_vocab; ++i) {
        test_check(t, fabs((double) lrnn_logits(s, 0)[i] - (double) expected[i]) <= LIMIT_F32,
                "after exhausted memory, logit %d is %g; expected %g", (int) i,
                (double) lrnn_logits(s, 0)[i], (double) expected[i]);
    }
    lrnn_session_free(s);
    lrnn_model_free(model);
}

int main(int argc, char ** argv) {
    const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    const bool wide = argc > 1 && strcmp(argv[1], "--wide") == 0;
    const bool in_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    test_own_path(out, sizeof(out), "test-cuda-models.gguf");
    test_own_path(rounded, sizeof(rounded), "test-cuda-models-f32.gguf");
    if (small) {
        setenv("LRNN_CUDA_MEMORY", "20000", 1);
    }
    if (ggml_backend_dev_by_name("CUDA0") == NULL) {
        printf("SKIPPED: there is no CUDA device\n");
        return 0;
    }
    struct test        t = { 0 };
    struct lrnn_error  err = { 0 };
    struct golden_list list;
    const bool         two = ggml_backend_dev_by_name("CUDA1") != NULL;
    golden_list_load(&list);
    for (int i = small || wide || in_long ? 2 : 1; i < argc; ++i) {
        golden_find(&list, argv[i]); // ends the program if there is no such model
    }
    if (small) {
        test_small(&t, golden_find(&list, "delta_net_neg"));
        test_exhausted(&t, golden_find(&list, "delta_net_neg"));
    }
    if (in_long) {
        test_refused(&t, golden_find(&list, "transformer"));
    }
    for (int i = 0; i < list.n && !small; ++i) {
        const struct golden * g = &list.models[i];
        if (!is_selected(g, argc, argv)) {
            continue;
        }
        if (wide) {
            run_wide(&t, g);
            continue;
        }
        if (in_long) {
            run_long_caches(&t, g);
            continue;
        }
        run(&t, g, g->path, NULL, LRNN_CACHE_F32, LIMIT_F32);
        run(&t, g, g->path, NULL, LRNN_CACHE_F16, LIMIT_F32);
        if (two) {
            run(&t, g, g->path, "1,1", LRNN_CACHE_F32, LIMIT_F32);
        }
        if (test_check(&t, quantize(g, ".=F16", &err), "%s: %s", g->name, err.text)) {
            run(&t, g, out, NULL, LRNN_CACHE_F32, LIMIT_F16);
        }
    }
    unlink(out);
    unlink(rounded);
    golden_list_free(&list);
    return test_end(&t, "test-cuda-models");
}
