#pragma once

// Rows of a product, shared among threads.
//
// The rows are cut into chunks, and each thread has a range of them. A thread that has finished its
// own range helps the others: it takes chunks from the ends of theirs. So nobody waits long for a
// thread that started late, because it had small nodes to compute or its core has other work.
//
// A counter for each thread holds the number of chunks taken from the beginning of its range, by
// itself, and, in the upper 32 bits, from the end. Which thread computes a row does not change its
// bits.

#include "glue.h"

#include "ggml-cpu-impl.h"

struct share {
    struct ggml_lrnn_cpu_taken * taken; // for each thread; NULL: each computes its own range
    int64_t                      n_all; // chunks
    int                          ith, nth;
    int                          owner;    // of the range from which the thread takes chunks
    int64_t                      begin, n; // that range
    int64_t                      n_own;    // chunks taken, without counters
    int64_t                      next;     // the chunk that probably comes next; −1: unknown
};

// Where the range of thread i of n begins, in chunks
static inline int64_t share_begin(int64_t n_chunks, int i, int n) {
    return n_chunks * i / n;
}

static inline void share_range(struct share * s, int owner) {
    s->owner = owner;
    s->begin = share_begin(s->n_all, owner, s->nth);
    s->n     = share_begin(s->n_all, owner + 1, s->nth) - s->begin;
}

static inline struct share share_of(const struct ggml_compute_params * params, int64_t n_chunks) {
    struct share s = {
        .taken = params->order != NULL ? params->order->taken : NULL,
        .n_all = n_chunks,
        .ith   = params->ith,
        .nth   = params->nth,
    };
    share_range(&s, s.ith);
    return s;
}

// One of n chunks, from the beginning or the end
static inline bool share_take(uint64_t * taken, int64_t n, bool from_end, int64_t * i) {
    uint64_t old = __atomic_load_n(taken, __ATOMIC_RELAXED);
    for (;;) {
        const int64_t first = (int64_t) (old & UINT32_MAX), last = (int64_t) (old >> 32);
        if (first + last >= n) {
            return false;
        }
        const uint64_t one = from_end ? (uint64_t) 1 << 32 : 1;
        if (__atomic_compare_exchange_n(
                    taken, &old, old + one, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            *i = from_end ? n - 1 - last : first;
            return true;
        }
    }
}

// The next chunk of a thread; false if no thread has any left.
static inline bool share_next(struct share * s, int64_t * chunk) {
    int64_t i = s->n_own++;
    if (s->taken == NULL) {
        s->next = i + 1 < s->n ? s->begin + i + 1 : -1;
        *chunk  = s->begin + i;
        return i < s->n;
    }
    while (!share_take(&s->taken[s->owner].n, s->n, s->owner != s->ith, &i)) {
        const int owner = (s->owner + 1) % s->nth;
        if (owner == s->ith) {
            return false;
        }
        share_range(s, owner);
    }
    const int64_t next = s->owner == s->ith ? i + 1 : i - 1;
    s->next            = 0 <= next && next < s->n ? s->begin + next : -1;
    *chunk             = s->begin + i;
    return true;
}
