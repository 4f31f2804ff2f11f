#include "file/quantize.h"

#include "base/atomic-file.h"
#include "lrnn.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

//
// The plan
//

static int64_t n_matrices_of(const struct model_tensor * t) {
    return t->ne[2] * t->ne[3];
}

// Whether the importance of a tensor belongs to it: one matrix, or as many as it has.
static bool importance_fits(const struct imatrix_entry * e, const struct model_tensor * t) {
    return e->n_per_row == t->ne[0] && (e->n_matrices == 1 || e->n_matrices == n_matrices_of(t));
}

enum lrnn_quantize_status quantize_plan_make(struct quantize_plan * plan,
        const struct model_file * file, const struct quantize_params * params, char * err,
        size_t err_size) {
    const char * path        = model_file_path(file);
    const size_t n           = model_file_n_tensors(file);
    int          n_important = 0;

    *plan = (struct quantize_plan) { .n_tensors = n,
        .tensors                                = calloc(n > 0 ? n : 1, sizeof(*plan->tensors)) };
    if (plan->tensors == NULL) {
        snprintf(err, err_size, "%s: out of memory for a plan of %zu tensors", path, n);
        return LRNN_QUANTIZE_SYSTEM;
    }
    for (size_t i = 0; i < n; ++i) {
        const struct model_tensor * source = model_file_tensor(file, i);
        struct quantize_tensor *    t      = &plan->tensors[i];

        t->source = source;
        t->choice = quantize_choose(
                params->overrides, source->name, source->type, source->ne[0], params->type);
        t->bytes = t->choice.to == source->type
                           ? source->size
                           : ggml_row_size(t->choice.to, source->ne[0]) *
                                     (size_t) (source->ne[1] * source->ne[2] * source->ne[3]);
        plan->bytes_from += source->size;
        plan->bytes_to += t->bytes;
        if (t->choice.to == source->type) {
            continue;
        }
        if (ggml_is_quantized(source->type) && !params->allow_requantize) {
            snprintf(err, err_size,
                    "%s: tensor %s is %s already and would be rounded a second time to %s: begin with an F32, F16 or BF16 file, or give "
                    "--allow-requantize",
                    path, source->name, quantize_type_word(source->type),
                    quantize_type_word(t->choice.to));
            return LRNN_QUANTIZE_BAD_PARAMS;
        }
        if (ggml_get_type_traits(source->type)->to_float == NULL && source->type != GGML_TYPE_F32) {
            snprintf(err, err_size, "%s: tensor %s has type %s, which does not convert to floats",
                    path, source->name, ggml_type_name(source->type));
            return LRNN_QUANTIZE_BAD_PARAMS;
        }
        t->importance =
                params->imatrix != NULL ? imatrix_find(params->imatrix, source->name) : NULL;
        if (t->importance != NULL && !importance_fits(t->importance, source)) {
            snprintf(err, err_size,
                    "the importance matrix has %" PRId64 " columns and %" PRId64
                    " matrices for tensor %s, which has %" PRId64 " and %" PRId64
                    ": it belongs to another model",
                    t->importance->n_per_row, t->importance->n_matrices, source->name,
                    source->ne[0], n_matrices_of(source));
            return LRNN_QUANTIZE_BAD_IMATRIX;
        }
        n_important += t->importance != NULL;
    }
    const char * unused =
            params->overrides != NULL ? quantize_overrides_unused(params->overrides) : NULL;
    if (unused != NULL) {
        snprintf(err, err_size,
                "%s: there is no matrix that '%s' fits and no exception before it has taken", path,
                unused);
        return LRNN_QUANTIZE_BAD_PARAMS;
    }
    if (params->imatrix != NULL && n_important == 0) {
        snprintf(err, err_size,
                "the importance matrix has nothing on any matrix that would be quantised in %s",
                path);
        return LRNN_QUANTIZE_BAD_IMATRIX;
    }
    return LRNN_QUANTIZE_OK;
}

void quantize_plan_free(struct quantize_plan * plan) {
    free(plan->tensors);
    *plan = (struct quantize_plan) { 0 };
}

//
// One tensor
//

