#include "eval/importance.h"

#include <string.h>

// A weight of three dimensions [columns, rows, matrices] is several matrices, each with inputs of
// its own.
static int64_t count_matrices(const struct lrnn_model * model, const char * weight) {
    struct lrnn_tensor_info t;
    for (int64_t i = 0; lrnn_model_get_tensor(model, i, &t); ++i) {
        if (strcmp(t.name, weight) == 0) {
            return t.ne[2] * t.ne[3];
        }
    }
    return 1;
}

bool importance_watch(const struct lrnn_watched * watched, void * user) {
    struct importance *                im = user;
    const struct lrnn_watched_tensor * x  = lrnn_watched_get(watched, "x");
    const struct imatrix_entry *       e  = imatrix_find(&im->imatrix, watched->weight);

    return imatrix_add(&im->imatrix, watched->weight, x->ne[0],
            e != NULL ? e->n_matrices : count_matrices(im->model, watched->weight), watched->slice,
            x->data, x->ne[1] * x->ne[2] * x->ne[3], im->err, sizeof(im->err));
}
