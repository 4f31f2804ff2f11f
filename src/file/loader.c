#include "file/loader.h"

#include "base/arena.h"
#include "file/model-file.h"
#include "run/weights.h"

#include "ggml-cpu.h"

#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

const char * loader_key(struct loader * l, const char * name) {
    snprintf(l->key, sizeof(l->key), "%s.%s", l->arch, name);
    return l->key;
}

// Returns whether there is a value. `why` is the error of model-file.c, which names file and key.
static bool has_value(struct loader * l, enum key_status status, bool required, const char * why) {
    if (status == KEY_BAD || (status == KEY_ABSENT && required)) {
        l->failed = true;
        snprintf(l->err, l->err_size, "%s", why);
    }
    return status == KEY_OK;
}

static int64_t get_int(struct loader * l, const char * key, int64_t min, int64_t max, bool required,
        int64_t value) {
    char why[512];
    if (!l->failed) {
        has_value(l, model_file_int(l->model->file, key, min, max, &value, why, sizeof(why)),
                required, why);
    }
    return value;
}

int64_t loader_int(struct loader * l, const char * key, int64_t min, int64_t max) {
    return get_int(l, key, min, max, true, min);
}

int64_t loader_int_or(
        struct loader * l, const char * key, int64_t min, int64_t max, int64_t absent) {
    return get_int(l, key, min, max, false, absent);
}

static float get_float(
        struct loader * l, const char * key, float min, float max, bool required, float absent) {
    double value = (double) absent;
    char   why[512];
    if (!l->failed) {
        has_value(l,
                model_file_float(
                        l->model->file, key, (double) min, (double) max, &value, why, sizeof(why)),
                required, why);
    }
    return (float) value;
}

float loader_float(struct loader * l, const char * key, float min, float max) {
    return get_float(l, key, min, max, true, min);
}

float loader_float_or(struct loader * l, const char * key, float min, float max, float absent) {
    return get_float(l, key, min, max, false, absent);
}

int loader_flag(struct loader * l, const char * key) {
    bool value = false;
    char why[512];
    return !l->failed && has_value(l,
                                 model_file_bool(l->model->file, key, &value, why, sizeof(why)),
                                 false, why)
                   ? value
                   : -1;
}

bool loader_bool_or(struct loader * l, const char * key, bool absent) {
    const int flag = loader_flag(l, key);
    return flag < 0 ? absent : flag != 0;
}

static const char * get_string(
        struct loader * l, const char * key, bool required, const char * absent) {
    struct slice text;
    char         why[512];
    if (l->failed || !has_value(l, model_file_text(l->model->file, key, &text, why, sizeof(why)),
                             required, why)) {
        return absent;
    }
    if (memchr(text.data, '\0', text.size) != NULL) {
        loader_fail(l, "key '%s' contains a NUL byte; expected text without one", key);
        return absent;
    }
    char * s = loader_alloc(l, text.size + 1); // zeroed, so the copy is terminated
    if (s == NULL) {
        return absent;
    }
    memcpy(s, text.data, text.size);
    return s;
}

const char * loader_string(struct loader * l, const char * key) {
    return get_string(l, key, true, "");
}

const char * loader_string_or(struct loader * l, const char * key, const char * absent) {
    return get_string(l, key, false, absent);
}

static int get_word(
        struct loader * l, const char * key, const char * const * words, bool required, int value) {
    char why[512];
    if (!l->failed) {
        has_value(l, model_file_choice(l->model->file, key, words, &value, why, sizeof(why)),
                required, why);
    }
    return value;
}

int loader_word(struct loader * l, const char * key, const char * const * words) {
    return get_word(l, key, words, true, 0);
}

int loader_word_or(struct loader * l, const char * key, const char * const * words, int absent) {
    return get_word(l, key, words, false, absent);
}

bool loader_multiple(
        struct loader * l, const char * key, int64_t value, const char * of, int64_t n) {
    if (!l->failed && value % n != 0) {
        loader_fail(l, "key '%s' is %" PRId64 "; expected a multiple of %s = %" PRId64, key, value,
                of, n);
    }
    return !l->failed;
}

