// Importance matrices: the sums of squares that a session collects.
//
// The input of the first product of most families is a norm of the embedding,
// x = w ∘ e / √(mean e² + ε). The test computes its sums from the file. For all other products it
// checks that each weight has one input per token, and that the sums do not depend on how tokens
// are distributed over calls.

#include "file/imatrix.h"
#include "file/model-file.h"
#include "file/quantize-policy.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "lrnn.h"

static bool collect(const struct golden * g, struct lrnn_model * model, int64_t cut,
        struct imatrix * im, struct lrnn_error * err) {
    char                             path[64];
    struct lrnn_imatrix *            collected = lrnn_imatrix_new(model, NULL);
    const struct lrnn_session_params params = {
        .n_threads = 1,
        .trace_kinds = LRNN_TRACE_MATRICES,
        .trace = lrnn_imatrix_collect,
        .trace_user = collected,
    };
    struct lrnn_session * s = lrnn_session_new(model, &params, err);
    bool                  ok = s != NULL;
    for (int64_t at = 0; at < g->n_tokens && ok; at += cut) {
        const int64_t           n = cut < g->n_tokens - at ? cut : g->n_tokens - at;
        const struct lrnn_input in = { .tokens = g->tokens + at, .n_tokens = n, .n_logits = n };
        ok = lrnn_eval(s, &in, 1, err);
    }
    lrnn_session_free(s);
    *im = (struct imatrix) { 0 };
    test_own_path(path, sizeof(path), "test-imatrix.gguf");
    ok = ok && lrnn_imatrix_save(collected, path, "golden", 1, g->n_tokens, err) &&
         imatrix_read(im, path, err);
    lrnn_imatrix_free(collected);
    remove(path);
    return ok;
}

// How many experts a token uses.
static int64_t experts_used(const struct model_file * file) {
    struct lrnn_error err;
    struct slice      arch;
    char              key[128];
    int64_t           n = 0;
    if (model_file_text(file, "general.architecture", &arch, &err) == KEY_OK) {
        snprintf(key, sizeof(key), "%.*s.expert_used_count", (int) arch.size, arch.data);
        model_file_int(file, key, 1, 1024, &n, &err);
    }
    return n;
}

static const float * tensor_of(const struct model_file * f, const char * name) {
    const struct model_tensor * t = model_file_find_tensor(f, name);
    return t != NULL ? t->data : NULL;
}

// Σ_tokens x_j², in double
static void sums_from_file(const struct golden * g, const float * embd, const float * norm,
        double eps, int64_t n, double * sums) {
    memset(sums, 0, (size_t) n * sizeof(*sums));
    for (int64_t i = 0; i < g->n_tokens; ++i) {
        const float * e = embd + g->tokens[i] * n;
        double        mean2 = 0.0;
        for (int64_t j = 0; j < n; ++j) {
            mean2 += (double) e[j] * (double) e[j] / (double) n;
        }
        for (int64_t j = 0; j < n; ++j) {
            const double x = (double) e[j] * (double) norm[j] / sqrt(mean2 + eps);
            sums[j] += x * x;
        }
    }
}

// Weights by hand: Σ x² / count, at least a millionth of the mean, so that no column is ignored. A
// matrix without inputs has those of all others. A file with a negative sum is refused.
static void check_weights(struct test * t) {
    static const float x[2 * 4] = { 1.0f, 0.0f, 2.0f, 3.0f, 1.0f, 0.0f, 0.0f, 1.0f };
    struct imatrix     m = { 0 }, again;
    float              w[4] = { 0.0f };
    char               path[64];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    test_own_path(path, sizeof(path), "test-imatrix-weights.gguf");
    if (!test_check(t,
                imatrix_add(&m, "a.weight", 4, 3, 1, x, 2, &err) &&
                        imatrix_add(&m, "a.weight", 4, 3, 2, x, 1, &err) &&
                        imatrix_add(&m, "b.weight", 4, 3, 1, x, 0, &err),
                "%s", err.text)) {
        return;
    }
    const struct imatrix_entry * e = imatrix_find(&m, "a.weight");
    // sums 2, 0, 4, 10 over 2 inputs; their mean is 2
    test_check(t,
            imatrix_weights(e, 1, w) && w[0] == 1.0f && w[1] == 2e-6f && w[2] == 2.0f &&
                    w[3] == 5.0f,
            "weights %g %g %g %g", (double) w[0], (double) w[1], (double) w[2], (double) w[3]);
    // sums 1, 0, 4, 9 of the other matrix: together 3, 0, 8, 19 over 3 inputs, with the mean 2.5
    test_check(t,
            imatrix_weights(e, 0, w) && w[0] == 1.0f && w[1] == 2.5e-6f &&
                    w[2] == (float) (8.0 / 3.0) && w[3] == (float) (19.0 / 3.0),
            "weights of a matrix without inputs: %g %g %g %g", (double) w[0], (double) w[1],
            (double) w[2], (double) w[3]);
    test_check(t, !imatrix_weights(imatrix_find(&m, "b.weight"), 0, w),
            "a tensor without inputs has weights");

    e->sum2[4] = -2.0;
    test_check(t, imatrix_write(&m, path, &err), "%s", err.text);
    const bool read = imatrix_read(&again, path, &err);
    test_check(t, !read && strstr(err.text, "-2") != NULL, "a negative sum is read: %s", err.text);
    if (read) {
        imatrix_free(&again);
    }
    imatrix_free(&m);
    remove(path);
}