// Rows are taken in chunks of about so many values. Sums are kept a chunk and added in their order,
// so that they do not depend on who took which.
static const int64_t CHUNK_VALUES = 1 << 16;

enum fault { FAULT_NONE, FAULT_SOURCE, FAULT_RANGE, FAULT_MEMORY };

struct job {
    const struct model_tensor * source;
    enum ggml_type              to;
    char *                      out;        // [n_rows] rows of `to`
    const float *               importance; // [n_matrices][ne0], NULL: none
    int64_t             importance_step; // from one matrix to the next: ne0, or 0 if all share one
    int64_t             n_rows;
    int64_t             rows_a_chunk;
    int64_t             n_chunks;
    double *            error2; // [n_chunks] Σ (w − w')²
    double *            sum2;   // [n_chunks] Σ w²
    atomic_int_fast64_t next;   // chunk
    atomic_int          fault;
};

static void to_floats(enum ggml_type type, const void * from, float * to, int64_t n) {
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, (size_t) n * sizeof(float));
    } else {
        ggml_get_type_traits(type)->to_float(from, to, n);
    }
}

// w: room for the rows as they are, back: as they come back from their new type
static enum fault run_chunk(const struct job * job, int64_t chunk, float * w, float * back) {
    const struct model_tensor * s     = job->source;
    const int64_t               n     = s->ne[0];
    const int64_t               first = chunk * job->rows_a_chunk;
    const int64_t               last =
            first + job->rows_a_chunk < job->n_rows ? first + job->rows_a_chunk : job->n_rows;
    const size_t row_from = ggml_row_size(s->type, n);
    const size_t row_to   = ggml_row_size(job->to, n);
    double       error2   = 0.0;
    double       sum2     = 0.0;

