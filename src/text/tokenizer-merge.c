// Byte-pair encoding: the table of merges, and merging a list of symbols.

#include "base/buffer.h"
#include "base/hash.h"
#include "text/tokenizer-impl.h"

#include <stdlib.h>

// ---- The table ----------------------------------------------------------------------------------

#define FREE UINT64_MAX

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
}

// Returns the slot of the key, or the free slot where it belongs.
static size_t merges_slot(const struct merges * m, uint64_t key) {
    size_t i = (size_t) hash_mix(key) & (m->size - 1);
    while (m->key[i] != FREE && m->key[i] != key) {
        i = (i + 1) & (m->size - 1);
    }
    return i;
}

static bool merges_grow(struct merges * m) {
    struct merges big = { .size = m->size == 0 ? 1024 : m->size * 2, .n = m->n };
    big.key = malloc(big.size * sizeof(*big.key));
    big.value = malloc(big.size * sizeof(*big.value));
    if (big.key == NULL || big.value == NULL) {
        merges_free(&big);
        return false;
    }
    for (size_t i = 0; i < big.size; ++i) {
        big.key[i] = FREE;
    }
    for (size_t i = 0; i < m->size; ++i) {
        if (m->key[i] != FREE) {
            const size_t slot = merges_slot(&big, m->key[i]);
            big.key[slot] = m->key[i];
            big.value[slot] = m->value[i];
        }
    }
    merges_free(m);
    *m = big;
    return true;
}

bool merges_put(struct merges * m, int32_t left, int32_t right, uint32_t rank, int32_t result) {
    if (m->n * 2 >= m->size && !merges_grow(m)) {
        return false;
    }
    const uint64_t key = pair_key(left, right);
    const size_t   slot = merges_slot(m, key);
    m->n += m->key[slot] == FREE;
    m->key[slot] = key;
    m->value[slot] = (uint64_t) rank << 32 | (uint32_t) result;
    return true;
}

void merges_free(struct merges * m) {
    free(m->key);
    free(m->value);
    *m = (struct merges) { 0 };
}

static bool merges_get(
        const struct merges * m, int32_t left, int32_t right, uint32_t * rank, int32_t * result) {
    if (m->size == 0 || left < 0 || right < 0) {
        return false;
    }
    const size_t slot = merges_slot(m, pair_key(left, right));
    if (m->key[slot] == FREE) {
        return false;
    }
    *rank = (uint32_t) (m->value[slot] >> 32);
    *result = (int32_t) (m->value[slot] & UINT32_MAX);
    return true;
}

bool merges_has(const struct merges * m, int32_t left, int32_t right) {
    uint32_t rank;
    int32_t  result;
    return merges_get(m, left, right, &rank, &result);
}

// ---- The heap -----------------------------------------------------------------------------------

static bool heap_reserve(struct merge_work * w, size_t n) {
    return array_grow(&w->heap, &w->heap_capacity, n, sizeof(*w->heap));
}

static void heap_sink(struct merge_candidate * heap, size_t n, size_t i) {
    const struct merge_candidate c = heap[i];
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) {
            child++;
        }
        if (heap[child].order >= c.order) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = c;
}

static void heap_rise(struct merge_candidate * heap, size_t i) {
    const struct merge_candidate c = heap[i];
    while (i > 0 && heap[(i - 1) / 2].order > c.order) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

// Appends the merge of a symbol with its right neighbor to the heap; the caller restores the order.
// Returns false if there is no such merge.
static bool candidate_add(const struct merges * m, struct merge_work * w, int32_t left) {
    const int32_t right = left >= 0 ? w->symbols[left].next : -1;
    uint32_t      rank;
    int32_t       result;
    if (right < 0 || !merges_get(m, w->symbols[left].id, w->symbols[right].id, &rank, &result)) {
        return false;
    }
    w->heap[w->n_heap++] =
            (struct merge_candidate) { (uint64_t) rank << 32 | (uint32_t) left, result };
    return true;
}

// ---- Merging ------------------------------------------------------------------------------------

bool merge_work_push(struct merge_work * w, int32_t id, uint32_t start) {
    if (!array_grow(&w->symbols, &w->capacity, w->n_symbols + 1, sizeof(*w->symbols))) {
        return false;
    }
    const int32_t n = (int32_t) w->n_symbols++;
    w->symbols[n] = (struct symbol) { .id = id, .prev = n - 1, .next = -1, .start = start };
    if (n > 0) {
        w->symbols[n - 1].next = n;
    }
    return true;
}

void merge_work_free(struct merge_work * w) {
    free(w->symbols);
    free(w->heap);
    *w = (struct merge_work) { 0 };
}

bool merge_symbols(const struct merges * m, struct merge_work * w) {
    // There are at most n − 1 merges; each removes one candidate and adds at most two.
    if (!heap_reserve(w, 2 * w->n_symbols + 2)) {
        return false;
    }
    w->n_heap = 0;
    for (size_t i = 0; i < w->n_symbols; ++i) {
        candidate_add(m, w, (int32_t) i);
    }
    for (size_t i = w->n_heap / 2; i-- > 0;) {
        heap_sink(w->heap, w->n_heap, i);
    }

    struct symbol * s = w->symbols;
    while (w->n_heap > 0) {
        const struct merge_candidate c = w->heap[0];
        w->heap[0] = w->heap[--w->n_heap];
        if (w->n_heap > 0) {
            heap_sink(w->heap, w->n_heap, 0);
        }

        // the symbols may have been merged with others in the meantime
        const int32_t left = (int32_t) (c.order & UINT32_MAX);
        const int32_t right = s[left].next;
        uint32_t      rank;
        int32_t       result;
        if (right < 0 || !merges_get(m, s[left].id, s[right].id, &rank, &result) ||
                result != c.result) {
            continue;
        }

        s[left].id = result;
        s[left].next = s[right].next;
        if (s[left].next >= 0) {
            s[s[left].next].prev = left;
        }
        s[right].id = SYMBOL_NONE; // invalidates the candidates that start here
        s[right].next = -1;

        if (candidate_add(m, w, s[left].prev)) {
            heap_rise(w->heap, w->n_heap - 1);
        }
        if (candidate_add(m, w, left)) {
            heap_rise(w->heap, w->n_heap - 1);
        }
    }
    return true;
}
