#include "file/loader.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool loader_fail(struct loader * l, const char * fmt, ...) {
    if (!l->failed) {
        l->failed = true;
        va_list args;
        va_start(args, fmt);
        error_set_args(l->err, LRNN_ERROR_BAD_MODEL, fmt, args);
        va_end(args);
        error_prefix(l->err, "%s", model_file_path(l->file));
    }
    return false;
}

bool loader_fail_with(struct loader * l, const struct lrnn_error * why, const char * what) {
    if (!l->failed) {
        l->failed = true;
        error_set(l->err, why->kind, "%s: %s%s%s", model_file_path(l->file),
                what != NULL ? what : "", what != NULL ? ": " : "", why->text);
    }
    return false;
}

bool loader_no_memory(struct loader * l, size_t n, const char * what) {
    struct lrnn_error why;
    error_no_memory(&why, "%zu %s", n, what);
    return loader_fail_with(l, &why, NULL);
}

void * loader_alloc(struct loader * l, size_t size) {
    void * p = l->failed ? NULL : arena_alloc(l->arena, size);
    if (p == NULL) {
        loader_no_memory(l, size, "bytes");
    }
    return p;
}

// ---- Keys ---------------------------------------------------------------------------------------

const char * loader_key(struct loader * l, const char * name) {
    char * key = l->keys[l->n_keys++ % 4];
    snprintf(key, sizeof(l->keys[0]), "%s.%s", l->arch, name);
    return key;
}

// Returns whether there is a value. `why` is the error of model-file.c, which names file and key.
static bool has_value(
        struct loader * l, enum key_status status, bool required, const struct lrnn_error * why) {
    if (status == KEY_BAD || (status == KEY_ABSENT && required)) {
        l->failed = true;
        error_set(l->err, why->kind, "%s", why->text);
    }
    return status == KEY_OK;
}

static int64_t get_int(struct loader * l, const char * key, int64_t min, int64_t max, bool required,
        int64_t value) {
    struct lrnn_error why;
    if (!l->failed) {
        has_value(l, model_file_int(l->file, key, min, max, &value, &why), required, &why);
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

int64_t loader_int_at(
        struct loader * l, const char * key, size_t i, int64_t min, int64_t max, int64_t absent) {
    const struct model_key * found = model_file_find_key(l->file, key);
    const int64_t            value = absent < min ? min : absent;
    struct lrnn_error        why;
    if (found == NULL || !found->is_array) {
        return get_int(l, key, min, max, absent < min, value);
    }
    if (l->failed ||
            !has_value(l, model_file_ints(l->file, key, INT64_MIN, INT64_MAX, &found, &why), true,
                    &why)) {
        return value;
    }
    if (i >= found->n) {
        loader_fail(l, "key '%s' has %zu elements; expected at least %zu", key, found->n, i + 1);
        return value;
    }
    const int64_t element = model_key_int(found, i);
    if (element < min || element > max) {
        loader_fail(l, "key '%s' has element %zu = %" PRId64 "; expected %" PRId64 " to %" PRId64,
                key, i, element, min, max);
        return value;
    }
    return element;
}

static float get_float(
        struct loader * l, const char * key, float min, float max, bool required, float absent) {
    double            value = (double) absent;
    struct lrnn_error why;
    if (!l->failed) {
        has_value(l, model_file_float(l->file, key, (double) min, (double) max, &value, &why),
                required, &why);
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
    bool              value = false;
    struct lrnn_error why;
    return !l->failed && has_value(l, model_file_bool(l->file, key, &value, &why), false, &why)
                   ? value
                   : -1;
}

bool loader_bool_or(struct loader * l, const char * key, bool absent) {
    const int flag = loader_flag(l, key);
    return flag < 0 ? absent : flag != 0;
}

static const char * get_string(
        struct loader * l, const char * key, bool required, const char * absent) {
    struct slice      text;
    struct lrnn_error why;
    if (l->failed || !has_value(l, model_file_text(l->file, key, &text, &why), required, &why)) {
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
    struct lrnn_error why;
    if (!l->failed) {
        has_value(l, model_file_choice(l->file, key, words, &value, &why), required, &why);
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

// Finds an array and allocates memory for its elements; NULL and 0 if there is none.
static void * get_array(struct loader * l, const char * key, enum lrnn_key_kind kind, double min,
        double max, size_t size, const struct model_key ** array, size_t * n) {
    struct lrnn_error why;
    enum key_status   status = KEY_ABSENT;
    *n = 0;
    if (!l->failed) {
        status = kind == LRNN_KEY_INT
                         ? model_file_ints(l->file, key, (int64_t) min, (int64_t) max, array, &why)
                 : kind == LRNN_KEY_FLOAT ? model_file_floats(l->file, key, min, max, array, &why)
                                          : model_file_texts(l->file, key, array, &why);
    }
    if (l->failed || !has_value(l, status, false, &why)) {
        return NULL;
    }
    void * elements =
            malloc(((*array)->n + 1) * size); // + 1: never empty, so that NULL is an error
    if (elements == NULL) {
        loader_no_memory(l, (*array)->n, "elements of an array");
        return NULL;
    }
    *n = (*array)->n;
    return elements;
}

struct slice * loader_strings(struct loader * l, const char * key, size_t * n) {
    const struct model_key * array;
    struct slice * strings = get_array(l, key, LRNN_KEY_STRING, 0, 0, sizeof(*strings), &array, n);
    for (size_t i = 0; i < *n; ++i) {
        strings[i] = model_key_text(array, i);
    }
    return strings;
}

int32_t * loader_ints(struct loader * l, const char * key, int32_t min, int32_t max, size_t * n) {
    const struct model_key * array;
    int32_t * ints = get_array(l, key, LRNN_KEY_INT, min, max, sizeof(*ints), &array, n);
    for (size_t i = 0; i < *n; ++i) {
        ints[i] = (int32_t) model_key_int(array, i);
    }
    return ints;
}

float * loader_floats(struct loader * l, const char * key, float min, float max, size_t * n) {
    const struct model_key * array;
    float *                  floats = get_array(
            l, key, LRNN_KEY_FLOAT, (double) min, (double) max, sizeof(*floats), &array, n);
    for (size_t i = 0; i < *n; ++i) {
        floats[i] = (float) model_key_float(array, i);
    }
    return floats;
}
