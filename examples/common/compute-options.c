#include "compute-options.h"

#include "base/error.h"

#include "backends.h"
#include "load-model.h"
#include "program.h"
#include "rpc-client.h"

#include <string.h>

static struct lrnn_model_params params_of(const struct compute * c) {
    return (struct lrnn_model_params) { .n_gpu_layers = (int32_t) c->n_gpu_layers,
        .devices                                      = c->devices,
        .tensor_split                                 = c->split,
        .no_huge_pages                                = c->no_huge_pages };
}

bool compute_check(const struct compute * c, struct lrnn_error * err) {
    const struct lrnn_model_params params = params_of(c);
    char                           reason[600];

    backends_start();
    if (c->rpc != NULL && !rpc_client_connect(c->rpc, c->rpc_timeout, err)) {
        return false;
    }
    if (lrnn_model_params_check(&params, err)) {
        return true;
    }
    if (c->devices != NULL && strstr(c->devices, "CUDA") != NULL &&
            backends_why_no_gpu(reason, sizeof(reason))) {
        const struct lrnn_error why = *err;
        error_set(err, why.kind, "%s; %s", why.text, reason);
    }
    return false;
}

// Tells users who have a build for GPUs, or ask for one, that there is none. Once per process, even
// if several models are loaded.
static void report_missing_gpu(const struct compute * c) {
    static bool is_reported;
    char        reason[600] = "no GPU was found";
    if (is_reported || c->n_gpu_layers == 0 || c->devices != NULL || backends_have_gpu()) {
        return;
    }
    if (!backends_why_no_gpu(reason, sizeof(reason)) && c->n_gpu_layers < 0) {
        return; // by default, a build for the CPU offloads nothing
    }
    program_say("%s; everything runs on the CPU", reason);
    is_reported = true;
}

struct lrnn_model * compute_load(
        const struct compute * c, const char * path, bool quiet, struct lrnn_error * err) {
    const struct lrnn_model_params params = params_of(c);
    struct lrnn_model *            model  = load_model_with(path, &params, quiet, c->verbose, err);
    if (model != NULL && !quiet) {
        report_missing_gpu(c);
    }
    return model;
}
