#include "file/quantize.h"

#include "base/error.h"
#include "base/atomic-file.h"
#include "file/gguf-write.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Plan ---------------------------------------------------------------------------------------

static int64_t n_matrices_of(const struct model_tensor * t) {
    return t->ne[2] * t->ne[3];
}

static int64_t n_rows_of(const struct model_tensor * t) {
    return t->ne[1] * n_matrices_of(t);
}

// The shape of an importance must match its tensor: one matrix, or as many as the tensor has.
static bool importance_fits(const struct imatrix_entry * e, const struct model_tensor * t) {
    return e->n_per_row == t->ne[0] && (e->n_matrices == 1 || e->n_matrices == n_matrices_of(t));
}

// Whether a tensor that changes its type can be read and rounded.
static bool check_tensor(const struct quantize_tensor * t, const char * path, bool allow_requantize,
        struct lrnn_error * err) {
    const struct model_tensor *  s = t->source;
    const struct imatrix_entry * e = t->importance;
    if (ggml_is_quantized(s->type) && !allow_requantize) {
        return error_bad_input(err,
                "%s: tensor %s is already quantized to %s; "
                "start from an F32, F16 or BF16 file, or set allow_requantize",
                path, s->name, quantize_type_name(s->type));
    }
    if (ggml_get_type_traits(s->type)->to_float == NULL && s->type != GGML_TYPE_F32) {
        return error_bad_input(err,
                "%s: tensor %s has type %s, which cannot be converted to floats", path, s->name,
                ggml_type_name(s->type));
    }
    if (e != NULL && !importance_fits(e, s)) {
        return error_bad_file(err,
                "the importance matrix belongs to another model: for tensor %s it has %" PRId64
                " columns and %" PRId64 " matrices; expected %" PRId64 " and %" PRId64,
                s->name, e->n_per_row, e->n_matrices, s->ne[0], n_matrices_of(s));
    }
    return true;
}

bool quantize_plan_make(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, struct lrnn_error * err) {
    const char * path = model_file_path(file);
    const size_t n = model_file_n_tensors(file);
    int          n_important = 0;

    plan->n_tensors = n;
    plan->tensors = calloc(n > 0 ? n : 1, sizeof(*plan->tensors));
    if (plan->tensors == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory for %zu tensors", path, n);
    }
    for (size_t i = 0; i < n; ++i) {
        const struct model_tensor * source = model_file_tensor(file, i);
        struct quantize_tensor *    t = &plan->tensors[i];

        t->source = source;
        t->choice = quantize_choose(params->overrides, file, source, params->type);
        if (t->choice.to == source->type) {
            t->bytes = source->size;
            continue;
        }
        t->bytes = ggml_row_size(t->choice.to, source->ne[0]) * (size_t) n_rows_of(source);
        if (params->imatrix != NULL) {
            t->importance = imatrix_find(params->imatrix, source->name);
        }
        n_important += t->importance != NULL;
        if (!check_tensor(t, path, params->allow_requantize, err)) {
            return false;
        }
    }
    const char * unused =
            params->overrides != NULL ? quantize_overrides_unused(params->overrides) : NULL;
    if (unused != NULL) {
        return error_bad_input(err,
                "%s: tensor type '%s' matches no matrix that an earlier one does not match", path,
                unused);
    }
    if (params->imatrix != NULL && n_important == 0) {
        return error_bad_file(
                err, "%s: the importance matrix covers none of the matrices to be quantized", path);
    }
    return true;
}

void quantize_plan_free(struct quantize_plan * plan) {
    free(plan->tensors);
    *plan = (struct quantize_plan) { 0 };
}

struct lrnn_quantize_tensor quantize_describe(const struct quantize_tensor * t) {
    const int64_t * ne = t->source->ne;
    return (struct lrnn_quantize_tensor) {
        .name = t->source->name,
        .ne = { ne[0], ne[1], ne[2], ne[3] },
        .n_dims = t->source->n_dims,
        .from = quantize_type_name(t->source->type),
        .to = quantize_type_name(t->choice.to),
        .wanted = quantize_type_name(t->choice.wanted),
        .bytes_from = (int64_t) t->source->size,
        .bytes_to = (int64_t) t->bytes,
        .error = t->error,
        .is_recurrent = t->choice.recurrent,
        .has_importance = t->importance != NULL,
    };
}

// ---- One tensor ---------------------------------------------------------------------------------

