#include "device-options.h"

#include "base/error.h"

#include "backends.h"
#include "load-model.h"
#include "program.h"
#include "rpc-client.h"

#include <string.h>

bool device_options_check(const struct device_options * o, struct lrnn_error * err) {
    char reason[600];

    backends_start();
    if (o->rpc != NULL && !rpc_client_connect(o->rpc, o->rpc_timeout, err)) {
        return false;
    }
    if (lrnn_model_params_check(&o->model, err)) {
        return true;
    }
    if (o->model.devices != NULL && strstr(o->model.devices, "CUDA") != NULL &&
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
    if (is_reported || o->model.n_gpu_layers == 0 || o->model.devices != NULL ||
            backends_have_gpu()) {
        return;
    }
    if (!backends_why_no_gpu(reason, sizeof(reason)) && o->model.n_gpu_layers < 0) {
        return; // by default, a build for the CPU offloads nothing
    }
    program_say("%s; everything runs on the CPU", reason);
    is_reported = true;
}

struct lrnn_model * device_options_load(
        const struct device_options * o, const char * path, bool quiet, struct lrnn_error * err) {
    struct lrnn_model * model = load_model_with(path, &o->model, quiet, o->verbose, err);
    if (model != NULL && !quiet) {
        report_missing_gpu(o);
    }
    return model;
}
