#include "compute.h"

#include "load-model.h"
#include "rpc-client.h"

#include <string.h>

static struct lrnn_model_params params_of(const struct compute * c) {
    return (struct lrnn_model_params) { .n_gpu_layers = (int32_t) c->n_gpu_layers, .devices = c->devices, .split = c->split };
}

int compute_options(struct compute * c, struct option * options) {
    const struct option table[] = { COMPUTE_OPTIONS(*c) };
    _Static_assert(sizeof(table)/sizeof(table[0]) == COMPUTE_N_OPTIONS, "the number in compute.h");
    memcpy(options, table, sizeof(table));
    return COMPUTE_N_OPTIONS;
}

bool compute_check(const struct compute * c, const char * program, char * err, size_t err_size) {
    const struct lrnn_model_params params = params_of(c);
    load_model_hush_ggml();
    if (c->rpc != NULL && !rpc_client_connect(c->rpc, program, c->rpc_timeout, err, err_size)) {
        return false;
    }
    return lrnn_model_params_check(&params, err, err_size);
}

struct lrnn_model * compute_load(const struct compute * c, const char * program, const char * path, bool quiet) {
    const struct lrnn_model_params params = params_of(c);
    return load_model_on(program, path, &params, quiet, c->verbose);
}
