// The order of the numbers of a row, as the routers of mixtures need it: the largest first.
//
// ggml's kernel passes its comparison to std::sort, which may read outside a row with a NaN. Here
// every row gives a permutation: NaN comes after all numbers, and equal numbers in their order. So
// the rows that a router chooses exist, whatever the weights are.

#include "glue.h"

#include "ggml-cpu-impl.h"

#include <math.h>

// True if entry a of the row comes before entry b.
static bool is_before(const float * x, int32_t a, int32_t b) {
    if (x[a] > x[b] || (isnan(x[b]) && !isnan(x[a]))) {
        return true;
    }
    const bool equal = x[a] == x[b] || (isnan(x[a]) && isnan(x[b]));
    return equal && a < b;
}

// Moves the entry at `i` down until it comes after those below it in the heap of n entries, whose
// top comes last in the order.
static void sift(const float * x, int32_t * ids, int64_t i, int64_t n) {
    const int32_t moved = ids[i];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && is_before(x, ids[child], ids[child + 1])) {
            child++;
        }
        if (!is_before(x, moved, ids[child])) {
            break;
        }
        ids[i] = ids[child];
        i = child;
    }
    ids[i] = moved;
}

static void sort_row(const float * x, int32_t * ids, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        ids[i] = (int32_t) i;
    }
    for (int64_t i = n / 2; i > 0; --i) {
        sift(x, ids, i - 1, n);
    }
    for (int64_t last = n - 1; last > 0; --last) {
        const int32_t top = ids[0];
        ids[0] = ids[last];
        ids[last] = top;
        sift(x, ids, 0, last);
    }
}

bool ggml_lrnn_cpu_argsort(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    const struct ggml_tensor * src = dst->src[0];
    if (dst->op_params[0] != GGML_SORT_ORDER_DESC || !ggml_is_contiguous(src) ||
            !ggml_is_contiguous(dst)) {
        return false;
    }
    const int64_t n = dst->ne[0];
    for (int64_t i = params->ith; i < ggml_nrows(dst); i += params->nth) {
        sort_row((const float *) src->data + i * n, (int32_t *) dst->data + i * n, n);
    }
    return true;
}