    to_floats(s->type, (const char *) s->data + (size_t) first * row_from, w, (last - first) * n);
    for (int64_t i = 0; i < (last - first) * n; ++i) {
        if (!isfinite(w[i])) {
            return FAULT_SOURCE;
        }
        sum2 += (double) w[i] * (double) w[i];
    }
    for (int64_t row = first; row < last;) {
        const int64_t matrix = row / s->ne[1];
        const int64_t end    = (matrix + 1) * s->ne[1] < last
                                       ? (matrix + 1) * s->ne[1]
                                       : last; // importance changes with the matrix
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
    job->error2[chunk] = error2;
    job->sum2[chunk]   = sum2;
    return FAULT_NONE;
}

static void * run_chunks(void * user) {
    struct job * job   = user;
    const size_t size  = (size_t) (job->rows_a_chunk * job->source->ne[0]) * sizeof(float);
    float *      w     = malloc(size);
    float *      back  = malloc(size);
    enum fault   fault = w == NULL || back == NULL ? FAULT_MEMORY : FAULT_NONE;

    while (fault == FAULT_NONE && atomic_load(&job->fault) == FAULT_NONE) {
        const int64_t chunk = atomic_fetch_add(&job->next, 1);
        if (chunk >= job->n_chunks) {
            break;
        }
        fault = run_chunk(job, chunk, w, back);
    }
    if (fault != FAULT_NONE) {
        atomic_store(&job->fault, fault);
    }
    free(w);
    free(back);
    return NULL;
}

// Runs the job on n threads, the caller's among them.
static void run_threads(struct job * job, int n) {
    enum { THREADS_MAX = 256 };
    pthread_t threads[THREADS_MAX];
    int       n_more = 0;

    n = n < THREADS_MAX ? n : THREADS_MAX;
    n = n < job->n_chunks ? n : (int) job->n_chunks;
    while (n_more < n - 1 && pthread_create(&threads[n_more], NULL, run_chunks, job) == 0) {
        n_more++; // with fewer than asked for it only takes longer
    }
    run_chunks(job);
    for (int i = 0; i < n_more; ++i) {
        pthread_join(threads[i], NULL);
    }
}

// The weights of every matrix of a tensor that has some, [n_matrices][ne0]; NULL in *weights where
// nothing was seen.
static bool importance_of(const struct quantize_tensor * t, float ** weights) {
    const struct imatrix_entry * e = t->importance;
    *weights                       = NULL;
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

static enum lrnn_quantize_status quantize_one(struct quantize_tensor * t, const char * path,
        int n_threads, char * out, char * err, size_t err_size) {
    const struct model_tensor * s   = t->source;
    struct job                  job = {
                         .source = s,
                         .to     = t->choice.to,
                         .out    = out,
                         .n_rows = s->ne[1] * s->ne[2] * s->ne[3],
                         .importance_step = t->importance != NULL && t->importance->n_matrices > 1 ? s->ne[0] : 0,
    };
    job.rows_a_chunk = CHUNK_VALUES / s->ne[0] > 1 ? CHUNK_VALUES / s->ne[0] : 1;
    job.n_chunks     = (job.n_rows + job.rows_a_chunk - 1) / job.rows_a_chunk;
    job.error2       = calloc((size_t) job.n_chunks, sizeof(double));
    job.sum2         = calloc((size_t) job.n_chunks, sizeof(double));

    float *    importance = NULL;
    enum fault fault      = FAULT_MEMORY;
    if (job.error2 != NULL && job.sum2 != NULL && importance_of(t, &importance)) {
        job.importance = importance;
        run_threads(&job, n_threads);
        fault = (enum fault) atomic_load(&job.fault);
    }
    double error2 = 0.0;
    double sum2   = 0.0;
    for (int64_t i = 0; i < job.n_chunks && fault == FAULT_NONE; ++i) {
        error2 += job.error2[i];
        sum2 += job.sum2[i];
    }
    t->error = sum2 > 0.0 ? sqrt(error2 / sum2) : 0.0;
    free(job.error2);
    free(job.sum2);
    free(importance);
    switch (fault) {
        case FAULT_NONE: return LRNN_QUANTIZE_OK;
        case FAULT_SOURCE:
            snprintf(err, err_size, "%s: tensor %s has values that are not finite", path, s->name);
            break;
        case FAULT_RANGE:
            snprintf(err, err_size, "%s: tensor %s has values beyond the range of %s%s", path,
                    s->name, quantize_type_word(job.to),
                    job.to == GGML_TYPE_F16 ? "; BF16 has the range of F32" : "");
            break;
        case FAULT_MEMORY:
            snprintf(err, err_size, "%s: out of memory for tensor %s", path, s->name);
            break;
    }
    return fault == FAULT_MEMORY ? LRNN_QUANTIZE_SYSTEM : LRNN_QUANTIZE_NOT_FINITE;
}

//
// The file
//

// What was there, with the new types, and what was done.
static struct gguf_context * make_metadata(const struct quantize_plan * plan,
        const struct model_file * file, const struct quantize_params * params) {
    struct gguf_context * gguf = gguf_init_from_file(
            model_file_path(file), (struct gguf_init_params) { .no_alloc = true });
    if (gguf == NULL) {
        return NULL;
    }
    char program[64];
    snprintf(program, sizeof(program), "lrnn-quantize %s", lrnn_version());
    gguf_set_val_u32(gguf, "general.file_type", quantize_file_type(params->type));
    gguf_set_val_u32(gguf, "general.quantization_version", GGML_QNT_VERSION);
    gguf_set_val_str(gguf, "lrnn.quantize.program", program);
    gguf_set_val_str(gguf, "lrnn.quantize.type", quantize_type_word(params->type));
    if (params->overrides_text != NULL) {
        gguf_set_val_str(gguf, "lrnn.quantize.tensor_types", params->overrides_text);
    }
    if (params->imatrix != NULL) { // llama.cpp's keys, and the hash
        gguf_set_val_str(gguf, "quantize.imatrix.file", params->imatrix_file);
        gguf_set_val_str(gguf, "quantize.imatrix.dataset", params->imatrix->dataset);
        gguf_set_val_u32(
                gguf, "quantize.imatrix.entries_count", (uint32_t) params->imatrix->n_entries);
        gguf_set_val_u32(
                gguf, "quantize.imatrix.chunks_count", (uint32_t) params->imatrix->n_chunks);
        gguf_set_val_str(gguf, "lrnn.quantize.imatrix_sha256", params->imatrix_sha256);
    }
    for (size_t i = 0; i < plan->n_tensors; ++i) {
        gguf_set_tensor_type(gguf, plan->tensors[i].source->name, plan->tensors[i].choice.to);
    }
    return gguf;
}

static enum lrnn_quantize_status write_metadata(struct atomic_file * out,
        const struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, char * err, size_t err_size) {
    struct gguf_context * gguf = make_metadata(plan, file, params);
    const size_t          size = gguf != NULL ? gguf_get_meta_size(gguf) : 0;
    char *                meta = gguf != NULL ? malloc(size) : NULL;
    bool                  ok   = meta != NULL;

    if (ok) {
        gguf_get_meta_data(gguf, meta);
        ok = atomic_file_write(out, meta, size, err, err_size);
    } else {
        snprintf(err, err_size, "%s: %s", model_file_path(file),
                gguf != NULL ? "out of memory for its metadata" : "ggml cannot read its metadata");
    }
    free(meta);
    if (gguf != NULL) {
        gguf_free(gguf);
    }
    return ok ? LRNN_QUANTIZE_OK : LRNN_QUANTIZE_SYSTEM;
}

static bool write_padded(struct atomic_file * out, const void * data, size_t size, size_t alignment,
        char * err, size_t err_size) {
    static const char zeros[256] = { 0 };
    if (!atomic_file_write(out, data, size, err, err_size)) {
        return false;
    }
    for (size_t left = GGML_PAD(size, alignment) - size; left > 0;) {
        const size_t n = left < sizeof(zeros) ? left : sizeof(zeros);
        if (!atomic_file_write(out, zeros, n, err, err_size)) {
            return false;
        }
        left -= n;
    }
    return true;
}

static int count_threads(int n_threads) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return n_threads > 0 ? n_threads : cores > 0 ? (int) cores : 1;
}

enum lrnn_quantize_status quantize_run(struct quantize_plan * plan, const struct model_file * file,
        const struct quantize_params * params, const char * path, quantize_callback done,
        void * user, char * err, size_t err_size) {
    const size_t              alignment = model_file_alignment(file);
    const int                 n_threads = count_threads(params->n_threads);
    struct atomic_file        out       = { 0 };
    enum lrnn_quantize_status status    = LRNN_QUANTIZE_OK;

    if (path != NULL) {
        if (!atomic_file_open(&out, path, err, err_size)) {
            return LRNN_QUANTIZE_SYSTEM;
        }
        status = write_metadata(&out, plan, file, params, err, err_size);
    }
    for (size_t i = 0; i < plan->n_tensors && status == LRNN_QUANTIZE_OK; ++i) {
        struct quantize_tensor * t       = &plan->tensors[i];
        const bool               copied  = t->choice.to == t->source->type;
        char *                   rounded = copied ? NULL : malloc(t->bytes);
        const void *             data    = copied ? t->source->data : rounded;
        if (data == NULL) {
            snprintf(err, err_size, "%s: out of memory for the %zu bytes of tensor %s",
                    model_file_path(file), t->bytes, t->source->name);
            status = LRNN_QUANTIZE_SYSTEM;
        } else if (!copied) {
            status = quantize_one(t, model_file_path(file), n_threads, rounded, err, err_size);
        }
        if (status == LRNN_QUANTIZE_OK && path != NULL &&
                !write_padded(&out, data, t->bytes, alignment, err, err_size)) {
            status = LRNN_QUANTIZE_SYSTEM;
        }
        free(rounded);
        if (status == LRNN_QUANTIZE_OK && done != NULL && !done(t, i, user)) {
            snprintf(err, err_size, "stopped after %zu of %zu tensors; nothing was written", i + 1,
                    plan->n_tensors);
            status = LRNN_QUANTIZE_STOPPED;
        }
    }
    if (path != NULL && status == LRNN_QUANTIZE_OK) {
        status = atomic_file_commit(&out, err, err_size) ? LRNN_QUANTIZE_OK : LRNN_QUANTIZE_SYSTEM;
    } else if (path != NULL) {
        atomic_file_cancel(&out);
    }
    return status;
}
