// Every golden model with quantized matrices: it loads without a copy and computes nearly the same
// logits. Tensors that are not matrices are rejected in another type.

#include "file/quantize.h"
#include "ggml.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/model-edit.h"
#include "kit/nmse.h"
#include "lrnn.h"
#include "model/model.h"

#include <unistd.h>

static char out[64];

// Writes `out` with an override such as ".=Q8_0".
static bool quantize_all(
        const struct model_file * file, const char * override, struct lrnn_error * err) {
    struct quantize_overrides *  o = quantize_overrides_new();
    struct quantize_plan         plan = { 0 };
    const struct quantize_params params = { .type = quantize_type_find("Q8_0"), .overrides = o };

    const bool ok = o != NULL && quantize_overrides_add(o, override, err) &&
                    quantize_plan_make(&plan, file, &params, err) &&
                    quantize_run(&plan, file, &params, out, NULL, NULL, err);
    quantize_plan_free(&plan);
    quantize_overrides_free(o);
    return ok;
}

static void load_and_run(const char * path, const struct golden * g, float * logits) {
    struct lrnn_model *   model = test_load_model(path, NULL);
    struct lrnn_session * session =
            test_session(model, &(struct lrnn_session_params) { .n_threads = 1 });
    test_eval(session, 0, g->tokens, g->n_tokens, g->n_tokens);
    for (int64_t i = 0; i < g->n_tokens; ++i) {
        memcpy(logits + i * g->n_vocab, lrnn_logits(session, i),
                (size_t) g->n_vocab * sizeof(float));
    }
    lrnn_session_free(session);
    lrnn_model_free(model);
}

// Loading converts nothing: weights are used in the mapped file, in the type they have there.
static void check_in_place(struct test * t, const char * path, const char * name) {
    size_t              size;
    struct lrnn_model * model = test_load_model(path, NULL);
    const char *        bytes = model_file_bytes(model->file, &size);
    int                 n = 0;
    for (struct ggml_tensor * x = ggml_get_first_tensor(model->devices[0].ctx); x != NULL;
            x = ggml_get_next_tensor(model->devices[0].ctx, x)) {
        const struct model_tensor * f = model_file_find_tensor(model->file, x->name);
        test_check(t,
                f != NULL && x->type == f->type && x->data == f->data &&
                        (const char *) x->data >= bytes &&
                        (const char *) x->data + ggml_nbytes(x) <= bytes + size,
                "%s: %s is not used in place", name, x->name);
        n += x->type == GGML_TYPE_Q8_0;
    }
    test_check(t, n > 0, "%s: no weight is Q8_0", name);
    lrnn_model_free(model);
}

// Every family runs with all its matrices in another type, including those of the recurrence. The
// loader rejects all other tensors in another type: the lists of the policy and the loader agree.
static void test_models(struct test * t) {
    struct golden_list list;
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    golden_list_load(&list);
    struct test_worst worst_q8 = { .what = "all matrices in Q8_0: logits, NMSE", .limit = 5e-3 };
    struct test_worst worst_bf = { .what = "all matrices in BF16: logits, NMSE", .limit = 5e-4 };
    int               n_vectors = 0;
    for (int i = 0; i < list.n; ++i) {
        const struct golden * g = &list.models[i];
        float *               logits = malloc((size_t) (g->n_tokens * g->n_vocab) * sizeof(float));
        struct model_file *   file = model_file_open(g->path, &err);
        for (int all = 0; all < 2; ++all) {
            const bool made = quantize_all(file, all ? ".=BF16" : ".=Q8_0", &err);
            if (test_check(t, made, "%s: %s", g->name, err.text)) {
                load_and_run(out, g, logits);
                test_bound(t, all ? &worst_bf : &worst_q8,
                        test_nmse(logits, g->logits, g->n_tokens * g->n_vocab), g->name);
            }
            if (!all) {
                check_in_place(t, out, g->name);
            }
        }
        for (size_t j = 0; j < model_file_n_tensors(file); ++j) {
            const char * name = model_file_tensor(file, j)->name;
            if (quantize_role_of(name) != QUANTIZE_VECTOR) {
                continue;
            }
            struct model_edit edit;
            if (test_check(t, model_edit_open(&edit, g->path), "%s cannot be edited", g->path)) {
                model_edit_convert(&edit, name, GGML_TYPE_F16);
                model_edit_write(&edit, out);
                model_edit_close(&edit);
                struct lrnn_model * model = lrnn_model_load(out, NULL, &err);
                test_check(t, model == NULL && strstr(err.text, "expected f32") != NULL,
                        "%s: %s in F16 was accepted; the policy should list it as a matrix",
                        g->name, name);
                lrnn_model_free(model);
                n_vectors++;
            }
        }
        model_file_free(file);
        free(logits);
    }
    test_worst_print(&worst_q8);
    test_worst_print(&worst_bf);
    printf("%d models; %d tensors that are not matrices are rejected in F16\n", list.n, n_vectors);
    golden_list_free(&list);
}

int main(void) {
    struct test t = { 0 };
    test_own_path(out, sizeof(out), "test-quantize-models.gguf");
    test_models(&t);
    unlink(out);
    return test_end(&t, "test-quantize-models");
}
