#define _DEFAULT_SOURCE // madvise

#include "model/weights.h"

#include "base/error.h"
#include "file/huge-pages.h"
#include "file/model-file.h"
#include "model/context.h"

#include "ggml-alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PIECE = 16 << 20, // bytes between two progress reports
    COPY_BLOCKS = 2,  // huge pages that a thread copies at once
    COPIERS = 7,      // threads that copy weights besides the one that loads, at most
};

bool weights_open(struct loader * l) {
    struct lrnn_model * model = l->model;
    const size_t        n_tensors = model_file_n_tensors(model->file);
    size_t              size = 0;
    const void *        bytes = model_file_bytes(model->file, &size);

    model->devices[0].buffer = ggml_backend_cpu_buffer_from_ptr((void *) (uintptr_t) bytes, size);
    bool ok = model->devices[0].buffer != NULL;
    for (int32_t i = 0; ok && i < model->n_devices; ++i) {
        model->devices[i].ctx = context_new(n_tensors + 1, 0);
        ok = model->devices[i].ctx != NULL;
    }
    if (!ok) {
        return loader_no_memory(l, n_tensors, "tensor headers");
    }
    ggml_backend_buffer_set_usage(model->devices[0].buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    return true;
}

struct ggml_tensor * weights_add(
        struct loader * l, int32_t device, const char * name, int n_dims, const int64_t * ne) {
    struct lrnn_model *         model = l->model;
    const struct model_tensor * t = model_file_find_tensor(model->file, name);
    struct ggml_tensor * tensor = ggml_new_tensor(model->devices[device].ctx, t->type, n_dims, ne);
    ggml_set_name(tensor, name);
    if (device == 0) {
        ggml_backend_buffer_t buffer = model->devices[0].buffer;
        if (ggml_backend_tensor_alloc(
                    buffer, tensor, (char *) ggml_backend_buffer_get_base(buffer) + t->offset) !=
                GGML_STATUS_SUCCESS) {
            loader_fail(l, "tensor %s: ggml rejects its place in the mapped file", name);
            return NULL;
        }
    }
    return tensor;
}

// ---- Copying and prefetching --------------------------------------------------------------------

struct fetch {
    lrnn_progress report; // NULL: none
    void *        user;
    double        done, all; // bytes
};

static bool report(struct loader * l, struct fetch * f, size_t n) {
    f->done += (double) n;
    return f->report == NULL ||
           f->report(f->done < f->all ? (float) (f->done / f->all) : 1.0f, f->user) ||
           loader_fail_with(l,
                   &(struct lrnn_error) {
                           LRNN_ERROR_CANCELLED, "stopped by the progress callback" },
                   NULL);
}

// A hint for the whole pages of a range.
static void advise(const uint8_t * data, size_t size, int advice) {
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t) data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t) data + size) / page * page;
    if (end > begin) {
        madvise((void *) begin, end - begin, advice);
    }
}

// Reads one byte of every page.
static void touch(const uint8_t * data, size_t size) {
    const size_t page = (size_t) sysconf(_SC_PAGESIZE);
    advise(data, size, MADV_WILLNEED);
    for (size_t i = 0; i < size; i += page) {
        (void) *(const volatile uint8_t *) (data + i);
    }
}

static bool fetch_tensor(
        struct loader * l, struct ggml_tensor * tensor, bool upload, struct fetch * f) {
    const struct model_tensor * t = model_file_find_tensor(l->file, tensor->name);
    size_t                      size;
    const uint8_t * data = (const uint8_t *) model_file_bytes(l->file, &size) + t->offset;
    for (size_t at = 0; at < t->size; at += PIECE) {
        const size_t n = t->size - at < PIECE ? t->size - at : PIECE;
        if (upload) {
            ggml_backend_tensor_set(tensor, data + at, at, n);
        } else {
            touch(data + at, n);
        }
        if (!report(l, f, n)) {
            return false;
        }
    }
    if (upload) {
        advise(data, t->size, MADV_DONTNEED); // the copy is enough
    }
    return true;
}

// The matrices of all experts, of which a token reads a few.
static bool is_experts(const struct ggml_tensor * t) {
    return strstr(t->name, "_exps.") != NULL;
}