// A tensor is rounded and written in slabs of about SLAB_VALUES, so that the memory does not grow
// with it: the experts of a layer are one tensor. Threads take the rows of a slab in pieces. Each
// piece has its own sums, which are added in order, so that the result does not depend on which
// thread took which piece.
static const int64_t SLAB_VALUES = 1 << 21;
static const int64_t PIECE_VALUES = 1 << 16;

enum fault { FAULT_NONE, FAULT_SOURCE, FAULT_RANGE, FAULT_MEMORY };

struct job {
    const struct model_tensor * source;
    enum ggml_type              to;
    int64_t                     first_row;  // of the slab
    char *                      out;        // [n_rows] rows of `to`
    const float *               importance; // [n_matrices][ne0], NULL: none
    int64_t             importance_step; // from one matrix to the next: ne0, or 0 if all share one
    int64_t             n_rows;          // of the slab
    int64_t             rows_per_piece;
    int64_t             n_pieces;
    double *            error2; // [n_pieces] Σ (w − w')²
    double *            sum2;   // [n_pieces] Σ w²
    atomic_int_fast64_t next;   // piece
    atomic_int          fault;
};

static void to_floats(enum ggml_type type, const void * from, float * to, int64_t n) {
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, (size_t) n * sizeof(float));
    } else {
        ggml_get_type_traits(type)->to_float(from, to, n);
    }
}

// w: room for the rows; back: room for the rows after quantization
static enum fault run_piece(const struct job * job, int64_t piece, float * w, float * back) {
    const struct model_tensor * s = job->source;
    const int64_t               n = s->ne[0];
    const int64_t               first = piece * job->rows_per_piece;
    const int64_t               last =
            first + job->rows_per_piece < job->n_rows ? first + job->rows_per_piece : job->n_rows;
    const size_t row_from = ggml_row_size(s->type, n);
    const size_t row_to = ggml_row_size(job->to, n);
    double       error2 = 0.0;
    double       sum2 = 0.0;

    to_floats(s->type, (const char *) s->data + (size_t) (job->first_row + first) * row_from, w,
            (last - first) * n);
    for (int64_t i = 0; i < (last - first) * n; ++i) {
        if (!isfinite(w[i])) {
            return FAULT_SOURCE;
        }
        sum2 += (double) w[i] * (double) w[i];
    }
    for (int64_t row = first; row < last;) {
        const int64_t matrix = (job->first_row + row) / s->ne[1];
        int64_t       end = (matrix + 1) * s->ne[1] - job->first_row; // it has its own importance
        end = end < last ? end : last;
        ggml_quantize_chunk(job->to, w + (row - first) * n, job->out + (size_t) row * row_to, 0,
                end - row, n,
                job->importance != NULL ? job->importance + matrix * job->importance_step : NULL);
        row = end;
    }
    to_floats(job->to, job->out + (size_t) first * row_to, back, (last - first) * n);
    for (int64_t i = 0; i < (last - first) * n; ++i) {
        if (!isfinite(back[i])) {
            return FAULT_RANGE;
        }
        error2 += ((double) back[i] - (double) w[i]) * ((double) back[i] - (double) w[i]);
    }
    job->error2[piece] = error2;
    job->sum2[piece] = sum2;
    return FAULT_NONE;
}

static void * run_pieces(void * user) {
    struct job * job = user;
    const size_t size = (size_t) (job->rows_per_piece * job->source->ne[0]) * sizeof(float);
    float *      w = malloc(size);
    float *      back = malloc(size);
    enum fault   fault = w == NULL || back == NULL ? FAULT_MEMORY : FAULT_NONE;

    while (fault == FAULT_NONE && atomic_load(&job->fault) == FAULT_NONE) {
        const int64_t piece = atomic_fetch_add(&job->next, 1);
        if (piece >= job->n_pieces) {
            break;
        }
        fault = run_piece(job, piece, w, back);
    }
    if (fault != FAULT_NONE) {
        atomic_store(&job->fault, fault);
    }
    free(w);
    free(back);
    return NULL;
}

// Runs the job on n threads, including the calling one.
static void run_threads(struct job * job, int n) {
    enum { THREADS_MAX = 256 };
    pthread_t threads[THREADS_MAX];
    int       n_more = 0;

    n = n < THREADS_MAX ? n : THREADS_MAX;
    n = n < job->n_pieces ? n : (int) job->n_pieces;
    while (n_more < n - 1 && pthread_create(&threads[n_more], NULL, run_pieces, job) == 0) {
        n_more++; // a thread that cannot start costs only time
    }
    run_pieces(job);
    for (int i = 0; i < n_more; ++i) {
        pthread_join(threads[i], NULL);
    }
}

