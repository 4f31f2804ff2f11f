// Opens and closes a model.

#include "model/model.h"

#include "base/error.h"
#include "base/arena.h"
#include "model/load-tensors.h"
#include "file/model-file.h"
#include "model/weights.h"
#include "text/tokenizer.h"

#include <stdlib.h>

struct lrnn_model * lrnn_model_load(
        const char * path, const struct lrnn_model_params * params, struct lrnn_error * err) {
    struct lrnn_model * model = calloc(1, sizeof(*model));
    struct arena *      arena = arena_new();
    if (model == NULL || arena == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
        free(model);
        arena_free(arena);
        return NULL;
    }
    if (params != NULL) {
        model->log = params->log;
        model->log_user = params->log_user;
    }
    model->arena = arena;
    model->file = model_file_open(path, err);

    struct loader l = {
        .file = model->file,
        .arena = arena,
        .model = model,
        .err = err,
    };
    if (model->file == NULL || !model_load(&l, params)) {
        lrnn_model_free(model);
        return NULL;
    }
    return model;
}

void lrnn_model_free(struct lrnn_model * model) {
    if (model == NULL) {
        return;
    }
    tokenizer_free(model->tokenizer);
    weights_free(model);
    model_file_free(model->file);
    arena_free(model->arena);
    free(model);
}