static double count_bytes(const struct device * device, bool experts) {
    double bytes = 0.0;
    for (struct ggml_tensor * t = ggml_get_first_tensor(device->ctx); t != NULL;
            t = ggml_get_next_tensor(device->ctx, t)) {
        bytes += experts || !is_experts(t) ? (double) ggml_nbytes(t) : 0.0;
    }
    return bytes;
}

// ---- Huge pages ---------------------------------------------------------------------------------

// The blocks of HUGE_PAGE bytes, at multiples of it, that are inside the mapping.
struct blocks {
    uint8_t * first;
    size_t    n, n_wanted;
    bool *    wanted; // [n]
};

// Wants all blocks with weights that a token reads: not the embedding, of which it reads one row.
static struct blocks find_blocks(const struct lrnn_model * model, bool experts) {
    size_t          size;
    const uintptr_t begin = (uintptr_t) model_file_bytes(model->file, &size);
    const uintptr_t first = (begin + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t last = (begin + size) / HUGE_PAGE * HUGE_PAGE;

    struct blocks b = { .first = (uint8_t *) first };
    b.n = last > first ? (last - first) / HUGE_PAGE : 0;
    b.wanted = b.n > 0 ? calloc(b.n, sizeof(b.wanted[0])) : NULL;
    if (b.wanted == NULL) {
        return (struct blocks) { 0 };
    }
    for (struct ggml_tensor * t = ggml_get_first_tensor(model->devices[0].ctx); t != NULL;
            t = ggml_get_next_tensor(model->devices[0].ctx, t)) {
        if ((t == model->token_embd && t != model->output) || (!experts && is_experts(t))) {
            continue;
        }
        const uintptr_t from = (uintptr_t) t->data, to = from + ggml_nbytes(t);
        for (uintptr_t at = from / HUGE_PAGE * HUGE_PAGE; at < to; at += HUGE_PAGE) {
            if (at >= first && at < last && !b.wanted[(at - first) / HUGE_PAGE]) {
                b.wanted[(at - first) / HUGE_PAGE] = true;
                b.n_wanted++;
            }
        }
    }
    return b;
}

// Threads copy pieces of neighboring blocks, so that few weights are twice in memory.
struct copy {
    const struct blocks * blocks;
    pthread_mutex_t       lock;
    size_t                next;   // block that no thread has taken
    size_t                n_done; // bytes that are copied and not reported
    bool                  stop;   // out of memory, or cancelled
};

// Takes blocks i … i + n − 1 of the next piece. The file is read ahead by a piece.
static bool take_piece(struct copy * c, size_t * i, size_t * n) {
    const struct blocks * b = c->blocks;
    pthread_mutex_lock(&c->lock);
    while (c->next < b->n && !b->wanted[c->next]) {
        ++c->next;
    }
    *i = c->next;
    for (*n = 0; !c->stop && *i + *n < b->n && b->wanted[*i + *n] && *n < COPY_BLOCKS; ++*n) {
    }
    c->next += *n;
    pthread_mutex_unlock(&c->lock);
    if (*n > 0) {
        const size_t ahead = *i + 2 * *n <= b->n ? 2 * *n : *n;
        advise(b->first + *i * HUGE_PAGE, ahead * HUGE_PAGE, MADV_WILLNEED);
    }
    return *n > 0;
}

// Copies a piece; false if there is none. Out of memory, the rest stays mapped.
static bool copy_piece(struct copy * c) {
    size_t i, n;
    if (!take_piece(c, &i, &n)) {
        return false;
    }
    const bool ok = huge_pages_replace(c->blocks->first + i * HUGE_PAGE, n * HUGE_PAGE);
    pthread_mutex_lock(&c->lock);
    c->n_done += ok ? n * HUGE_PAGE : 0;
    c->stop = c->stop || !ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void * copy_pieces(void * copy) {
    while (copy_piece(copy)) {
    }
    return NULL;
}

// Reports what was copied since the last report.
static bool report_copy(struct loader * l, struct fetch * f, struct copy * c) {
    pthread_mutex_lock(&c->lock);
    const size_t n = c->n_done;
    c->n_done = 0;
    pthread_mutex_unlock(&c->lock);
    return report(l, f, n);
}

static bool replace_blocks(struct loader * l, const struct blocks * b, struct fetch * f) {
    struct copy copy = { .blocks = b };
    pthread_t   threads[COPIERS];
    const long  cores = sysconf(_SC_NPROCESSORS_ONLN);
    int         n = 0;
    pthread_mutex_init(&copy.lock, NULL);
    while (n < COPIERS && n < cores - 1 &&
            pthread_create(&threads[n], NULL, copy_pieces, &copy) == 0) {
        ++n;
    }
    bool ok = true;
    while (ok && copy_piece(&copy)) { // only this thread reports
        ok = report_copy(l, f, &copy);
    }
    pthread_mutex_lock(&copy.lock);
    copy.stop = copy.stop || !ok;
    pthread_mutex_unlock(&copy.lock);
    for (int i = 0; i < n; ++i) {
        pthread_join(threads[i], NULL);
    }
    ok = ok && report_copy(l, f, &copy);
    pthread_mutex_destroy(&copy.lock);
    return ok;
}

// ---- All devices --------------------------------------------------------------------------------

// Weights that stay in the mapped file are read ahead, but not experts: some may never be used.
static bool fetch_device(struct loader * l, int32_t i, struct fetch * f) {
    struct ggml_context * ctx = l->model->devices[i].ctx;
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
            t = ggml_get_next_tensor(ctx, t)) {
        if ((i > 0 || !is_experts(t)) && !fetch_tensor(l, t, i > 0, f)) {
            return false;
        }
    }
    return true;
}

// The blocks to copy to huge pages, as far as memory allows: all, those that every token reads, or
// none. A copy of the experts reads all of them.
static struct blocks choose_blocks(const struct lrnn_model * model) {
    for (int experts = 1; experts >= 0; --experts) {
        struct blocks b = find_blocks(model, experts == 1);
        if (b.n_wanted > 0 && huge_pages_fit(b.n_wanted * HUGE_PAGE)) {
            return b;
        }
        free(b.wanted);
    }
    return (struct blocks) { 0 };
}

// The weights of the CPU. They are copied to huge pages only if the CPU has all weights: after a
// copy to another device the memory of a weight is released, which only mapped pages survive.
static bool fetch_mapped(
        struct loader * l, const struct lrnn_model_params * params, struct fetch * f) {
    const bool    may_copy = l->model->n_devices == 1 && (params == NULL || !params->no_huge_pages);
    struct blocks blocks = may_copy ? choose_blocks(l->model) : (struct blocks) { 0 };
    bool          ok = true;
    if (blocks.n_wanted > 0) {
        f->all += (double) (blocks.n_wanted * HUGE_PAGE);
        ok = replace_blocks(l, &blocks, f);
    } else if (f->report != NULL) {
        // A file larger than the memory would evict its own pages.
        const double memory = (double) sysconf(_SC_PHYS_PAGES) * (double) sysconf(_SC_PAGESIZE);
        const double bytes = count_bytes(&l->model->devices[0], false);
        if (bytes < memory) {
            f->all += bytes;
            ok = fetch_device(l, 0, f);
        }
    }
    free(blocks.wanted);
    return ok;
}

bool weights_fetch(struct loader * l, const struct lrnn_model_params * params) {
    struct lrnn_model * model = l->model;
    struct fetch        f = { .report = params != NULL ? params->progress : NULL,
               .user = params != NULL ? params->progress_user : NULL };

    for (int32_t i = 1; i < model->n_devices; ++i) {
        struct device * device = &model->devices[i];
        device->buffer = ggml_backend_alloc_ctx_tensors_from_buft(
                device->ctx, ggml_backend_dev_buffer_type(device->dev));
        if (device->buffer == NULL) {
            struct lrnn_error why;
            error_set(&why, LRNN_ERROR_NO_MEMORY,
                    "device %s: out of memory for %.0f bytes of weights; offload fewer layers",
                    ggml_backend_dev_name(device->dev), count_bytes(device, true));
            return loader_fail_with(l, &why, NULL);
        }
        ggml_backend_buffer_set_usage(device->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        f.all += count_bytes(device, true);
    }
    if (!fetch_mapped(l, params, &f)) {
        return false;
    }
    for (int32_t i = 1; i < model->n_devices; ++i) {
        if (!fetch_device(l, i, &f)) {
            return false;
        }
    }
    return report(l, &f, 0);
}

void weights_free(struct lrnn_model * model) {
    for (int32_t i = 0; i < model->n_devices; ++i) {
        ggml_backend_buffer_free(model->devices[i].buffer);
        context_free(model->devices[i].ctx);
    }
}