// Allocates the importance of all matrices of a tensor, [n_matrices][ne0]. *weights is NULL if the
// tensor has none. Returns false if memory is out.
static bool importance_of(const struct quantize_tensor * t, float ** weights) {
    const struct imatrix_entry * e = t->importance;
    *weights = NULL;
    if (e == NULL) {
        return true;
    }
    *weights = malloc((size_t) (e->n_matrices * e->n_per_row) * sizeof(float));
    if (*weights == NULL) {
        return false;
    }
    for (int64_t m = 0; m < e->n_matrices; ++m) {
        float * w = *weights + m * e->n_per_row;
        if (!imatrix_weights(e, m, w)) {
            for (int64_t j = 0; j < e->n_per_row; ++j) {
                w[j] = 1.0f;
            }
        }
    }
    return true;
}

static bool fail(enum fault fault, const char * path, const struct quantize_tensor * t,
        struct lrnn_error * err) {
    switch (fault) {
        case FAULT_NONE: break;
        case FAULT_SOURCE:
            return error_set(err, LRNN_ERROR_NOT_FINITE,
                    "%s: tensor %s has values that are not finite", path, t->source->name);
        case FAULT_RANGE:
            return error_set(err, LRNN_ERROR_NOT_FINITE,
                    "%s: tensor %s has values outside the range of %s%s", path, t->source->name,
                    quantize_type_name(t->choice.to),
                    t->choice.to == GGML_TYPE_F16 ? "; use BF16, which has the range of F32" : "");
        case FAULT_MEMORY:
            return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory for tensor %s", path,
                    t->source->name);
    }
    return true;
}

// Rounds a tensor and writes it, unless out is NULL.
static bool quantize_one(struct quantize_tensor * t, const struct model_file * file, int n_threads,
        struct atomic_file * out, struct lrnn_error * err) {
    const struct model_tensor * s = t->source;
    const char *                path = model_file_path(file);
    const int64_t               n_rows = n_rows_of(s);
    const int64_t slab = SLAB_VALUES / s->ne[0] > 1 ? SLAB_VALUES / s->ne[0] : 1; // rows
    const size_t  row_to = ggml_row_size(t->choice.to, s->ne[0]);

    struct job job = {
        .source = s,
        .to = t->choice.to,
        .importance_step = t->importance != NULL && t->importance->n_matrices > 1 ? s->ne[0] : 0,
        .rows_per_piece = PIECE_VALUES / s->ne[0] > 1 ? PIECE_VALUES / s->ne[0] : 1,
    };
    const size_t n_sums = (size_t) ((slab + job.rows_per_piece - 1) / job.rows_per_piece);
    float *      importance = NULL;
    job.out = malloc((size_t) (slab < n_rows ? slab : n_rows) * row_to);
    job.error2 = calloc(n_sums, sizeof(double));
    job.sum2 = calloc(n_sums, sizeof(double));

    bool       ok = true;
    double     error2 = 0.0;
    double     sum2 = 0.0;
    enum fault fault = job.out != NULL && job.error2 != NULL && job.sum2 != NULL &&
                                       importance_of(t, &importance)
                               ? FAULT_NONE
                               : FAULT_MEMORY;
    job.importance = importance;
    for (; ok && fault == FAULT_NONE && job.first_row < n_rows; job.first_row += slab) {
        const int64_t left = n_rows - job.first_row;
        job.n_rows = slab < left ? slab : left;
        job.n_pieces = (job.n_rows + job.rows_per_piece - 1) / job.rows_per_piece;
        atomic_store(&job.next, 0);
        run_threads(&job, n_threads);
        fault = (enum fault) atomic_load(&job.fault);
        for (int64_t i = 0; i < job.n_pieces && fault == FAULT_NONE; ++i) {
            error2 += job.error2[i];
            sum2 += job.sum2[i];
        }
        if (fault == FAULT_NONE && out != NULL) {
            ok = atomic_file_write(out, job.out, (size_t) job.n_rows * row_to, err);
        }
        model_file_release(file, s);
    }
    t->error = sum2 > 0.0 ? sqrt(error2 / sum2) : 0.0;
    free(job.out);
    free(job.error2);
    free(job.sum2);
    free(importance);
    return ok && fail(fault, path, t, err);
}

