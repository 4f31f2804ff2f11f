#include "file/imatrix.h"

#include "base/atomic-file.h"
#include "base/buffer.h"
#include "base/error.h"
#include "file/gguf-write.h"
#include "file/model-file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char IN_SUM2[] = ".in_sum2";
static const char COUNTS[] = ".counts";

void imatrix_free(struct imatrix * m) {
    for (int i = 0; i < m->n_entries; ++i) {
        free(m->entries[i].sum2);
        free(m->entries[i].counts);
    }
    free(m->entries);
    *m = (struct imatrix) { 0 };
}

const struct imatrix_entry * imatrix_find(const struct imatrix * m, const char * name) {
    for (int i = 0; i < m->n_entries; ++i) {
        if (strcmp(m->entries[i].name, name) == 0) {
            return &m->entries[i];
        }
    }
    return NULL;
}

// Appends an entry of zeros. Returns NULL if memory is out.
static struct imatrix_entry * append(
        struct imatrix * m, const char * name, size_t size, int64_t n_per_row, int64_t n_matrices) {
    if (!array_grow(&m->entries, &m->capacity, (size_t) m->n_entries + 1, sizeof(*m->entries))) {
        return NULL;
    }
    struct imatrix_entry * e = &m->entries[m->n_entries];

    *e = (struct imatrix_entry) {
        .n_per_row = n_per_row,
        .n_matrices = n_matrices,
        .sum2 = calloc((size_t) (n_per_row * n_matrices), sizeof(double)),
        .counts = calloc((size_t) n_matrices, sizeof(double)),
    };
    snprintf(e->name, sizeof(e->name), "%.*s", (int) size, name);
    if (e->sum2 == NULL || e->counts == NULL) {
        free(e->sum2);
        free(e->counts);
        return NULL;
    }
    m->n_entries++;
    return e;
}

bool imatrix_add(struct imatrix * m, const char * name, int64_t n_per_row, int64_t n_matrices,
        int64_t matrix, const float * x, int64_t n, struct lrnn_error * err) {
    const struct imatrix_entry * e = imatrix_find(m, name);
    if (e == NULL) {
        if (strlen(name) + sizeof(IN_SUM2) > sizeof(e->name)) {
            return error_bad_file(err, "tensor %s has a name of %zu bytes; expected at most %zu",
                    name, strlen(name), sizeof(e->name) - sizeof(IN_SUM2));
        }
        e = append(m, name, strlen(name), n_per_row, n_matrices);
        if (e == NULL) {
            return error_no_memory(err, "the importance of %s", name);
        }
    }
    if (e->n_per_row != n_per_row || e->n_matrices != n_matrices) {
        return error_bad_file(err,
                "tensor %s has inputs of %" PRId64 " values for %" PRId64
                " matrices; expected %" PRId64 " for %" PRId64 " as before",
                name, n_per_row, n_matrices, e->n_per_row, e->n_matrices);
    }
    double * sum2 = e->sum2 + matrix * n_per_row;
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n_per_row; ++j) {
            sum2[j] += (double) x[i * n_per_row + j] * (double) x[i * n_per_row + j];
        }
    }
    e->counts[matrix] += (double) n;
    return true;
}

// The mean square of the inputs of column j, over matrices from .. to − 1.
static double mean_square(const struct imatrix_entry * e, int64_t from, int64_t to, int64_t j) {
    double sum2 = 0.0, count = 0.0;
    for (int64_t m = from; m < to; ++m) {
        sum2 += e->sum2[m * e->n_per_row + j];
        count += e->counts[m];
    }
    return count > 0.0 ? sum2 / count : 0.0;
}

bool imatrix_weights(const struct imatrix_entry * e, int64_t matrix, float * weights) {
    const bool    own = e->counts[matrix] > 0.0;
    const int64_t from = own ? matrix : 0;
    const int64_t to = own ? matrix + 1 : e->n_matrices;
    double        mean = 0.0;
    for (int64_t j = 0; j < e->n_per_row; ++j) {
        mean += mean_square(e, from, to, j) / (double) e->n_per_row;
    }
    if (!(mean > 0.0)) {
        return false;
    }
    for (int64_t j = 0; j < e->n_per_row; ++j) {
        weights[j] = (float) fmax(mean_square(e, from, to, j), 1e-6 * mean);
    }
    return true;
}

// ---- File ---------------------------------------------------------------------------------------

static struct ggml_tensor * to_tensor(struct ggml_context * ctx, const char * name,
        const char * suffix, const double * values, int64_t ne0, int64_t ne1) {
    struct ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, ne1);
    ggml_format_name(t, "%s%s", name, suffix);
    for (int64_t i = 0; i < ne0 * ne1; ++i) {
        ((float *) t->data)[i] = (float) values[i];
    }
    return t;
}

// All tensors in one context, in the order of the entries; NULL if memory is out.
static struct ggml_context * to_tensors(const struct imatrix * m, struct gguf_context * gguf) {
    size_t size = ggml_tensor_overhead();
    for (int i = 0; i < m->n_entries; ++i) {
        const struct imatrix_entry * e = &m->entries[i];
        size += 2 * (ggml_tensor_overhead() + GGML_MEM_ALIGN) +
                (size_t) (e->n_matrices * (e->n_per_row + 1)) * sizeof(float);
    }
    struct ggml_context * ctx = ggml_init((struct ggml_init_params) { .mem_size = size });
    for (int i = 0; i < m->n_entries && ctx != NULL; ++i) {
        const struct imatrix_entry * e = &m->entries[i];
        gguf_add_tensor(
                gguf, to_tensor(ctx, e->name, IN_SUM2, e->sum2, e->n_per_row, e->n_matrices));
        gguf_add_tensor(gguf, to_tensor(ctx, e->name, COUNTS, e->counts, 1, e->n_matrices));
    }
    return ctx;
}

