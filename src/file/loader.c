#include "file/loader.h"

#include "base/arena.h"
#include "file/model-file.h"
#include "run/weights.h"

#include "ggml-cpu.h"

#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool loader_fail(struct loader * l, const char * fmt, ...) {
    if (!l->failed) {
        l->failed = true;
        int n     = snprintf(l->err, l->err_size, "%s: ", model_file_path(l->model->file));
        if (n >= 0 && (size_t) n < l->err_size) {
            va_list args;
            va_start(args, fmt);
            vsnprintf(l->err + n, l->err_size - (size_t) n, fmt, args);
            va_end(args);
        }
    }
    return false;
}

void * loader_alloc(struct loader * l, size_t size) {
    void * p = l->failed ? NULL : arena_alloc(l->model->arena, size);
    if (p == NULL) {
        loader_fail(l, "out of memory for %zu bytes", size);
    }
    return p;
}

//
// Keys
//

static void key_of(const struct loader * l, const char * name, char * key, size_t size) {
    snprintf(key, size, "%s.%s", l->arch, name);
}

// An error that the file's reader has already put into words is kept as it is: it names the file
// and the key.
static bool key_ok(struct loader * l, enum key_status status, bool required) {
    if (status == KEY_BAD || (status == KEY_ABSENT && required)) {
        l->failed = true;
    }
    return status == KEY_OK;
}

static int64_t get_int(struct loader * l, const char * name, int64_t min, int64_t max,
        bool required, int64_t value) {
    char key[128];
    key_of(l, name, key, sizeof(key));
    if (!l->failed) {
        char                  why[512];
        const enum key_status status =
                model_file_int(l->model->file, key, min, max, &value, why, sizeof(why));
        if (!key_ok(l, status, required) && l->failed) {
            snprintf(l->err, l->err_size, "%s", why);
        }
    }
    return value;
}

int64_t loader_int(struct loader * l, const char * name, int64_t min, int64_t max) {
    return get_int(l, name, min, max, true, min);
}

int64_t loader_int_or(
        struct loader * l, const char * name, int64_t min, int64_t max, int64_t absent) {
    return get_int(l, name, min, max, false, absent);
}

static float get_float(
        struct loader * l, const char * name, float min, float max, bool required, float absent) {
    char   key[128];
    double value = (double) absent;
    key_of(l, name, key, sizeof(key));
    if (!l->failed) {
        char                  why[512];
        const enum key_status status = model_file_float(
                l->model->file, key, (double) min, (double) max, &value, why, sizeof(why));
        if (!key_ok(l, status, required) && l->failed) {
            snprintf(l->err, l->err_size, "%s", why);
        }
    }
    return (float) value;
}

float loader_float(struct loader * l, const char * name, float min, float max) {
    return get_float(l, name, min, max, true, min);
}

float loader_float_or(struct loader * l, const char * name, float min, float max, float absent) {
    return get_float(l, name, min, max, false, absent);
}

bool loader_bool_or(struct loader * l, const char * name, bool absent) {
    char key[128];
    bool value = absent;
    key_of(l, name, key, sizeof(key));
    if (!l->failed) {
        char why[512];
        if (!key_ok(l, model_file_bool(l->model->file, key, &value, why, sizeof(why)), false) &&
                l->failed) {
            snprintf(l->err, l->err_size, "%s", why);
        }
    }
    return value;
}

static const char * get_string(
        struct loader * l, const char * name, bool required, const char * absent) {
    char key[128];
    key_of(l, name, key, sizeof(key));
    if (l->failed) {
        return absent;
    }
    char         why[512];
    struct slice text;
    if (!key_ok(l, model_file_text(l->model->file, key, &text, why, sizeof(why)), required)) {
        if (l->failed) {
            snprintf(l->err, l->err_size, "%s", why);
        }
        return absent;
    }
    if (memchr(text.data, '\0', text.size) != NULL) {
        loader_fail(l, "key '%s' has a NUL in its text; expected none", key);
        return absent;
    }
    char * s = loader_alloc(l, text.size + 1); // terminated
    if (s != NULL) {
        memcpy(s, text.data, text.size);
    }
    return s != NULL ? s : absent;
}

const char * loader_string(struct loader * l, const char * name) {
    return get_string(l, name, true, "");
}

const char * loader_string_or(struct loader * l, const char * name, const char * absent) {
    return get_string(l, name, false, absent);
}

