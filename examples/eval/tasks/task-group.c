#include "eval/tasks/task-impl.h"

#include <stdlib.h>
#include <string.h>

// The least number of swaps that give p: n minus the number of cycles.
static int swaps_of(const uint8_t * p, int n) {
    bool seen[TASK_POINTS_MAX] = { false };
    int  swaps                 = n;
    for (int i = 0; i < n; ++i) {
        for (int j = i; !seen[j]; j = p[j]) {
            seen[j] = true;
            swaps -= j == i;
        }
    }
    return swaps;
}

// The next permutation in lexicographic order; false: p is the last.
static bool next_permutation(uint8_t * p, int n) {
    int i = n - 2;
    while (i >= 0 && p[i] > p[i + 1]) {
        --i;
    }
    if (i < 0) {
        return false;
    }
    int j = n - 1;
    while (p[j] < p[i]) {
        --j;
    }
    const uint8_t x = p[i];
    p[i]            = p[j];
    p[j]            = x;
    for (int a = i + 1, b = n - 1; a < b; ++a, --b) {
        const uint8_t y = p[a];
        p[a]            = p[b];
        p[b]            = y;
    }
    return true;
}

int task_find_element(const struct task * t, const uint8_t * p) {
    int lo = 0, hi = t->n_symbols - 1;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (memcmp(t->elements[mid], p, (size_t) t->points) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool task_make_group(struct task * t, bool even, int n, int max_swaps) {
    int size = 1;
    for (int i = 2; i <= n; ++i) {
        size *= i;
    }
    t->kind     = TASK_GROUP;
    t->points   = n;
    t->elements = calloc((size_t) size, sizeof(*t->elements));
    if (t->elements == NULL || !task_reserve(t, size)) {
        return false;
    }
    uint8_t p[TASK_POINTS_MAX] = { 0, 1, 2, 3, 4, 5, 6 };
    do {
        const int swaps = swaps_of(p, n);
        if (even && swaps % 2 != 0) {
            continue;
        }
        char name[TASK_POINTS_MAX + 1] = { 0 };
        for (int i = 0; i < n; ++i) {
            name[i] = (char) ('1' + p[i]);
        }
        memcpy(t->elements[t->n_symbols], p, sizeof(p));
        const int symbol = task_add_symbol(t, name, true);
        if (swaps <= max_swaps) {
            t->letters[t->n_letters++] = symbol;
        }
    } while (next_permutation(p, n));
    return true;
}
