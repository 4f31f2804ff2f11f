// Models on several devices give the bits of the CPU for every placement: in the prompt, in
// generation, after a rewind, in a fork, and from a state file of another placement. Two servers on
// the loopback are the devices. ggml's RPC backend shares no memory with this process and computes
// with the same CPU kernels.

#include "kit/check.h"
#include "kit/files.h"
#include "kit/golden.h"
#include "kit/loopback-server.h"
#include "lrnn.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <unistd.h>

enum { PROMPT = 13, STEPS = 6, REWIND = 2, CALLS = 3 + 2 * STEPS, V_MAX = 64 };

struct result {
    int   n;
    float logits[CALLS][V_MAX];
};

struct bench {
    struct test *      t;
    char               names[2][64]; // the devices
    char               both[130];    // their names, separated by a comma
    char               state_path[64];
    struct golden_list golden;
};

static void eval(struct bench * b, struct lrnn_session * s, int32_t seq, const int32_t * tokens,
        int64_t n, int64_t V, struct result * r) {
    const struct lrnn_input in = { .seq = seq, .tokens = tokens, .n_tokens = n, .n_logits = 1 };
    struct lrnn_error       err;
    if (test_check(b->t, lrnn_eval(s, &in, 1, &err), "%s", err.text)) {
        memcpy(r->logits[r->n], lrnn_logits(s, 0), (size_t) V * sizeof(float));
    }
    r->n++;
}

// Runs everything that changes states: a prompt, steps, a rewind, a fork, a state file.
static void run(
        struct bench * b, struct lrnn_model * model, const struct golden * g, struct result * r) {
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 2, .n_rewind = REWIND, .n_cache = 64
    };
    struct lrnn_error     err;
    struct lrnn_session * s = test_session(model, &params);
    const int64_t         V = g->n_vocab;
    memset(r, 0, sizeof(*r));
    eval(b, s, 0, g->tokens, PROMPT, V, r);
    for (int i = 0; i < STEPS; ++i) {
        eval(b, s, 0, g->tokens + PROMPT + i, 1, V, r);
    }
    test_check(b->t, lrnn_seq_rewind(s, 0, REWIND, &err), "%s: %s", g->name, err.text);
    eval(b, s, 0, g->tokens, 1, V, r);
    test_check(b->t, lrnn_seq_fork(s, 0, 1, &err), "%s: %s", g->name, err.text);
    eval(b, s, 1, g->tokens + 2, 3, V, r);
    test_check(b->t, lrnn_seq_save(s, 1, NULL, b->state_path, &err), "%s: %s", g->name, err.text);
    for (int i = 0; i < STEPS; ++i) {
        eval(b, s, 1, g->tokens + i, 1, V, r);
    }
    lrnn_session_free(s);
}

// Continues from the state file, which another placement may have written.
static void resume(
        struct bench * b, struct lrnn_model * model, const struct golden * g, struct result * r) {
    struct lrnn_error     err;
    struct lrnn_session * s =
            test_session(model, &(struct lrnn_session_params) { .n_threads = 1, .n_cache = 64 });
    test_check(b->t, lrnn_seq_load(s, 0, NULL, b->state_path, &err), "%s: %s", g->name, err.text);
    r->n = 0;
    for (int i = 0; i < STEPS; ++i) {
        eval(b, s, 0, g->tokens + i, 1, g->n_vocab, r);
    }
    lrnn_session_free(s);
}

struct log {
    int  n;
    char text[1024];
};

static void on_log(enum lrnn_log_level level, const char * message, void * user) {
    struct log * log = user;
    log->n += level == LRNN_LOG_INFO;
    strncat(log->text, message, sizeof(log->text) - strlen(log->text) - 2);
    strcat(log->text, "\n");
}

static bool on_progress(float done, void * user) {
    float *    last = user;
    const bool forward = done >= *last && done <= 1.0f;
    *last = forward ? done : 2.0f;
    return true;
}

static bool stop_at_once(float done, void * user) {
    (void) done;
    (void) user;
    return false;
}

