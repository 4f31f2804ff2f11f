// The norm of a state against a sum in double over the bytes that a state file has of it, for
// families with convolutions, attention layers, token shifts, normalisers; in a ring of slots, for
// one sequence among others; and where numbers are not finite.

#include "ggml-backend.h"
#include "kit/check.h"
#include "kit/golden.h"
#include "kit/state-file-bytes.h"
#include "run/model.h"
#include "run/session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct test t;
static char        path[256];

static uint8_t * slurp(size_t * size) {
    FILE *    f    = fopen(path, "rb");
    uint8_t * data = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        *size = (size_t) ftell(f);
        data  = malloc(*size);
        rewind(f);
        if (data == NULL || fread(data, 1, *size, f) != *size) {
            printf("FAILED: %s cannot be read\n", path);
            exit(1);
        }
    }
    fclose(f);
    return data;
}

// From the file: layer by layer its states, the recurrence first, or keys and values of all tokens.
// - extra: floats of a head behind its matrix
struct state_norm {
    double  norm;
    int32_t layer;
};

static struct state_norm state_norm_of(const struct lrnn_session * session, int32_t seq) {
    struct state_norm n;
    n.norm = lrnn_seq_state_norm(session, seq, &n.layer);
    return n;
}

static struct state_norm by_hand(struct lrnn_session * session, int32_t seq, int64_t extra) {
    char   err[512] = "";
    size_t size     = 0;
    test_check(&t, lrnn_seq_save(session, seq, NULL, path, err, sizeof(err)), "%s", err);
    uint8_t *                    file   = slurp(&size);
    const uint8_t *              p      = file + STATE_AT_PIECES;
    const struct lrnn_model *    model  = session_model(session);
    const struct lrnn_model_info info   = model->info;
    const int64_t                n_rec  = info.n_layer - info.n_layer_attention;
    const int64_t                matrix = info.d_k * info.d_v;
    struct state_norm            most   = { .layer = -1 };
    for (int32_t il = 0; il < info.n_layer; ++il) {
        if (model->layers[il].attention) {
            p += info.cache_bytes / info.n_layer_attention * lrnn_seq_length(session, seq);
            continue;
        }
        for (int64_t h = 0; h < info.n_head; ++h) {
            double square = 0.0;
            for (int64_t i = 0; i < matrix; ++i) {
                float x;
                memcpy(&x, p + (h * (matrix + extra) + i) * (int64_t) sizeof(x), sizeof(x));
                square += (double) x * (double) x;
            }
            most = sqrt(square) > most.norm ? (struct state_norm) { sqrt(square), il } : most;
        }
        p += info.state_bytes / n_rec;
    }
    free(file);
    return most;
}

static void eval(struct lrnn_session * session, int32_t seq, const int32_t * tokens, int64_t n) {
    char err[512] = "";
    test_check(&t,
            lrnn_eval(session, &(struct lrnn_input) { .seq = seq, .tokens = tokens, .n_tokens = n },
                    1, err, sizeof(err)),
            "%s", err);
}

static void test_family(const struct golden * g, bool has_normaliser, struct test_worst * worst) {
    char                  err[512] = "";
    struct lrnn_model *   model    = lrnn_model_load(g->path, NULL, err, sizeof(err));
    struct lrnn_session * session =
            model == NULL ? NULL
                          : lrnn_session_new(model,
                                    &(struct lrnn_session_params) { .n_threads = 1,
                                            .n_seqs                            = 2,
                                            .n_rewind                          = 2,
                                            .n_batch                           = 16,
                                            .n_cache = (int32_t) g->n_tokens },
                                    err, sizeof(err));
    if (!test_check(&t, session != NULL, "%s: %s", g->name, err)) {
        return;
    }
    const int64_t extra = has_normaliser ? model->info.d_k + 1 : 0;
    test_check(&t, state_norm_of(session, 1).layer == -1,
            "%s: a sequence without tokens has a state", g->name);
    eval(session, 0, g->tokens + 1, 3);
    for (int64_t at = 0, n = 1; at + n <= g->n_tokens; at += n, n = n % 5 + 1) {
        eval(session, 1, g->tokens + at, n);
        const struct state_norm a = state_norm_of(session, 1), b = by_hand(session, 1, extra);
        test_bound(&t, worst, fabs(a.norm - b.norm) / b.norm, g->name);
        test_check(&t, a.layer == b.layer && b.norm > 0.0, "%s: layer %d, expected %d", g->name,
                a.layer, b.layer);
    }

    // what is not finite is larger than anything, and a NaN larger than that
    int32_t last = model->n_layer - 1;
    while (model->layers[last].attention) {
        last--;
    }
    size_t               offset;
    struct ggml_tensor * state = session_seq_state(session, 1, last, &offset);
    ggml_backend_tensor_set(state, &(float) { INFINITY }, offset, sizeof(float));
    struct state_norm most = state_norm_of(session, 1);
    test_check(&t, isinf(most.norm) && most.layer == last, "%s: an infinite number is not seen",
            g->name);
    ggml_backend_tensor_set(state, &(float) { NAN }, offset, sizeof(float));
    most = state_norm_of(session, 1);
    test_check(&t,
            isnan(most.norm) && most.layer == last && isfinite(state_norm_of(session, 0).norm),
            "%s: a NaN is not seen", g->name);

    lrnn_session_free(session);
    lrnn_model_free(model);
}

int main(void) {
    static const char * const NAMES[] = { "delta_net_neg", "delta_net_hybrid",
        "gated_deltaproduct2_neg", "mamba_neg", "rwkv7", "xlstm" };
    struct golden_list        golden;
    struct test_worst         worst = { .what = "norm against the state file", .limit = 1e-12 };
    char                      err[512];
    if (!golden_list_load(&golden, err, sizeof(err))) {
        printf("FAILED: %s\n", err);
        return 1;
    }
    snprintf(path, sizeof(path), "%s/lrnn-norm.XXXXXX",
            getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0) {
        printf("FAILED: no file: %s\n", strerror(errno));
        return 1;
    }
    close(fd);
    size_t n_found = 0;
    for (int i = 0; i < golden.n; ++i) {
        for (size_t k = 0; k < sizeof(NAMES) / sizeof(NAMES[0]); ++k) {
            if (strcmp(golden.models[i].name, NAMES[k]) == 0) {
                test_family(&golden.models[i], strcmp(NAMES[k], "xlstm") == 0, &worst);
                n_found++;
            }
        }
    }
    test_check(&t, n_found == sizeof(NAMES) / sizeof(NAMES[0]), "%zu models are there", n_found);
    test_worst_print(&worst);
    unlink(path);
    golden_list_free(&golden);
    return test_end(&t, "state-norm");
}
