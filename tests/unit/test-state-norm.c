// The state norm against a sum in double over the bytes of a state file: for families with
// convolutions, attention layers, token shifts and normalizers, for one of several sequences in a
// ring of slots, and for non-finite values.

#include "lrnn.h"
#include "ggml-backend.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/state-file-bytes.h"
#include "model/model.h"
#include "run/session.h"

static struct test t;
static char        path[256];

struct state_norm {
    double  norm;
    int32_t layer;
};

static struct state_norm get_state_norm(const struct lrnn_session * session, int32_t seq) {
    struct state_norm n;
    n.norm = lrnn_seq_state_norm(session, seq, &n.layer);
    return n;
}

// Computes the norm from a state file: the states of each layer, recurrence first, or the keys and
// values of all tokens.
static struct state_norm norm_from_file(struct lrnn_session * session, int32_t seq) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    size_t            size = 0;
    test_check(&t, lrnn_seq_save(session, seq, NULL, path, &err), "%s", err.text);
    uint8_t *                    file = test_read_file(path, &size);
    const uint8_t *              p = file + STATE_AT_PIECES;
    const struct lrnn_model *    model = session->model;
    const struct lrnn_model_info info = model->info;
    struct state_norm            most = { .layer = -1 };
    for (int32_t il = 0; il < info.n_layer; ++il) {
        const struct layer * layer = &model->layers[il];
        // mLSTM: a normalizer [d_k] and a maximum after the matrix of a head; xLSTM: d_k = d_v
        const int64_t head = layer->n_head > 0 ? layer->state_size[0] / layer->n_head : 0;
        const int64_t d = (int64_t) sqrt((double) head);
        const int64_t matrix = strcmp(info.family, "mlstm") == 0 ? info.d_k * info.d_v
                               : head == d * d + d + 1           ? d * d
                                                                 : head;
        for (int64_t h = 0; h < layer->n_head && layer->recurrent; ++h) {
            double square = 0.0;
            for (int64_t i = 0; i < matrix; ++i) {
                float x;
                memcpy(&x, p + (h * head + i) * (int64_t) sizeof(x), sizeof(x));
                square += (double) x * (double) x;
            }
            most = sqrt(square) > most.norm ? (struct state_norm) { sqrt(square), il } : most;
        }
        for (int32_t i = 0; i < layer->n_states && layer->recurrent; ++i) {
            p += layer->state_size[i] * (int64_t) sizeof(float);
        }
        if (model->layers[il].attention) {
            p += info.cache_bytes / info.n_layer_attention * lrnn_seq_length(session, seq);
        }
    }
    free(file);
    return most;
}

static void test_model(const struct golden * g, struct test_worst * worst) {
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 2, .n_rewind = 2, .n_batch = 16, .n_cache = (int32_t) g->n_tokens
    };
    struct lrnn_model *   model = test_load_model(g->path, NULL);
    struct lrnn_session * session = test_session(model, &params);
    test_check(&t, get_state_norm(session, 1).layer == -1, "%s: an empty sequence has a state norm",
            g->name);
    test_eval(session, 0, g->tokens + 1, 3, 0);
    if (model->info.n_head == 0) {
        test_check(&t, get_state_norm(session, 0).layer == -1,
                "%s: a model without recurrences has a state norm", g->name);
        lrnn_session_free(session);
        lrnn_model_free(model);
        return;
    }
    for (int64_t at = 0, n = 1; at + n <= g->n_tokens; at += n, n = n % 5 + 1) {
        test_eval(session, 1, g->tokens + at, n, 0);
        const struct state_norm a = get_state_norm(session, 1), b = norm_from_file(session, 1);
        test_bound(&t, worst, fabs(a.norm - b.norm) / b.norm, g->name);
        test_check(&t, a.layer == b.layer && b.norm > 0.0, "%s: layer %d; expected %d", g->name,
                a.layer, b.layer);
    }

    // infinity is larger than every number, NaN larger than infinity
    int32_t last = model->n_layer - 1;
    while (!model->layers[last].recurrent) {
        last--;
    }
    size_t               offset;
    struct ggml_tensor * state = session_seq_state(session, 1, last, &offset);
    ggml_backend_tensor_set(state, &(float) { INFINITY }, offset, sizeof(float));
    struct state_norm most = get_state_norm(session, 1);
    test_check(&t, isinf(most.norm) && most.layer == last, "%s: infinity is not reported", g->name);
    ggml_backend_tensor_set(state, &(float) { NAN }, offset, sizeof(float));
    most = get_state_norm(session, 1);
    test_check(&t,
            isnan(most.norm) && most.layer == last && isfinite(get_state_norm(session, 0).norm),
            "%s: NaN is not reported", g->name);

    lrnn_session_free(session);
    lrnn_model_free(model);
}

int main(void) {
    struct golden_list golden;
    struct test_worst  worst = { .what = "norm against the state file", .limit = 1e-12 };
    golden_list_load(&golden);
    test_own_path(path, sizeof(path), "test-state-norm.state");
    for (int i = 0; i < golden.n; ++i) {
        test_model(&golden.models[i], &worst);
    }
    test_worst_print(&worst);
    remove(path);
    golden_list_free(&golden);
    return test_end(&t, "test-state-norm");
}
