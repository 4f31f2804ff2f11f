// The descending order of rows on the CPU: a permutation in which every number comes before the
// smaller ones, equal numbers in their order and NaN last, for any length and number of threads.

#include "kit/check.h"
#include "kit/tensors.h"

enum { ROWS = 5 };

// How many entries of the row come before entry i.
static int64_t rank_of(const float * x, int64_t n, int64_t i) {
    int64_t rank = 0;
    for (int64_t j = 0; j < n; ++j) {
        const bool equal = x[j] == x[i] || (isnan(x[j]) && isnan(x[i]));
        rank += equal ? j < i : x[j] > x[i] || isnan(x[i]);
    }
    return rank;
}

static void test_length(struct test * t, int64_t n) {
    struct test_arena a;
    struct test_rng   rng = { (uint64_t) n };
    test_arena_init(&a);
    struct ggml_tensor * x = test_tensor(&a, GGML_TYPE_F32, TEST_DENSE, "x", n, ROWS, 1, 1);
    test_fill_uniform(x, &rng, -1.0, 1.0);
    for (int64_t i = 0; i < n; ++i) {
        test_set(x, i, 1, 0, 0, (float) test_below(&rng, 3));                 // ties
        test_set(x, i, 2, 0, 0, test_below(&rng, 2) ? NAN : (float) (i % 7)); // many NaN
        test_set(x, i, 3, 0, 0, NAN);
        test_set(x, i, 4, 0, 0, i % 2 ? INFINITY : -INFINITY);
    }
    struct ggml_tensor * y = ggml_argsort(a.ctx, x, GGML_SORT_ORDER_DESC);
    test_alloc(&a, y);
    test_compute(&a, y, 1);
    for (int64_t r = 0; r < ROWS; ++r) {
        const float *   row = (const float *) x->data + r * n;
        const int32_t * ids = (const int32_t *) y->data + r * n;
        for (int64_t i = 0; i < n; ++i) {
            test_check(t, ids[rank_of(row, n, i)] == i, "row %d of %d: entry %d is not at its rank",
                    (int) r, (int) n, (int) i);
        }
    }
    void * one = malloc(ggml_nbytes(y));
    memcpy(one, y->data, ggml_nbytes(y));
    test_compute(&a, y, 3);
    test_check(t, memcmp(one, y->data, ggml_nbytes(y)) == 0,
            "rows of %d: 3 threads and one thread differ", (int) n);
    free(one);
    test_arena_free(&a);
}

int main(void) {
    static const int64_t lengths[] = { 1, 2, 3, 8, 17, 64, 512 };
    struct test          t = { 0 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
        test_length(&t, lengths[i]);
    }
    return test_end(&t, "test-argsort");
}