bool loader_divisor(
        struct loader * l, const char * key, int64_t value, const char * of, int64_t n) {
    if (!l->failed && n % value != 0) {
        loader_fail(l, "key '%s' is %" PRId64 "; expected a divisor of %s = %" PRId64, key, value,
                of, n);
    }
    return !l->failed;
}

// Allocates memory for the elements of an array and sets *n to their number; NULL and 0 if there is
// no array.
static void * alloc_array(struct loader * l, const char * key, enum key_status status,
        const char * why, const struct model_key * array, size_t size, size_t * n) {
    *n = 0;
    if (!has_value(l, status, false, why)) {
        return NULL;
    }
    void * elements = malloc((array->n + 1) * size); // + 1: never empty, so that NULL is an error
    if (elements == NULL) {
        loader_fail(l, "out of memory for the %zu elements of key '%s'", array->n, key);
        return NULL;
    }
    *n = array->n;
    return elements;
}

struct slice * loader_strings(struct loader * l, const char * key, size_t * n) {
    const struct model_key * array = NULL;
    char                     why[512];
    enum key_status          status = KEY_ABSENT;
    if (!l->failed) {
        status = model_file_texts(l->model->file, key, &array, why, sizeof(why));
    }
    struct slice * strings = alloc_array(l, key, status, why, array, sizeof(*strings), n);
    for (size_t i = 0; i < *n; ++i) {
        strings[i] = model_key_text(array, i);
    }
    return strings;
}

int32_t * loader_ints(struct loader * l, const char * key, int32_t min, int32_t max, size_t * n) {
    const struct model_key * array = NULL;
    char                     why[512];
    enum key_status          status = KEY_ABSENT;
    if (!l->failed) {
        status = model_file_ints(l->model->file, key, min, max, &array, why, sizeof(why));
    }
    int32_t * ints = alloc_array(l, key, status, why, array, sizeof(*ints), n);
    for (size_t i = 0; i < *n; ++i) {
        ints[i] = (int32_t) model_key_int(array, i);
    }
    return ints;
}

float * loader_floats(struct loader * l, const char * key, float min, float max, size_t * n) {
    const struct model_key * array = NULL;
    char                     why[512];
    enum key_status          status = KEY_ABSENT;
    if (!l->failed) {
        status = model_file_floats(
                l->model->file, key, (double) min, (double) max, &array, why, sizeof(why));
    }
    float * floats = alloc_array(l, key, status, why, array, sizeof(*floats), n);
    for (size_t i = 0; i < *n; ++i) {
        floats[i] = (float) model_key_float(array, i);
    }
    return floats;
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

// Checks type and values. The values of large matrices are not read.
static bool check_numbers(struct loader * l, const struct model_tensor * t, int need) {
    const size_t small = 1 << 20;
    if ((need & TENSOR_F32) && t->type != GGML_TYPE_F32) {
        return loader_fail(
                l, "tensor %s has type %s; expected f32", t->name, ggml_type_name(t->type));
    }
    if (ggml_get_type_traits_cpu(t->type)->vec_dot == NULL ||
            (t->type != GGML_TYPE_F32 && ggml_get_type_traits(t->type)->to_float == NULL)) {
        return loader_fail(l,
                "tensor %s has type %s; expected f32, f16, bf16, q8_0 or another type that ggml "
                "multiplies",
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

void loader_skip_layers(struct loader * l, int32_t first, int64_t n) {
    int64_t n_skipped = 0;
    for (size_t i = 0; i < model_file_n_tensors(l->model->file) && n > 0 && !l->failed; ++i) {
        const char * name = model_file_tensor(l->model->file, i)->name;
        char *       end;
        if (strncmp(name, "blk.", 4) != 0) {
            continue;
        }
        const long il = strtol(name + 4, &end, 10);
        if (*end == '.' && il >= first && il < first + n) {
            model_file_use_tensor(l->model->file, name);
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
    char why[512];
    if (!l->failed && !model_file_all_used(l->model->file, why, sizeof(why))) {
        l->failed = true;
        snprintf(l->err, l->err_size, "%s", why);
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
    l->model->info.n_head = n_head;
    l->model->info.d_k    = d_k;
    l->model->info.d_v    = d_v;
}
