#include "kit/model-file-walk.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

// Whether the text is inside the file and valid UTF-8.
static bool text_inside(struct slice text, const char * begin, const char * end) {
    bool       has_control;
    const bool inside = text.size == 0 || (text.data >= begin && text.data < end &&
                                                  text.size <= (size_t) (end - text.data));
    return inside && slice_is_utf8(text, &has_control);
}

static bool walk_key(struct model_file * f, const struct model_key * key, struct lrnn_error * err) {
    size_t            size;
    const char *      begin = model_file_bytes(f, &size);
    const char *      end = begin + size;
    struct lrnn_error why;

    if (!text_inside(key->name, begin, end) || key->name.size == 0) {
        return error_set(err, LRNN_ERROR_BAD_INPUT, "the name of a key is outside the file");
    }
    char * name = malloc(key->name.size + 1);
    if (name == NULL) {
        return true;
    }
    memcpy(name, key->name.data, key->name.size);
    name[key->name.size] = '\0';

    bool ok = model_file_find_key(f, name) == key;

    // exactly one of the eight kinds of access accepts it
    const struct model_key * array = NULL;
    int64_t                  i64;
    double                   f64;
    bool                     flag;
    struct slice             text;
    int                      n_ok = 0;
    n_ok += model_file_text(f, name, &text, &why) == KEY_OK;
    n_ok += model_file_bool(f, name, &flag, &why) == KEY_OK;
    n_ok += model_file_texts(f, name, &array, &why) == KEY_OK;
    n_ok += model_file_bools(f, name, &array, &why) == KEY_OK;
    const bool is_plain = n_ok == 1;
    n_ok += model_file_int(f, name, INT64_MIN, INT64_MAX, &i64, &why) == KEY_OK;
    n_ok += model_file_ints(f, name, INT64_MIN, INT64_MAX, &array, &why) == KEY_OK;
    n_ok += model_file_float(f, name, -1e308, 1e308, &f64, &why) == KEY_OK;
    n_ok += model_file_floats(f, name, -1e308, 1e308, &array, &why) == KEY_OK;
    ok = ok && n_ok <= 1 && (n_ok == 1 || !is_plain) && (array == NULL || array == key);

    for (size_t i = 0; ok && i <= key->n; ++i) {
        model_key_int(key, i);
        model_key_float(key, i);
        model_key_bool(key, i);
        ok = text_inside(model_key_text(key, i), begin, end);
    }
    free(name);
    return ok || error_set(err, LRNN_ERROR_BAD_INPUT, "a key of type %s is inconsistent",
                         gguf_index_type_name(key->type));
}

static bool walk_tensor(
        struct model_file * f, const struct model_tensor * t, struct lrnn_error * err) {
    size_t                size;
    const unsigned char * begin = model_file_bytes(f, &size);

    if (t->data != begin + t->offset || t->offset > size || t->size > size - t->offset ||
            t->offset % model_file_alignment(f) != 0) {
        return error_set(err, LRNN_ERROR_BAD_INPUT, "tensor '%s' is outside the file", t->name);
    }
    // compute the size in double, without overflow
    double bytes = (double) ggml_type_size(t->type) / (double) ggml_blck_size(t->type);
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        if (t->ne[d] < 1) {
            return error_set(err, LRNN_ERROR_BAD_INPUT, "tensor '%s' has no elements", t->name);
        }
        bytes *= (double) t->ne[d];
    }
    if (bytes != (double) t->size || t->ne[0] % ggml_blck_size(t->type) != 0) {
        return error_set(err, LRNN_ERROR_BAD_INPUT,
                "tensor '%s' has %zu bytes, but its shape has %.0f", t->name, t->size, bytes);
    }
    if (model_file_find_tensor(f, t->name) != t || t->used ||
            model_file_use_tensor(f, t->name) != t || !t->used) {
        return error_set(
                err, LRNN_ERROR_BAD_INPUT, "tensor '%s' is not found by its name", t->name);
    }
    return true;
}

static void no_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

static bool walk_like_ggml(struct model_file * f, struct lrnn_error * err) {
    size_t       size;
    const void * bytes = model_file_bytes(f, &size);
    ggml_log_set(no_log, NULL);
    struct gguf_context * gguf =
            gguf_init_from_buffer(bytes, size, (struct gguf_init_params) { .no_alloc = true });
    ggml_log_set(NULL, NULL);
    if (gguf == NULL) {
        return error_set(err, LRNN_ERROR_BAD_INPUT, "ggml rejects the file");
    }
    bool ok = gguf_get_alignment(gguf) == model_file_alignment(f) &&
              (size_t) gguf_get_n_kv(gguf) == model_file_n_keys(f) &&
              (size_t) gguf_get_n_tensors(gguf) == model_file_n_tensors(f);
    for (size_t i = 0; ok && i < model_file_n_keys(f); ++i) {
        const struct model_key * key = model_file_key(f, i);
        const enum gguf_type     type = gguf_get_kv_type(gguf, (int64_t) i);
        ok = slice_is(key->name, gguf_get_key(gguf, (int64_t) i)) &&
             key->is_array == (type == GGUF_TYPE_ARRAY) &&
             key->type == (key->is_array ? gguf_get_arr_type(gguf, (int64_t) i) : type) &&
             key->n == (key->is_array ? gguf_get_arr_n(gguf, (int64_t) i) : 1);
    }
    for (size_t i = 0; ok && i < model_file_n_tensors(f); ++i) {
        const struct model_tensor * t = model_file_tensor(f, i);
        ok = strcmp(t->name, gguf_get_tensor_name(gguf, (int64_t) i)) == 0 &&
             t->type == gguf_get_tensor_type(gguf, (int64_t) i) &&
             t->size == gguf_get_tensor_size(gguf, (int64_t) i) &&
             t->offset == gguf_get_data_offset(gguf) + gguf_get_tensor_offset(gguf, (int64_t) i) &&
             memcmp(t->ne, gguf_get_tensor_ne(gguf, (int64_t) i), sizeof(t->ne)) == 0;
    }
    gguf_free(gguf);
    return ok || error_set(err, LRNN_ERROR_BAD_INPUT, "ggml reads the file differently");
}

bool model_file_walk(struct model_file * f, struct lrnn_error * err) {
    for (size_t i = 0; i < model_file_n_keys(f); ++i) {
        if (!walk_key(f, model_file_key(f, i), err)) {
            return false;
        }
    }
    for (size_t i = 0; i < model_file_n_tensors(f); ++i) {
        if (!walk_tensor(f, model_file_tensor(f, i), err)) {
            return false;
        }
    }
    if (!model_file_all_used(f, err)) { // walk_tensor has used them all
        return false;
    }
    if (model_file_find_key(f, "") != NULL || model_file_find_tensor(f, "") != NULL ||
            model_file_key(f, model_file_n_keys(f)) != NULL ||
            model_file_tensor(f, model_file_n_tensors(f)) != NULL) {
        return error_set(
                err, LRNN_ERROR_BAD_INPUT, "a lookup finds a key or tensor that does not exist");
    }
    model_file_identity(f); // reads both ends of every tensor
    return walk_like_ggml(f, err);
}
