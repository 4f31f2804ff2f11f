#include "compute.h"

#include "cuda-card.h"
#include "load-model.h"
#include "program.h"
#include "rpc-client.h"

#include "ggml-backend.h"

#include <stdio.h>
#include <string.h>

static struct lrnn_model_params params_of(const struct compute * c) {
    return (struct lrnn_model_params) {
        .n_gpu_layers = (int32_t) c->n_gpu_layers, .devices = c->devices, .tensor_split = c->split
    };
}

int compute_options(struct compute * c, struct option * options) {
    const struct option table[] = { COMPUTE_OPTIONS(*c) };
    _Static_assert(
            sizeof(table) / sizeof(table[0]) == COMPUTE_N_OPTIONS, "the number in compute.h");
    memcpy(options, table, sizeof(table));
    return COMPUTE_N_OPTIONS;
}

bool compute_check(const struct compute * c, char * err, size_t err_size) {
    const struct lrnn_model_params params = params_of(c);
    load_model_hush_ggml();
    if (c->rpc != NULL && !rpc_client_connect(c->rpc, c->rpc_timeout, err, err_size)) {
        return false;
    }
    if (lrnn_model_params_check(&params, err, err_size)) {
        return true;
    }
    char missing[320];
    if (c->devices != NULL && strstr(c->devices, "CUDA") != NULL &&
            cuda_card_is_missing(missing, sizeof(missing))) {
        const size_t used = strlen(err);
        snprintf(err + used, err_size - used, "; %s", missing);
    }
    return false;
}

static bool has_gpu(void) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != NULL ||
           ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU) != NULL;
}

// Whoever has a build for GPUs, or asks for one, learns that there is none: once, however many
// models are loaded.
static void say_what_is_missing(const struct compute * c) {
    static bool is_said;
    char        missing[320] = "no GPU was found";
    if (is_said || c->n_gpu_layers == 0 || c->devices != NULL || has_gpu()) {
        return;
    }
    if (!cuda_card_is_missing(missing, sizeof(missing)) &&
            c->n_gpu_layers < 0) { // as many layers as fit: none, in a build for the CPU
        return;
    }
    program_say("%s; everything runs on the CPU", missing);
    is_said = true;
}

struct lrnn_model * compute_load(const struct compute * c, const char * path, bool quiet) {
    const struct lrnn_model_params params = params_of(c);
    struct lrnn_model *            model  = load_model_on(path, &params, quiet, c->verbose);
    if (model != NULL && !quiet) {
        say_what_is_missing(c);
    }
    return model;
}