static int get_word(struct loader * l, const char * name, const char * const * words, bool required,
        int absent) {
    char key[128];
    int  value = absent;
    key_of(l, name, key, sizeof(key));
    if (!l->failed) {
        char why[512];
        if (!key_ok(l, model_file_choice(l->model->file, key, words, &value, why, sizeof(why)),
                    required) &&
                l->failed) {
            snprintf(l->err, l->err_size, "%s", why);
        }
    }
    return value;
}

int loader_word(struct loader * l, const char * name, const char * const * words) {
    return get_word(l, name, words, true, 0);
}

int loader_word_or(struct loader * l, const char * name, const char * const * words, int absent) {
    return get_word(l, name, words, false, absent);
}

//
// Tensors
//

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

// Whether its type is of use, and its numbers finite. Large matrices are not read for that.
static bool check_numbers(struct loader * l, const struct model_tensor * t, int need) {
    const size_t small = 1 << 20;
    if ((need & TENSOR_F32) && t->type != GGML_TYPE_F32) {
        return loader_fail(
                l, "tensor %s has type %s; expected f32", t->name, ggml_type_name(t->type));
    }
    if (ggml_get_type_traits_cpu(t->type)->vec_dot == NULL ||
            (t->type != GGML_TYPE_F32 && ggml_get_type_traits(t->type)->to_float == NULL)) {
        return loader_fail(l,
                "tensor %s has type %s; expected one that ggml multiplies with: f32, f16, bf16, q8_0 and others",
                t->name, ggml_type_name(t->type));
    }
    if (t->type != GGML_TYPE_F32 || (!(need & TENSOR_F32) && t->size > small)) {
        return true;
    }
    float         found = 0.0f;
    const float   min   = need & TENSOR_SHARE ? 0.0f : -FLT_MAX;
    const float   max   = need & TENSOR_SHARE ? 1.0f : need & TENSOR_DECAY ? 0.0f : FLT_MAX;
    const int64_t at    = model_tensor_outside(t, min, max, &found);
    return at < 0 ||
           loader_fail(l, "tensor %s has %g as element %" PRId64 "; expected finite numbers%s",
                   t->name, (double) found, at,
                   need & TENSOR_SHARE   ? " from 0 to 1"
                   : need & TENSOR_DECAY ? ", none above 0"
                                         : "");
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
    const struct model_tensor * t = model_file_use_tensor(l->model->file, full);
    if (t == NULL) {
        if (!(need & TENSOR_OPTIONAL)) {
            loader_fail(l, "tensor %s is missing", full);
        }
        return NULL;
    }
    bool fits = true;
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        fits = fits && (i < n_dims ? ne[i] == 0 || t->ne[i] == ne[i] : t->ne[i] == 1);
    }
    if (!fits) {
        char found[96], wanted[96];
        shape_text(t->n_dims, t->ne, false, found, sizeof(found));
        shape_text(n_dims, ne, true, wanted, sizeof(wanted));
        loader_fail(l, "tensor %s has shape %s; expected %s", full, found, wanted);
        return NULL;
    }
    if (!check_numbers(l, t, need)) {
        return NULL;
    }
    return weights_add(l, l->device, full, n_dims);
}

struct ggml_tensor * loader_tensor_1d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0) {
    return loader_tensor_nd(l, il, name, need, 1, &ne0);
}

struct ggml_tensor * loader_tensor_2d(
        struct loader * l, int32_t il, const char * name, int need, int64_t ne0, int64_t ne1) {
    return loader_tensor_nd(l, il, name, need, 2, (const int64_t[2]) { ne0, ne1 });
}

int32_t loader_state(struct loader * l, struct layer * layer, int64_t size) {
    if (layer->n_states == LAYER_STATES_MAX) {
        loader_fail(l, "a layer of family %s has more than %d states", l->model->family->name,
                LAYER_STATES_MAX);
        return 0;
    }
    layer->state_size[layer->n_states] = size;
    return layer->n_states++;
}

void loader_recurrence(struct loader * l, struct layer * layer, int64_t n_head, int64_t d_k,
        int64_t d_v, int64_t extra) {
    loader_state(l, layer, n_head * (d_k * d_v + extra));
    l->model->info.n_head = n_head;
    l->model->info.d_k    = d_k;
    l->model->info.d_v    = d_v;
}
