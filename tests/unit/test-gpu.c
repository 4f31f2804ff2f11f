// Golden models on a GPU give the golden logits within a tolerance: in one call, and token by
// token, where ggml-cuda replays a captured graph. Skipped without a GPU. An argument names another
// device. test-gpu-kernels and test-gpu-chunk compare every kernel with the oracle.

#include "kit/check.h"
#include "kit/golden.h"
#include "lrnn.h"

#include "ggml-backend.h"

// Largest absolute difference between a logit and its golden logit; logits are about 1 to 10. The
// golden models are F32, which our build of ggml-cuda multiplies in F32, but in another order and
// with other approximations of exp and 1/sqrt. On a CPU, relative errors of up to 2⁻²⁰ (16 units in
// the last place) in every weight change logits by up to 7.1e-5, errors of 2⁻¹⁸ by 2.8e-4. Weights
// rounded to TF32 change them by 1.8e-3 or more in each model without attention, so that 1e-3
// still tells F32 from TF32. Attention with a cache in F32 is computed in F32, too.
static const double LIMIT = 1e-3;

// Reads the number of layers whose recurrences moved to the CPU from the warning of a session.
static void note_moved(enum lrnn_log_level level, const char * message, void * user) {
    (void) level;
    sscanf(message, "the recurrence of %d layers runs on the CPU", (int *) user);
}

static int count_slstm(const struct lrnn_model * model) {
    static const char    NAME[] = "lrnn.slstm";
    struct lrnn_key_info key;
    int                  n = 0;
    for (int64_t i = 0; lrnn_model_get_key(model, i, 0, &key); ++i) {
        if (key.name_size == strlen(NAME) && memcmp(key.name, NAME, key.name_size) == 0) {
            for (int64_t j = 0; j < key.n; ++j) {
                lrnn_model_get_key(model, i, j, &key);
                n += key.integer == 1;
            }
        }
    }
    return n;
}

static double feed(struct test * t, struct lrnn_session * s, const struct golden * g, int64_t n) {
    struct lrnn_error err;
    double            worst = 0.0;
    for (int64_t done = 0; done < g->n_tokens; done += n) {
        const struct lrnn_input in = { .tokens = g->tokens + done, .n_tokens = n, .n_logits = n };
        if (!test_check(t, lrnn_eval(s, &in, 1, &err), "%s: %s", g->name, err.text)) {
            return INFINITY;
        }
        for (int64_t i = 0; i < n * g->n_vocab; ++i) {
            const double got = lrnn_logits(s, i / g->n_vocab)[i % g->n_vocab];
            const double d = fabs(got - (double) g->logits[done * g->n_vocab + i]);
            worst = d <= worst ? worst : d; // NaN wins
        }
    }
    return worst;
}

static void test_model(struct test * t, const struct golden * g, const char * device) {
    int                            moved = 0;
    const struct lrnn_model_params params = {
        .n_gpu_layers = -1, .devices = device, .log = note_moved, .log_user = &moved
    };
    struct lrnn_model * model = test_load_model(g->path, &params);
    const int           may_move = strncmp(device, "Vulkan", 6) == 0 ? count_slstm(model) : 0;
    const int64_t       pieces[] = { g->n_tokens, 1 };
    double              worst[2] = { 0 };
    for (int i = 0; i < 2; ++i) {
        moved = 0;
        struct lrnn_session * s = test_session(model,
                &(struct lrnn_session_params) { .n_cache = 256, .cache_type = LRNN_CACHE_F32 });
        test_check(t, moved == may_move, "%s: %d recurrences were moved to the CPU; expected %d",
                g->name, moved, may_move);
        worst[i] = feed(t, s, g, pieces[i]);
        test_check(t, worst[i] <= LIMIT, "%s, calls of %d tokens: a logit differs by %g; limit %g",
                g->name, (int) pieces[i], worst[i], LIMIT);
        lrnn_session_free(s);
    }
    printf("  %-28s one call %8.1e   token by token %8.1e\n", g->name, worst[0], worst[1]);
    lrnn_model_free(model);
}

int main(int argc, char ** argv) {
    ggml_backend_dev_t gpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
    if (argc < 2 ? gpu == NULL : ggml_backend_dev_by_name(argv[1]) == NULL) {
        printf("SKIPPED: there is no GPU%s%s\n", argc < 2 ? "" : " ", argc < 2 ? "" : argv[1]);
        return 0;
    }
    struct test        t = { 0 };
    struct golden_list list;
    golden_list_load(&list);
    const char * device = argc > 1 ? argv[1] : ggml_backend_dev_name(gpu);
    printf("golden models on %s: largest difference of a logit, limit %g\n", device, LIMIT);
    for (int i = 0; i < list.n; ++i) {
        bool selected = argc < 3;
        for (int j = 2; j < argc; ++j) {
            selected = selected || strcmp(argv[j], list.models[i].name) == 0;
        }
        if (selected) {
            test_model(&t, &list.models[i], device);
        }
    }
    golden_list_free(&list);
    return test_end(&t, "test-gpu");
}