static bool write_file(struct gguf_context * gguf, struct ggml_context * ctx, const char * path,
        struct lrnn_error * err) {
    struct atomic_file file = { 0 };
    if (!atomic_file_open(&file, path, err)) {
        return false;
    }
    bool ok = gguf_write_metadata(&file, gguf, err);
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL && ok;
            t = ggml_get_next_tensor(ctx, t)) {
        ok = gguf_write_tensor(&file, t->data, ggml_nbytes(t), gguf_get_alignment(gguf), err);
    }
    if (!ok) {
        atomic_file_cancel(&file);
        return false;
    }
    return atomic_file_commit(&file, err);
}

bool imatrix_write(const struct imatrix * m, const char * path, struct lrnn_error * err) {
    struct gguf_context * gguf = gguf_init_empty();
    struct ggml_context * ctx = gguf != NULL ? to_tensors(m, gguf) : NULL;
    const char *          text = m->dataset;
    bool                  ok = false;

    if (ctx == NULL) {
        error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
    } else {
        gguf_set_val_str(gguf, "general.type", "imatrix");
        gguf_set_arr_str(gguf, "imatrix.datasets", &text, 1);
        gguf_set_val_u32(gguf, "imatrix.chunk_count", (uint32_t) m->n_windows);
        gguf_set_val_u32(gguf, "imatrix.chunk_size", (uint32_t) m->window_size);
        ok = write_file(gguf, ctx, path, err);
    }
    gguf_free(gguf);
    ggml_free(ctx);
    return ok;
}

// Reads the values of an F32 tensor, each a sum of squares or a count.
static bool read_values(const struct model_tensor * t, const char * path, double * values,
        struct lrnn_error * err) {
    for (size_t i = 0; i < t->size / sizeof(float); ++i) {
        float x;
        memcpy(&x, (const char *) t->data + i * sizeof(x), sizeof(x));
        if (!(x >= 0.0f) || isinf(x)) {
            return error_bad_file(err,
                    "%s: tensor %s has %g as element %zu; expected finite numbers, none below 0",
                    path, t->name, (double) x, i);
        }
        values[i] = (double) x;
    }
    return true;
}

// Reads the entry whose sums are in tensor t.
static bool read_entry(struct imatrix * m, const struct model_file * f,
        const struct model_tensor * t, struct lrnn_error * err) {
    char         counts_name[GGML_MAX_NAME];
    const size_t size = strlen(t->name) - (sizeof(IN_SUM2) - 1);
    const char * path = model_file_path(f);

    snprintf(counts_name, sizeof(counts_name), "%.*s%s", (int) size, t->name, COUNTS);
    const struct model_tensor * c = model_file_find_tensor(f, counts_name);
    const int64_t               n_matrices = t->ne[1] * t->ne[2] * t->ne[3];
    if (c == NULL || c->type != GGML_TYPE_F32 || t->type != GGML_TYPE_F32 ||
            c->ne[0] * c->ne[1] * c->ne[2] * c->ne[3] != n_matrices) {
        return error_bad_file(err,
                "%s: expected tensors %s and %s of f32, the latter with %" PRId64 " counts", path,
                t->name, counts_name, n_matrices);
    }
    const struct imatrix_entry * e = append(m, t->name, size, t->ne[0], n_matrices);
    if (e == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", path);
    }
    return read_values(t, path, e->sum2, err) && read_values(c, path, e->counts, err);
}

bool imatrix_read(struct imatrix * m, const char * path, struct lrnn_error * err) {
    *m = (struct imatrix) { 0 };
    struct model_file * f = model_file_open(path, err);
    if (f == NULL) {
        if (err != NULL && err->kind == LRNN_ERROR_BAD_MODEL) {
            err->kind = LRNN_ERROR_BAD_FILE; // a GGUF file, but no model
        }
        return false;
    }
    struct slice      text;
    struct lrnn_error why;
    bool              ok =
            model_file_text(f, "general.type", &text, &why) == KEY_OK && slice_is(text, "imatrix");
    if (!ok) {
        error_bad_file(
                err, "%s: not an importance matrix: key 'general.type' is not 'imatrix'", path);
    }
    const struct model_key * names;
    if (ok && model_file_texts(f, "imatrix.datasets", &names, &why) == KEY_OK) {
        text = model_key_text(names, 0);
        snprintf(m->dataset, sizeof(m->dataset), "%.*s",
                (int) (text.size < sizeof(m->dataset) ? text.size : sizeof(m->dataset) - 1),
                text.data);
    }
    if (ok) { // optional: only copied into the metadata of quantized files
        model_file_int(f, "imatrix.chunk_count", 0, UINT32_MAX, &m->n_windows, &why);
        model_file_int(f, "imatrix.chunk_size", 0, UINT32_MAX, &m->window_size, &why);
    }
    for (size_t i = 0; ok && i < model_file_n_tensors(f); ++i) {
        const struct model_tensor * t = model_file_tensor(f, i);
        const size_t                size = strlen(t->name);
        if (size >= sizeof(IN_SUM2) &&
                strcmp(t->name + size - (sizeof(IN_SUM2) - 1), IN_SUM2) == 0) {
            ok = read_entry(m, f, t, err);
        }
    }
    if (ok && m->n_entries == 0) {
        error_bad_file(err, "%s: the importance matrix has no tensor named *%s", path, IN_SUM2);
        ok = false;
    }
    model_file_free(f);
    if (!ok) {
        imatrix_free(m);
    }
    return ok;
}
