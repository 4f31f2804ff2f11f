// Golden models on CUDA devices against the same models on the CPU, in a build with CUDA: two
// sequences in pieces, rewinds, forks, states that move between CPU and device; on one device and
// on two; with weights in F32 and F16, and attention caches in F32 and F16. With --small, a
// device with too little memory: one sentence, and the session goes on. Skipped without a device;
// kit/cuda-device is one.

#include "file/quantize.h"
#include "kit/check.h"
#include "kit/golden.h"
#include "kit/nmse.h"
#include "kit/rng.h"
#include "lrnn.h"
#include "model/model.h"

#include "ggml-backend.h"

#include <unistd.h>

enum { SEQS = 3, REWIND = 4, TURNS = 12 };

static const char OUT[] = "test-cuda-models.gguf";

// Largest difference of a logit; logits are about 1 to 10. F32: as in test-gpu.c. F16: ggml-cuda
// rounds activations to F16, by up to 2⁻¹¹. That is 512 times the error for which test-gpu.c found
// 7.1e-5: 3.6e-2. The limit is three times that, because sums are rounded too.
static const double LIMIT_F32 = 1e-3;
static const double LIMIT_F16 = 1e-1;

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

static void run(struct test * t, const struct golden * g, const char * path, const char * split,
        enum lrnn_cache_type cache, double limit) {
    const struct lrnn_model_params   params = { .n_gpu_layers = -1,
          .tensor_split = split,
          .devices = split != NULL ? "CUDA0,CUDA1" : "CUDA0" };
    const struct lrnn_session_params how = {
        .n_threads = 1, .n_seqs = SEQS, .n_rewind = REWIND, .n_cache = 256, .cache_type = cache
    };
    struct lrnn_model * model[2] = { test_load_model(path, NULL), test_load_model(path, &params) };
    struct pair p = { { test_session(model[0], &how), test_session(model[1], &how) }, { 0 } };
    char        what[128];
    snprintf(what, sizeof(what), "%s%s%s", g->name, split != NULL ? ", two devices" : "",
            cache == LRNN_CACHE_F16 ? ", cache in F16" : "");
    const double worst = compare(t, &p, g, what);
    test_check(t, worst <= limit, "%s: a logit differs by %g; limit %g", what, worst, limit);
    printf("  %-44s %8.1e\n", what, worst);
    for (int i = 0; i < 2; ++i) {
        lrnn_session_free(p.s[i]);
        lrnn_model_free(model[i]);
    }
}

// Writes OUT with all matrices in another type.
static bool quantize(const struct golden * g, const char * type, struct lrnn_error * err) {
    struct lrnn_model *          model = test_load_model(g->path, NULL);
    struct quantize_overrides *  o = quantize_overrides_new();
    struct quantize_plan         plan = { 0 };
    const struct quantize_params params = { .type = quantize_type_find("Q8_0"), .overrides = o };
    const bool                   ok = o != NULL && quantize_overrides_add(o, type, err) &&
                    quantize_plan_make(&plan, model->file, &params, err) &&
                    quantize_run(&plan, model->file, &params, OUT, NULL, NULL, err);
    quantize_plan_free(&plan);
    quantize_overrides_free(o);
    lrnn_model_free(model);
    return ok;
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

int main(int argc, char ** argv) {
    const bool small = argc > 1 && strcmp(argv[1], "--small") == 0;
    if (small) {
        setenv("LRNN_CUDA_MEMORY", "20000", 1);
    }
    if (ggml_backend_dev_by_name("CUDA0") == NULL) {
        printf("SKIPPED: there is no CUDA device\n");
        return 0;
    }
    struct test        t = { 0 };
    struct lrnn_error  err;
    struct golden_list list;
    const bool         two = ggml_backend_dev_by_name("CUDA1") != NULL;
    golden_list_load(&list);
    for (int i = 0; i < list.n; ++i) {
        const struct golden * g = &list.models[i];
        if (small) {
            if (i == 0) {
                test_small(&t, golden_find(&list, "delta_net_neg"));
            }
            continue;
        }
        run(&t, g, g->path, NULL, LRNN_CACHE_F32, LIMIT_F32);
        run(&t, g, g->path, NULL, LRNN_CACHE_F16, LIMIT_F32);
        if (two) {
            run(&t, g, g->path, "1,1", LRNN_CACHE_F32, LIMIT_F32);
        }
        if (quantize(g, ".=F16", &err)) {
            run(&t, g, OUT, NULL, LRNN_CACHE_F32, LIMIT_F16);
        } else {
            printf("  %s: %s\n", g->name, err.text);
        }
    }
    unlink(OUT);
    golden_list_free(&list);
    return test_end(&t, "test-cuda-models");
}
