// Mixtures of experts at the ends of the range of numbers.
//
// A router with σ whose chosen values are all 0 in F32: the weights of the experts are divided by
// their sum. The rows of the router are all equal, so for about half of the tokens all logits are
// below −1000. Only the shared expert may then add to the residual: the logits of the model are
// those of one whose experts are zero.

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/rng.h"
#include "lrnn.h"

#include <math.h>

static struct test t;

static void fill(struct ggml_tensor * x, float value) {
    for (int64_t i = 0; i < ggml_nelements(x); ++i) {
        ((float *) x->data)[i] = value;
    }
}

// The logits of every token of the vocabulary alone, [V, V]; NULL after an error.
static float * logits_of_tokens(const struct model_edit * e, int64_t * n_vocab) {
    char                path[64];
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    struct lrnn_model * model = NULL;
    test_own_path(path, sizeof(path), "test-experts.gguf");
    if (model_edit_write(e, path)) {
        model = lrnn_model_load(path, NULL, &err);
    }
    remove(path);
    if (!test_check(&t, model != NULL, "%s", err.text)) {
        return NULL;
    }
    const int64_t                    V = *n_vocab = lrnn_model_get_info(model).n_vocab;
    float *                          logits = malloc((size_t) (V * V) * sizeof(*logits));
    const struct lrnn_session_params params = { .n_threads = 1, .n_cache = 8 };
    struct lrnn_session *            s = test_session(model, &params);
    for (int32_t token = 0; token < V; ++token) {
        test_check(&t, lrnn_seq_reset(s, 0, &err), "%s", err.text);
        test_eval(s, 0, &token, 1, 1);
        memcpy(logits + token * V, lrnn_logits(s, 0), (size_t) V * sizeof(*logits));
    }
    lrnn_session_free(s);
    lrnn_model_free(model);
    return logits;
}

static void test_router_that_underflows(const char * name, int layer) {
    struct golden     g;
    struct model_edit e;
    struct test_rng   rng = { 1 };
    char              router[64], down[64];
    int64_t           V = 0;
    golden_read(&g, name);
    snprintf(router, sizeof(router), "blk.%d.ffn_gate_inp.weight", layer);
    snprintf(down, sizeof(down), "blk.%d.ffn_down_exps.weight", layer);
    if (!test_check(&t, model_edit_open(&e, g.path), "%s: cannot be read", g.path)) {
        return;
    }
    struct ggml_tensor * w = model_edit_find(&e, router); // [D, X]
    for (int64_t i = 0; i < w->ne[0]; ++i) {
        const float value = (float) (1e4 * test_normal(&rng));
        for (int64_t x = 0; x < w->ne[1]; ++x) {
            ((float *) w->data)[x * w->ne[0] + i] = value;
        }
    }
    float * with = logits_of_tokens(&e, &V);
    fill(model_edit_find(&e, down), 0.0f);
    float * without = logits_of_tokens(&e, &V);
    int     n_same = 0;
    for (int64_t token = 0; with != NULL && without != NULL && token < V; ++token) {
        int64_t n_finite = 0, n_equal = 0;
        for (int64_t i = token * V; i < (token + 1) * V; ++i) {
            n_finite += isfinite(with[i]);
            n_equal += with[i] == without[i];
        }
        test_check(&t, n_finite == V, "%s: token %lld has %lld finite logits; expected %lld", name,
                (long long) token, (long long) n_finite, (long long) V);
        n_same += n_equal == V;
    }
    test_check(&t, n_same >= V / 4 && n_same <= V - V / 4,
            "%s: %d of %lld tokens use no expert; expected about half", name, n_same,
            (long long) V);
    printf("%-20s %d of %lld tokens use no expert\n", name, n_same, (long long) V);
    free(with);
    free(without);
    model_edit_close(&e);
    golden_free(&g);
}

int main(void) {
    test_router_that_underflows("bailingmoe3", 1); // in groups
    test_router_that_underflows("kimi_linear", 1);
    test_router_that_underflows("nemotron_h_moe", 1);
    return test_end(&t, "test-experts");
}
