#include "model/load-tensors.h"

#include "base/error.h"
#include "model/weights.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void shape_text(int n_dims, const int64_t * ne, bool any, char * text, size_t size) {
    int n = snprintf(text, size, "[");
    for (int i = 0; i < n_dims && n >= 0 && (size_t) n < size; ++i) {
        n += any && ne[i] == 0 ? snprintf(text + n, size - (size_t) n, "%sany", i > 0 ? ", " : "")
                               : snprintf(text + n, size - (size_t) n, "%s%" PRId64,
                                         i > 0 ? ", " : "", ne[i]);
    }
    if (n >= 0 && (size_t) n < size) {
        snprintf(text + n, size - (size_t) n, "]");
    }
}

// Checks type and values. The values of large matrices are not read.
static bool check_numbers(struct loader * l, const struct model_tensor * t, int need) {
    const size_t small = 1 << 20;
    if ((need & TENSOR_F32) && t->type != GGML_TYPE_F32) {
        return loader_fail(
                l, "tensor %s has type %s; expected f32", t->name, ggml_type_name(t->type));
    }
    // ggml multiplies exactly the types that it can turn into F32
    if (t->type != GGML_TYPE_F32 && ggml_get_type_traits(t->type)->to_float == NULL) {
        return loader_fail(l,
                "tensor %s has type %s; expected f32, f16, bf16, q8_0 or another type that ggml "
                "multiplies",
                t->name, ggml_type_name(t->type));
    }
    if (t->type != GGML_TYPE_F32 || (!(need & TENSOR_F32) && t->size > small)) {
        return true;
    }
    float         found = 0.0f;
    const float   min = need & TENSOR_SHARE ? 0.0f : -FLT_MAX;
    const float   max = need & TENSOR_SHARE ? 1.0f : need & TENSOR_DECAY ? 0.0f : FLT_MAX;
    const int64_t at = model_tensor_outside(t, min, max, &found);
    return at < 0 ||
           loader_fail(l, "tensor %s has %g as element %" PRId64 "; expected finite numbers%s",
                   t->name, (double) found, at,
                   need & TENSOR_SHARE   ? " from 0 to 1"
                   : need & TENSOR_DECAY ? ", none above 0"
                                         : "");
}

// Whether a tensor with the dimensions ne of the file has the expected shape, which replaces ne.
// Dimensions of 1 do not count: llama.cpp writes {W, 1, C} for {W, C} and {1, H} for {H}.
static bool fit_shape(int64_t ne[GGML_MAX_DIMS], int n_dims, const int64_t * expected) {
    int64_t shape[GGML_MAX_DIMS] = { 1, 1, 1, 1 };
    int     at = 0; // in ne
    for (int i = 0; i < n_dims; ++i) {
        while (at < GGML_MAX_DIMS && ne[at] == 1 && expected[i] > 1) {
            ++at;
        }
        const int64_t found = at < GGML_MAX_DIMS ? ne[at] : 1;
        shape[i] = expected[i] == 1 ? 1 : found;
        if (expected[i] > 1 && found != expected[i]) {
            return false;
        }
        at += expected[i] != 1 || found == 1;
    }
    while (at < GGML_MAX_DIMS && ne[at] == 1) {
        ++at;
    }
    memcpy(ne, shape, sizeof(shape));
    return at == GGML_MAX_DIMS;
}

struct ggml_tensor * loader_tensor_nd(struct loader * l, int32_t il, const char * name, int need,
        int n_dims, const int64_t * ne) {
    if (l->failed) {
        return NULL;
    }
    char full[GGML_MAX_NAME];
    if (il >= 0) {
        snprintf(full, sizeof(full), "blk.%d.%s", il, name);
    } else {
        snprintf(full, sizeof(full), "%s", name);
    }
    const struct model_tensor * t = model_file_use_tensor(l->file, full);
    if (t == NULL) {
        if (!(need & TENSOR_OPTIONAL)) {
            loader_fail(l, "tensor %s is missing", full);
        }
        return NULL;
    }
    int64_t shape[GGML_MAX_DIMS];
    memcpy(shape, t->ne, sizeof(shape));
    if (!fit_shape(shape, n_dims, ne)) {
        char found[96], wanted[96];
        shape_text(t->n_dims, t->ne, false, found, sizeof(found));
        shape_text(n_dims, ne, true, wanted, sizeof(wanted));
        loader_fail(l, "tensor %s has shape %s; expected %s", full, found, wanted);
        return NULL;
    }
    if (!check_numbers(l, t, need)) {
        return NULL;
    }
    return weights_add(l, l->device, full, n_dims, shape);
}

struct ggml_tensor * loader_tensor_1d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0) {
    return loader_tensor_nd(l, il, name, need, 1, &ne0);
}

struct ggml_tensor * loader_tensor_2d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0, int64_t ne1) {
    return loader_tensor_nd(l, il, name, need, 2, (const int64_t[2]) { ne0, ne1 });
}

void loader_skip_layers(struct loader * l, int32_t first, int64_t n) {
    int64_t n_skipped = 0;
    for (size_t i = 0; i < model_file_n_tensors(l->file) && n > 0 && !l->failed; ++i) {
        const char * name = model_file_tensor(l->file, i)->name;
        char *       end;
        if (strncmp(name, "blk.", 4) != 0) {
            continue;
        }
        const long il = strtol(name + 4, &end, 10);
        if (*end == '.' && il >= first && il < first + n) {
            model_file_use_tensor(l->file, name);
            ++n_skipped;
        }
    }
    if (n_skipped > 0 && l->model->log != NULL) {
        char text[128];
        snprintf(text, sizeof(text),
                "%" PRId64 " tensors for the prediction of several tokens are not used", n_skipped);
        l->model->log(LRNN_LOG_INFO, text, l->model->log_user);
    }
}

bool loader_all_used(struct loader * l) {
    struct lrnn_error why;
    if (!l->failed && !model_file_all_used(l->file, &why)) {
        l->failed = true;
        error_set(l->err, why.kind, "%s", why.text);
    }
    return !l->failed;
}

int32_t loader_state(struct loader * l, struct layer * layer, int64_t size) {
    if (layer->n_states == LAYER_STATES_MAX) {
        loader_fail(l, "a layer of family %s has more than %d states", l->model->info.family,
                LAYER_STATES_MAX);
        return 0;
    }
    layer->state_size[layer->n_states] = size;
    return layer->n_states++;
}

void loader_recurrence(struct loader * l, struct layer * layer, int64_t n_head, int64_t d_k,
        int64_t d_v, int64_t extra) {
    loader_state(l, layer, n_head * (d_k * d_v + extra));
    layer->n_head = n_head;
    layer->matrix_size = d_k * d_v;
    l->model->info.n_head = n_head;
    l->model->info.d_k = d_k;
    l->model->info.d_v = d_v;
}
