#include "device-options.h"

#include "base/error.h"

#include "backends.h"
#include "load-model.h"
#include "program.h"
#include "rpc-client.h"

#include <string.h>

static struct lrnn_model_params model_params(const struct device_options * o) {
    return (struct lrnn_model_params) { .n_gpu_layers = (int32_t) o->n_gpu_layers,
        .devices = o->devices,
        .tensor_split = o->split,
        .no_huge_pages = o->no_huge_pages };
}

struct lrnn_session_params device_session_params(const struct device_options * o) {
    return (struct lrnn_session_params) {
        .n_threads = (int32_t) o->threads,
        .cache_type = (enum lrnn_cache_type) o->cache_type,
    };
}

bool device_options_check(const struct device_options * o, struct lrnn_error * err) {
    const struct lrnn_model_params params = model_params(o);
    char                           reason[600];

    backends_start();
    if (o->rpc != NULL && !rpc_client_connect(o->rpc, o->rpc_timeout, err)) {
        return false;
    }
    if (lrnn_model_params_check(&params, err)) {
        return true;
    }
    if (o->devices != NULL && strstr(o->devices, "CUDA") != NULL &&
            backends_why_no_gpu(reason, sizeof(reason))) {
        const struct lrnn_error why = *err;
        error_set(err, why.kind, "%s; %s", why.text, reason);
    }
    return false;
}

// Tells users who have a build for GPUs, or ask for one, that there is none. Once per process, even
// if several models are loaded.
static void report_missing_gpu(const struct device_options * o) {
    static bool is_reported;
    char        reason[600] = "no GPU was found";
    if (is_reported || o->n_gpu_layers == 0 || o->devices != NULL || backends_have_gpu()) {
        return;
    }
    if (!backends_why_no_gpu(reason, sizeof(reason)) && o->n_gpu_layers < 0) {
        return; // by default, a build for the CPU offloads nothing
    }
    program_say("%s; everything runs on the CPU", reason);
    is_reported = true;
}

struct lrnn_model * device_options_load(
        const struct device_options * o, const char * path, bool quiet, struct lrnn_error * err) {
    const struct lrnn_model_params params = model_params(o);
    struct lrnn_model *            model = load_model_with(path, &params, quiet, o->verbose, err);
    if (model != NULL && !quiet) {
        report_missing_gpu(o);
    }
    return model;
}