// Writes a tensor as it is.
static bool copy_one(const struct quantize_tensor * t, const struct model_file * file,
        struct atomic_file * out, struct lrnn_error * err) {
    const size_t slab = (size_t) SLAB_VALUES * sizeof(float);
    bool         ok = true;
    for (size_t at = 0; at < t->bytes && ok; at += slab) {
        const size_t left = t->bytes - at;
        const char * data = (const char *) t->source->data + at;
        ok = atomic_file_write(out, data, slab < left ? slab : left, err);
        model_file_release(file, t->source);
    }
    return ok;
}

// ---- File ---------------------------------------------------------------------------------------

// The metadata of the source with the new types, and keys that describe the quantization.
static struct gguf_context * make_metadata(const struct quantize_plan * plan,
        const struct model_file * file, const struct quantize_params * params) {
    struct gguf_context * gguf = gguf_init_from_file(
            model_file_path(file), (struct gguf_init_params) { .no_alloc = true });
    if (gguf == NULL) {
        return NULL;
    }
    char program[64];
    snprintf(program, sizeof(program), "lrnn-quantize %s", lrnn_version());
    gguf_set_val_u32(gguf, "general.file_type", params->type->file_type);
    gguf_set_val_u32(gguf, "general.quantization_version", GGML_QNT_VERSION);
    gguf_set_val_str(gguf, "lrnn.quantize.program", program);
    gguf_set_val_str(gguf, "lrnn.quantize.type", params->type->name);
    if (params->overrides_text != NULL) {
        gguf_set_val_str(gguf, "lrnn.quantize.tensor_types", params->overrides_text);
    }
    if (params->imatrix != NULL) { // the keys of llama.cpp, and a hash
        gguf_set_val_str(gguf, "quantize.imatrix.file", params->imatrix_file);
        gguf_set_val_str(gguf, "quantize.imatrix.dataset", params->imatrix->dataset);
        gguf_set_val_u32(
                gguf, "quantize.imatrix.entries_count", (uint32_t) params->imatrix->n_entries);
        gguf_set_val_u32(
                gguf, "quantize.imatrix.chunks_count", (uint32_t) params->imatrix->n_windows);
        gguf_set_val_str(gguf, "lrnn.quantize.imatrix_sha256", params->imatrix_sha256);
    }
    for (size_t i = 0; i < plan->n_tensors; ++i) {
        gguf_set_tensor_type(gguf, plan->tensors[i].source->name, plan->tensors[i].choice.to);
    }
    return gguf;
}

static bool write_metadata(struct atomic_file * out, const struct quantize_plan * plan,
        const struct model_file * file, const struct quantize_params * params,
        struct lrnn_error * err) {
    struct gguf_context * gguf = make_metadata(plan, file, params);
    if (gguf == NULL) {
        return error_bad_model(err, "%s: ggml cannot read the metadata", model_file_path(file));
    }
    const bool ok = gguf_write_metadata(out, gguf, err);
    gguf_free(gguf);
    return ok;
}

static int count_threads(int n_threads) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return n_threads > 0 ? n_threads : cores > 0 ? (int) cores : 1;
}

bool quantize_run(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, const char * path, lrnn_quantize_done done,
        void * user, struct lrnn_error * err) {
    const size_t       alignment = model_file_alignment(file);
    const int          n_threads = count_threads(params->n_threads);
    struct atomic_file out = { 0 };
    bool               ok = true;

    if (path != NULL) {
        if (!atomic_file_open(&out, path, err)) {
            return false;
        }
        ok = write_metadata(&out, plan, file, params, err);
    }
    for (size_t i = 0; i < plan->n_tensors && ok; ++i) {
        struct quantize_tensor * t = &plan->tensors[i];
        struct atomic_file *     to = path != NULL ? &out : NULL;
        if (t->choice.to != t->source->type) {
            ok = quantize_one(t, file, n_threads, to, err);
        } else if (to != NULL) {
            ok = copy_one(t, file, to, err);
        }
        ok = ok && (to == NULL || gguf_write_padding(to, t->bytes, alignment, err));
        const struct lrnn_quantize_tensor described = quantize_describe(t);
        if (ok && done != NULL && !done(&described, (int64_t) i, user)) {
            ok = error_set(err, LRNN_ERROR_CANCELLED,
                    "stopped after %zu of %zu tensors; nothing was written", i + 1,
                    plan->n_tensors);
        }
    }
    if (path != NULL && ok) {
        return atomic_file_commit(&out, err);
    }
    if (path != NULL) {
        atomic_file_cancel(&out);
    }
    return ok;
}