static void test_model(struct bench * b, const struct golden * g) {
    const char * const name = g->name;
    if (!test_check(b->t, g->n_vocab <= V_MAX && g->n_tokens >= PROMPT + STEPS,
                "%s: %lld tokens with %lld logits; expected at least %d and at most %d", g->name,
                (long long) g->n_tokens, (long long) g->n_vocab, PROMPT + STEPS, V_MAX)) {
        return;
    }
    struct lrnn_model *  local = test_load_model(g->path, NULL);
    const int32_t        n_layer = (int32_t) lrnn_model_get_info(local).n_layer;
    struct result *const expected = malloc(sizeof(*expected)), *const got = malloc(sizeof(*got));
    run(b, local, g, expected);

    // nothing, the output, the output and one layer, all that fit, all on two devices
    const struct lrnn_model_params placements[] = {
        { .n_gpu_layers = 0, .devices = b->both },
        { .n_gpu_layers = 1, .devices = b->names[0] },
        { .n_gpu_layers = 2, .devices = b->names[1] },
        { .n_gpu_layers = -1, .devices = b->names[0] },
        { .n_gpu_layers = n_layer + 1, .devices = b->both, .tensor_split = "1,1" },
        { .n_gpu_layers = n_layer, .devices = b->both, .tensor_split = "0,1" },
        { .n_gpu_layers = -1, .devices = b->both },
    };
    for (size_t i = 0; i < sizeof(placements) / sizeof(placements[0]); ++i) {
        struct lrnn_model_params p = placements[i];
        struct log               log = { 0 };
        float                    done = 0.0f;
        p.log = on_log;
        p.log_user = &log;
        p.progress = on_progress;
        p.progress_user = &done;
        struct lrnn_model * model = test_load_model(g->path, &p);
        test_check(b->t, done == 1.0f, "%s: progress does not rise from 0 to 1", name);
        test_check(b->t,
                log.n >= 1 && (strstr(log.text, "CPU") != NULL) ==
                                      (p.n_gpu_layers >= 0 && p.n_gpu_layers <= n_layer),
                "%s, %d layers on devices: unexpected messages: %s", name, p.n_gpu_layers,
                log.text);
        for (int d = 0; d < 2 && i == 4; ++d) {
            test_check(b->t, strstr(log.text, b->names[d]) != NULL, "%s: no layers on %s: %s", name,
                    b->names[d], log.text);
        }
        test_check(b->t, i != 5 || strstr(log.text, b->names[0]) == NULL,
                "%s: layers on a device with share 0: %s", name, log.text);

        run(b, model, g, got); // writes the state file
        test_check(b->t,
                got->n == expected->n &&
                        memcmp(got->logits, expected->logits, sizeof(got->logits)) == 0,
                "%s, placement %zu: the logits differ from those of the CPU", name, i);
        resume(b, local, g, got);
        test_check(b->t,
                memcmp(got->logits[0], expected->logits[expected->n - STEPS],
                        STEPS * sizeof(got->logits[0])) == 0,
                "%s, placement %zu: a state of the devices differs on the CPU", name, i);
        resume(b, model, g, got);
        test_check(b->t,
                memcmp(got->logits[0], expected->logits[expected->n - STEPS],
                        STEPS * sizeof(got->logits[0])) == 0,
                "%s, placement %zu: a state of the devices differs on the devices", name, i);
        lrnn_model_free(model);
    }
    lrnn_model_free(local);
    free(expected);
    free(got);
}

// The trace has the same values on all devices: a sum over k of every layer.
static bool add_keys(const struct lrnn_trace_event * w, void * user) {
    const struct lrnn_trace_tensor * k = lrnn_trace_find(w, "k");
    for (int64_t i = 0; k != NULL && i < k->ne[0] * k->ne[1] * k->ne[2] * k->ne[3]; ++i) {
        *(double *) user += (double) k->data[i] * (double) (i + 1);
    }
    return true;
}