int main(void) {
    struct test        t = { 0 };
    struct golden_list list;
    struct test_worst  hand = { .what = "Σ x² of the first product, from the file", .limit = 1e-6 };
    struct test_worst  cuts = { .what = "Σ x² for calls of 36 and of 5 tokens", .limit = 2e-5 };
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    int                n_from_file = 0, n_weights = 0, n_matrices = 0;

    golden_list_load(&list);
    for (int i = 0; i < list.n; ++i) {
        const struct golden * g = &list.models[i];
        struct model_file *   file = model_file_open(g->path, &err);
        struct lrnn_model *   model = lrnn_model_load(g->path, NULL, &err);
        struct imatrix        im, again;
        test_check(&t,
                collect(g, model, g->n_tokens, &im, &err) && collect(g, model, 5, &again, &err),
                "%s: %s", g->name, err.text);

        // Expected are all matrices except the embedding, unless it is also the output, and except
        // the unused tensors of llama.cpp in layer 0 of RWKV-7.
        int64_t n_expected = 0;
        for (size_t j = 0; j < model_file_n_tensors(file); ++j) {
            const struct model_tensor * w = model_file_tensor(file, j);
            const bool                  lookup = strcmp(w->name, "token_embd.weight") == 0 &&
                                tensor_of(file, "output.weight") != NULL;
            const bool unread = strncmp(w->name, "blk.0.time_mix_v", 16) == 0 &&
                                strlen(w->name) == strlen("blk.0.time_mix_v1.weight");
            const bool wanted = quantize_role_of(w->name) != QUANTIZE_VECTOR && !lookup && !unread;
            const struct imatrix_entry * e = imatrix_find(&im, w->name);
            n_expected += wanted;
            if (!test_check(&t, (e != NULL) == wanted, "%s: %s is %s", g->name, w->name,
                        wanted ? "missing" : "unexpected") ||
                    e == NULL) {
                continue;
            }
            test_check(&t, e->n_per_row == w->ne[0] && e->n_matrices == w->ne[2] * w->ne[3],
                    "%s: %s has the wrong shape", g->name, w->name);
            const bool experts = strstr(w->name, "_exps") != NULL; // each token uses some of them
            double     inputs = 0.0;
            for (int64_t m = 0; m < e->n_matrices; ++m) {
                inputs += e->counts[m];
                test_check(&t, experts || e->counts[m] == (double) g->n_tokens,
                        "%s: %s has %g inputs for %d tokens", g->name, w->name, e->counts[m],
                        (int) g->n_tokens);
                double sum = 0.0;
                for (int64_t k = 0; k < e->n_per_row; ++k) {
                    sum += e->sum2[m * e->n_per_row + k];
                }
                test_check(&t, sum > 0.0, "%s: matrix %d of %s has only zeros", g->name, (int) m,
                        w->name);
                n_matrices++;
            }
            test_check(&t, !experts || inputs == (double) (g->n_tokens * experts_used(file)),
                    "%s: %s has %g inputs in all", g->name, w->name, inputs);
            const struct imatrix_entry * b = imatrix_find(&again, w->name);
            for (int64_t k = 0; b != NULL && k < e->n_per_row * e->n_matrices; ++k) {
                test_bound(&t, &cuts, fabs(e->sum2[k] - b->sum2[k]) / (e->sum2[k] + 1e-3), w->name);
            }
        }
        test_check(&t, im.n_entries == n_expected, "%s: %d entries; expected %d", g->name,
                im.n_entries, (int) n_expected);
        n_weights += im.n_entries;

        const float * embd = tensor_of(file, "token_embd.weight");
        const float * norm = tensor_of(file, "blk.0.attn_norm.weight");
        double        eps = 0.0;
        const bool    rms =
                tensor_of(file, "blk.0.attn_norm.bias") == NULL && norm != NULL &&
                tensor_of(file, "blk.0.ssm_skip.weight") == NULL && // xLSTM: LayerNorm
                model_file_float(file, "lrnn.norm_epsilon", 0.0, 1.0, &eps, &err) == KEY_OK;
        static const char * const FIRST[] = { "blk.0.attn_q.weight", "blk.0.ssm_in.weight",
            "blk.0.attn_v.weight", "blk.0.ssm_beta.weight" };
        for (size_t k = 0; rms && k < sizeof(FIRST) / sizeof(FIRST[0]); ++k) {
            const struct imatrix_entry * e = imatrix_find(&im, FIRST[k]);
            double                       sums[256];
            if (e != NULL) {
                sums_from_file(g, embd, norm, eps, e->n_per_row, sums);
                for (int64_t j = 0; j < e->n_per_row; ++j) {
                    test_bound(&t, &hand, fabs(e->sum2[j] - sums[j]) / sums[j], g->name);
                }
                n_from_file++;
            }
        }
        imatrix_free(&im);
        imatrix_free(&again);
        lrnn_model_free(model);
        model_file_free(file);
    }
    check_weights(&t);
    test_check(&t, n_from_file >= 20, "only %d products were computed from the file; expected 20",
            n_from_file);
    test_worst_print(&hand);
    test_worst_print(&cuts);
    printf("%d weights of %d models, %d matrices; %d computed from the file\n", n_weights, list.n,
            n_matrices, n_from_file);
    golden_list_free(&list);
    return test_end(&t, "test-imatrix");
}
