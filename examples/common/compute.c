#include "compute.h"

#include "load-model.h"

static struct lrnn_model_params params_of(const struct compute * c) {
    return (struct lrnn_model_params) { .n_gpu_layers = (int32_t) c->n_gpu_layers, .devices = c->devices, .split = c->split };
}

bool compute_check(const struct compute * c, char * err, size_t err_size) {
    const struct lrnn_model_params params = params_of(c);
    return lrnn_model_params_check(&params, err, err_size);
}

struct lrnn_model * compute_load(const struct compute * c, const char * program, const char * path, bool quiet) {
    const struct lrnn_model_params params = params_of(c);
    return load_model_on(program, path, &params, quiet, c->verbose);
}
