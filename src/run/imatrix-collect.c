// Collects an importance matrix while a session runs.

#include "base/error.h"
#include "file/imatrix.h"
#include "file/quantize-policy.h"
#include "lrnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lrnn_imatrix {
    const struct lrnn_model * model;
    struct imatrix            imatrix;
    struct lrnn_error         err; // LRNN_ERROR_NONE unless collecting failed
};

struct lrnn_imatrix * lrnn_imatrix_new(const struct lrnn_model * model, struct lrnn_error * err) {
    struct lrnn_imatrix * im = calloc(1, sizeof(*im));
    if (im == NULL) {
        error_no_memory(err, "an importance matrix");
        return NULL;
    }
    im->model = model;
    return im;
}

void lrnn_imatrix_free(struct lrnn_imatrix * im) {
    if (im != NULL) {
        imatrix_free(&im->imatrix);
        free(im);
    }
}

// A weight with three dimensions [columns, rows, matrices] is several matrices, each with its own
// inputs.
static int64_t count_matrices(const struct lrnn_model * model, const char * weight) {
    struct lrnn_tensor_info t;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        if (strcmp(t.name, weight) == 0) {
            return t.ne[2] * t.ne[3];
        }
    }
    return 1;
}

bool lrnn_imatrix_collect(const struct lrnn_trace_event * event, void * imatrix) {
    struct lrnn_imatrix * im = imatrix;
    if (quantize_role_of(event->weight) == QUANTIZE_VECTOR) {
        return true; // the router of a mixture, which stays F32
    }
    const struct lrnn_trace_tensor * x = lrnn_trace_find(event, "x");
    const struct imatrix_entry *     e = imatrix_find(&im->imatrix, event->weight);
    const int64_t n_matrices = e != NULL ? e->n_matrices : count_matrices(im->model, event->weight);

    return imatrix_add(&im->imatrix, event->weight, x->ne[0], n_matrices, event->slice, x->data,
            x->ne[1] * x->ne[2] * x->ne[3], &im->err);
}

bool lrnn_imatrix_save(const struct lrnn_imatrix * im, const char * path, const char * dataset,
        int64_t n_windows, int64_t window_size, struct lrnn_error * err) {
    if (im->err.kind != LRNN_ERROR_NONE) {
        return error_set(err, im->err.kind, "%s", im->err.text);
    }
    struct imatrix m = im->imatrix;
    m.n_windows = n_windows;
    m.window_size = window_size;
    snprintf(m.dataset, sizeof(m.dataset), "%s", dataset);
    return imatrix_write(&m, path, err);
}
