#include "kit/model-edit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 1024, MORE_BYTES = 64 << 20 };

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

//
// Changes as text
//

enum { MAX_VALUES = 64, MAX_TEXT = 64 };

struct values {
    enum gguf_type type;
    size_t         n;
    bool           is_array;
    double         numbers[MAX_VALUES];
    char           texts[MAX_VALUES][MAX_TEXT];
};

static void malformed(const char * change) {
    printf("FAILED: malformed change: %s\n", change);
    exit(1);
}

// Text up to one of the characters `ends`, without spaces at its end.
static const char * take_word(const char * p, const char * ends, char word[MAX_TEXT]) {
    size_t n = strcspn(p, ends);
    if (n >= MAX_TEXT) {
        malformed(p);
    }
    memcpy(word, p, n);
    while (n > 0 && word[n - 1] == ' ') {
        --n;
    }
    word[n] = '\0';
    return p + strcspn(p, ends);
}

static const char * take_values(const char * p, struct values * v) {
    *v = (struct values) { .type = GGUF_TYPE_UINT32, .is_array = *p == '[' };
    for (p += v->is_array; *p != ']' && *p != ';' && *p != '\0'; p += strspn(p, ", ")) {
        char * text = v->texts[v->n];
        if (*p == '\'') {
            p = take_word(p + 1, "'", text) + 1;
            v->type = GGUF_TYPE_STRING;
        } else {
            p = take_word(p, ",];", text);
            v->numbers[v->n] = strcmp(text, "true") == 0 ? 1.0 : strtod(text, NULL);
            if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
                v->type = GGUF_TYPE_BOOL;
            } else if (strpbrk(text, ".ni") != NULL) { // 1.0, nan, inf
                v->type = GGUF_TYPE_FLOAT32;
            } else if (text[0] == '-' && v->type == GGUF_TYPE_UINT32) {
                v->type = GGUF_TYPE_INT32;
            }
        }
        if (++v->n == MAX_VALUES) {
            malformed(p);
        }
    }
    return p + (*p == ']');
}

static void set_key(struct gguf_context * gguf, const char * key, const struct values * v) {
    uint32_t     u32[MAX_VALUES];
    int32_t      i32[MAX_VALUES];
    float        f32[MAX_VALUES];
    bool         bools[MAX_VALUES];
    const char * texts[MAX_VALUES];
    for (size_t i = 0; i < v->n; ++i) {
        u32[i] = v->numbers[i] >= 0 ? (uint32_t) v->numbers[i] : 0;
        i32[i] = fabs(v->numbers[i]) < 0x1p31 ? (int32_t) v->numbers[i] : 0;
        f32[i] = (float) v->numbers[i];
        bools[i] = v->numbers[i] == 1.0;
        texts[i] = v->texts[i];
    }
    gguf_remove_key(gguf, key);
    if (v->is_array && v->type == GGUF_TYPE_STRING) {
        gguf_set_arr_str(gguf, key, texts, v->n);
    } else if (v->is_array) {
        const void * data = v->type == GGUF_TYPE_UINT32    ? (const void *) u32
                            : v->type == GGUF_TYPE_INT32   ? (const void *) i32
                            : v->type == GGUF_TYPE_FLOAT32 ? (const void *) f32
                                                           : (const void *) bools;
        gguf_set_arr_data(gguf, key, v->type, data, v->n);
    } else {
        switch (v->type) {
            case GGUF_TYPE_STRING: gguf_set_val_str(gguf, key, texts[0]); break;
            case GGUF_TYPE_BOOL: gguf_set_val_bool(gguf, key, bools[0]); break;
            case GGUF_TYPE_FLOAT32: gguf_set_val_f32(gguf, key, f32[0]); break;
            case GGUF_TYPE_INT32: gguf_set_val_i32(gguf, key, i32[0]); break;
            default: gguf_set_val_u32(gguf, key, u32[0]); break;
        }
    }
}

static enum ggml_type type_named(const char * name) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        const char * found = ggml_type_name((enum ggml_type) type);
        if (found != NULL && strcmp(found, name) == 0) {
            return (enum ggml_type) type;
        }
    }
    malformed(name);
    return GGML_TYPE_COUNT;
}

// A tokenizer of n tokens that are printed with this format
static void set_tokens(struct model_edit * e, const char * model, const char * format, long n) {
    char          text[256][MAX_TEXT];
    const char *  tokens[256];
    int32_t       types[256];
    const int32_t type = strcmp(model, "lrnn-bytes") == 0 ? 6 : 1; // byte, normal
    for (long i = 0; i < n && i < 256; ++i) {
        snprintf(text[i], MAX_TEXT, format, (unsigned) i);
        tokens[i] = text[i];
        types[i] = type;
    }
    gguf_set_val_str(e->gguf, "tokenizer.ggml.model", model);
    gguf_set_arr_str(e->gguf, "tokenizer.ggml.tokens", tokens, (size_t) n);
    gguf_set_arr_data(e->gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, (size_t) n);
}

void model_edit_change(struct model_edit * e, const char * changes) {
    for (const char * p = changes; *p != '\0'; p += strspn(p, "; ")) {
        char          name[MAX_TEXT], type[MAX_TEXT];
        struct values v;
        if (strncmp(p, "drop ", 5) == 0) {
            p = take_word(p + 5, ";", name);
            gguf_remove_key(e->gguf, name);
            model_edit_drop(e, name);
            continue;
        }
        if (strncmp(p, "symbols ", 8) == 0) {
            set_tokens(e, "lrnn-symbols", "s%u", strtol(p + 8, NULL, 10));
            p += strcspn(p, ";");
            continue;
        }
        if (strncmp(p, "bytes ", 6) == 0) {
            set_tokens(e, "lrnn-bytes", "<0x%02X>", strtol(p + 6, NULL, 10));
            p += strcspn(p, ";");
            continue;
        }
        p = take_word(p, "=:[", name);
        struct ggml_tensor * x = model_edit_find(e, name);
        if (*p == '[' && x != NULL) {
            const long element = strtol(p + 1, NULL, 10);
            p = take_values(p + strcspn(p, "=") + 2, &v);
            ((float *) x->data)[element] = (float) v.numbers[0];
        } else if (strncmp(p, ": ", 2) == 0) {
            p = take_word(p + 2, "[;", type);
            if (*p != '[') {
                model_edit_convert(e, name, type_named(type));
                continue;
            }
            int64_t ne[GGML_MAX_DIMS];
            p = take_values(p, &v);
            for (size_t i = 0; i < v.n && i < GGML_MAX_DIMS; ++i) {
                ne[i] = (int64_t) v.numbers[i];
            }
            model_edit_put(e, name, type_named(type), (int) v.n, ne);
        } else if (strncmp(p, "= ", 2) == 0) {
            p = take_values(p + 2, &v);
            set_key(e->gguf, name, &v);
        } else {
            malformed(changes);
        }
    }
}