static void test_trace(struct bench * b) {
    const struct golden * g = golden_find(&b->golden, "gated_deltanet_gqa");
    double                sum[2] = { 0.0, 0.0 };
    for (int i = 0; i < 2; ++i) {
        const struct lrnn_model_params   where = { .n_gpu_layers = -i, .devices = b->both };
        const struct lrnn_session_params p = { .n_threads = 1,
            .trace_kinds = LRNN_TRACE_SCANS,
            .trace = add_keys,
            .trace_user = &sum[i] };
        struct lrnn_model *              model = test_load_model(g->path, &where);
        struct lrnn_session *            s = test_session(model, &p);
        struct result                    r = { 0 };
        eval(b, s, 0, g->tokens, PROMPT, g->n_vocab, &r);
        lrnn_session_free(s);
        lrnn_model_free(model);
    }
    test_check(b->t, sum[0] != 0.0 && sum[0] == sum[1],
            "the trace sums to %g on the CPU and to %g on devices", sum[0], sum[1]);
}

static void test_invalid(struct bench * b) {
    const struct {
        const char *devices, *split, *word;
    } cases[] = {
        { "no-such-device", NULL, "no-such-device" },
        { NULL, "x", "split" },
        { NULL, "1", "split" },
        { NULL, "1,2,3", "split" },
        { NULL, "1,-2", "split" },
        { NULL, "0,0", "zero" },
    };
    const char *      path = b->golden.models[0].path;
    char              list[256];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const struct lrnn_model_params p = {
            .n_gpu_layers = -1,
            .devices = cases[i].devices != NULL ? cases[i].devices : b->both,
            .tensor_split = cases[i].split,
        };
        test_check(b->t,
                !lrnn_model_params_check(&p, &err) && strstr(err.text, cases[i].word) != NULL,
                "case %zu: expected an error with '%s': %s", i, cases[i].word, err.text);
        test_check(b->t,
                lrnn_model_load(path, &p, &err) == NULL && strstr(err.text, cases[i].word) != NULL,
                "case %zu: expected an error with '%s' in loading: %s", i, cases[i].word, err.text);
    }
    struct lrnn_model_params p = { .n_gpu_layers = -1, .devices = list };
    snprintf(list, sizeof(list), "%s,%s", b->names[0], b->names[0]);
    test_check(b->t, !lrnn_model_params_check(&p, &err) && strstr(err.text, "twice") != NULL,
            "a device is accepted twice: %s", err.text);
    snprintf(list, sizeof(list), "CPU,%s", b->names[0]);
    test_check(b->t, !lrnn_model_params_check(&p, &err) && strstr(err.text, "alone") != NULL,
            "the CPU is accepted with other devices: %s", err.text);
    p.devices = "CPU";
    test_check(
            b->t, lrnn_model_params_check(&p, &err), "the CPU alone is not accepted: %s", err.text);
    p = (struct lrnn_model_params) {
        .n_gpu_layers = -1, .devices = b->both, .progress = stop_at_once
    };
    test_check(b->t, lrnn_model_load(path, &p, &err) == NULL && strstr(err.text, "stopped") != NULL,
            "loading is not stopped: %s", err.text);
}

int main(void) {
    struct test            t = { 0 };
    struct bench           b = { .t = &t };
    struct loopback_server servers[2];

    for (int i = 0; i < 2; ++i) { // forks: before there are threads
        if (!loopback_server_start(&servers[i])) {
            printf("FAILED: cannot start a server on the loopback\n");
            return 1;
        }
    }
    for (int i = 0; i < 2; ++i) {
        ggml_backend_reg_t reg = ggml_backend_rpc_add_server(servers[i].endpoint);
        ggml_backend_register(reg);
        snprintf(b.names[i], sizeof(b.names[i]), "%s",
                ggml_backend_dev_name(ggml_backend_reg_dev_get(reg, 0)));
    }
    snprintf(b.both, sizeof(b.both), "%s,%s", b.names[0], b.names[1]);
    test_own_path(b.state_path, sizeof(b.state_path), "test-devices.state");

    golden_list_load(&b.golden);
    for (int i = 0; i < b.golden.n; ++i) {
        test_model(&b, &b.golden.models[i]);
    }
    test_trace(&b);
    test_invalid(&b);
    remove(b.state_path);
    golden_list_free(&b.golden);
    loopback_server_stop(&servers[0]);
    loopback_server_stop(&servers[1]);
    return test_end(&t, "test-devices");
}
