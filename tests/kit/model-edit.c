#include "kit/model-edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1024, MORE_BYTES = 16 << 20 };

bool model_edit_open(struct model_edit * e, const char * path) {
    *e = (struct model_edit) { .tensors = calloc(MAX_TENSORS, sizeof(*e->tensors)) };
    e->gguf = gguf_init_from_file(
            path, (struct gguf_init_params) { .no_alloc = false, .ctx = &e->ctx });
    e->more = ggml_init((struct ggml_init_params) { .mem_size = MORE_BYTES });
    if (e->gguf == NULL || e->more == NULL || e->tensors == NULL ||
            gguf_get_n_tensors(e->gguf) > MAX_TENSORS / 2) {
        model_edit_close(e);
        return false;
    }
    for (; e->n_tensors < gguf_get_n_tensors(e->gguf); ++e->n_tensors) {
        e->tensors[e->n_tensors] =
                ggml_get_tensor(e->ctx, gguf_get_tensor_name(e->gguf, e->n_tensors));
    }
    return true;
}

void model_edit_close(struct model_edit * e) {
    gguf_free(e->gguf);
    ggml_free(e->ctx);
    ggml_free(e->more);
    free(e->tensors);
    *e = (struct model_edit) { 0 };
}

bool model_edit_write(const struct model_edit * e, const char * path) {
    struct gguf_context * out = gguf_init_empty();
    gguf_set_kv(out, e->gguf);
    for (int64_t i = 0; i < e->n_tensors; ++i) {
        gguf_add_tensor(out, e->tensors[i]);
    }
    const bool ok = gguf_write_to_file(out, path, false);
    gguf_free(out);
    return ok;
}

static int64_t find(const struct model_edit * e, const char * name) {
    int64_t i = 0;
    while (i < e->n_tensors && strcmp(e->tensors[i]->name, name) != 0) {
        ++i;
    }
    return i;
}

struct ggml_tensor * model_edit_find(const struct model_edit * e, const char * name) {
    const int64_t i = find(e, name);
    return i < e->n_tensors ? e->tensors[i] : NULL;
}

void model_edit_drop(struct model_edit * e, const char * name) {
    const int64_t i = find(e, name);
    if (i < e->n_tensors) {
        memmove(e->tensors + i, e->tensors + i + 1,
                (size_t) (e->n_tensors - i - 1) * sizeof(*e->tensors));
        e->n_tensors--;
    }
}

void model_edit_rename(struct model_edit * e, const char * name, const char * to) {
    struct ggml_tensor * t = model_edit_find(e, name);
    if (t != NULL) {
        ggml_set_name(t, to);
    }
}

struct ggml_tensor * model_edit_put(struct model_edit * e, const char * name, enum ggml_type type,
        int n_dims, const int64_t * ne) {
    const int64_t        i = find(e, name);
    struct ggml_tensor * t = ggml_new_tensor(e->more, type, n_dims, ne);
    memset(t->data, 0, ggml_nbytes(t));
    ggml_set_name(t, name);
    e->n_tensors += i == e->n_tensors;
    e->tensors[i] = t;
    return t;
}

void model_edit_convert(struct model_edit * e, const char * name, enum ggml_type type) {
    const struct ggml_tensor * from = model_edit_find(e, name);
    if (from != NULL) {
        struct ggml_tensor * to = model_edit_put(e, name, type, ggml_n_dims(from), from->ne);
        const int64_t        n = ggml_nelements(from);
        float *              x = malloc((size_t) n * sizeof(*x));
        if (from->type == GGML_TYPE_F32) {
            memcpy(x, from->data, (size_t) n * sizeof(*x));
        } else {
            ggml_get_type_traits(from->type)->to_float(from->data, x, n);
        }
        ggml_quantize_chunk(type, x, to->data, 0, ggml_nrows(from), from->ne[0], NULL);
        free(x);
    }
}
