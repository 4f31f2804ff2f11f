// The public functions that quantize a model file: they check the parameters and call quantize.c.

#include "base/error.h"
#include "base/read-file.h"
#include "base/sha256.h"
#include "file/quantize.h"
#include "lrnn.h"

#include <stdlib.h>
#include <string.h>

struct lrnn_quantizer {
    struct model_file *    file;
    struct quantize_params params;
    struct quantize_plan   plan;
    struct imatrix         imatrix;
    char *                 imatrix_path;
    char                   imatrix_sha256[65];
    char *                 overrides_text; // all overrides, for the metadata
};

void lrnn_quantizer_free(struct lrnn_quantizer * q) {
    if (q == NULL) {
        return;
    }
    quantize_plan_free(&q->plan);
    quantize_overrides_free(q->params.overrides);
    imatrix_free(&q->imatrix);
    model_file_free(q->file);
    free(q->imatrix_path);
    free(q->overrides_text);
    free(q);
}

static const char * base_name(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool hash_file(const char * path, char hex[65], struct lrnn_error * err) {
    char *        data;
    size_t        size;
    struct sha256 sha;
    if (!read_file(path, &data, &size, err)) {
        return false;
    }
    sha256_begin(&sha);
    sha256_add(&sha, data, size);
    sha256_hex(&sha, hex);
    free(data);
    return true;
}

static bool add_imatrix(struct lrnn_quantizer * q, const char * path, struct lrnn_error * err) {
    if (!imatrix_read(&q->imatrix, path, err) || !hash_file(path, q->imatrix_sha256, err)) {
        return false;
    }
    q->imatrix_path = strdup(path);
    if (q->imatrix_path == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory");
    }
    q->params.imatrix = &q->imatrix;
    q->params.imatrix_file = base_name(q->imatrix_path);
    q->params.imatrix_sha256 = q->imatrix_sha256;
    return true;
}

// "REGEX=TYPE REGEX=TYPE ...", for the caller to free; NULL: out of memory
static char * join(const char * const * texts, int32_t n) {
    size_t size = 1;
    for (int32_t i = 0; i < n; ++i) {
        size += strlen(texts[i]) + 1;
    }
    char * joined = calloc(size, 1);
    for (int32_t i = 0; i < n && joined != NULL; ++i) {
        strcat(joined, i > 0 ? " " : "");
        strcat(joined, texts[i]);
    }
    return joined;
}

static bool add_overrides(
        struct lrnn_quantizer * q, const char * const * texts, int32_t n, struct lrnn_error * err) {
    q->params.overrides = quantize_overrides_new();
    q->overrides_text = n > 0 ? join(texts, n) : NULL;
    if (q->params.overrides == NULL || (n > 0 && q->overrides_text == NULL)) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory");
    }
    q->params.overrides_text = q->overrides_text;
    for (int32_t i = 0; i < n; ++i) {
        struct lrnn_error why;
        if (!quantize_overrides_add(q->params.overrides, texts[i], &why)) {
            return error_set(err, why.kind, "tensor type: %s", why.text);
        }
    }
    return true;
}

static bool prepare(struct lrnn_quantizer * q, const char * path,
        const struct lrnn_quantize_params * params, struct lrnn_error * err) {
    q->params.allow_requantize = params->allow_requantize;
    q->params.n_threads = params->n_threads;
    const char * name = params->type != NULL ? params->type : "";
    q->params.type = quantize_type_find(name);
    if (q->params.type == NULL) {
        char         names[128];
        const char * nearest = quantize_type_nearest(name);
        return error_bad_input(err, "the quantization type is '%s'; expected %s%s%s", name,
                quantize_type_names(names, sizeof(names), true),
                nearest != NULL ? "; nearest: " : "", nearest != NULL ? nearest : "");
    }
    if ((params->imatrix != NULL && !add_imatrix(q, params->imatrix, err)) ||
            !add_overrides(q, params->tensor_types, params->n_tensor_types, err)) {
        return false;
    }
    // Reject a file that cannot be loaded before writing another one like it.
    const struct lrnn_model_params only_check = { .no_huge_pages = true };
    struct lrnn_model *            model = lrnn_model_load(path, &only_check, err);
    if (model == NULL) {
        return false;
    }
    lrnn_model_free(model);
    q->file = model_file_open(path, err);
    return q->file != NULL && quantize_plan_make(&q->plan, q->file, &q->params, err);
}

struct lrnn_quantizer * lrnn_quantizer_new(
        const char * path, const struct lrnn_quantize_params * params, struct lrnn_error * err) {
    static const struct lrnn_quantize_params none = { 0 };
    struct lrnn_quantizer *                  q = calloc(1, sizeof(*q));
    if (q == NULL) {
        error_no_memory(err, "a quantizer");
        return NULL;
    }
    if (!prepare(q, path, params != NULL ? params : &none, err)) {
        lrnn_quantizer_free(q);
        return NULL;
    }
    return q;
}

bool lrnn_quantizer_get_tensor(
        const struct lrnn_quantizer * q, int64_t i, struct lrnn_quantize_tensor * tensor) {
    if (i < 0 || (uint64_t) i >= q->plan.n_tensors) {
        return false;
    }
    *tensor = quantize_describe(&q->plan.tensors[i]);
    return true;
}

bool lrnn_quantizer_run(struct lrnn_quantizer * q, const char * path, lrnn_quantize_done done,
        void * user, struct lrnn_error * err) {
    return quantize_run(&q->plan, q->file, &q->params, path, done, user, err);
}
