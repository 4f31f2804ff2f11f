#pragma once

// Slices of the rows of a matrix, divided among threads by work stealing.
//
// Each thread owns a range of slices. A thread that has finished its own range takes slices from
// the ends of the others'. So nobody waits long for a thread that started late, because it had
// small nodes to compute or its core has other work.
//
// A counter for each thread holds the number of slices taken from the beginning of its range, by
// itself, and, in the upper 32 bits, from the end, by others. Results do not depend on which thread
// computes a row.

#include <stdbool.h>
#include <stdint.h>

struct row_counter {
    uint64_t n;
    char     line[64 - sizeof(uint64_t)]; // threads do not write to the same line of the cache
};

struct row_queue {
    struct row_counter * counters; // one for each thread; NULL: each computes its own range
    int64_t              n_slices; // of all threads
    int                  ith, nth;
    int                  owner;    // of the range from which the thread takes slices
    int64_t              begin, n; // that range
    int64_t              n_taken;  // without counters
    int64_t              next;     // the slice that probably comes next; −1: unknown
};

// Where the range of thread i of n begins, in slices
static inline int64_t row_queue_begin(int64_t n_slices, int i, int n) {
    return n_slices * i / n;
}

static inline void row_queue_enter(struct row_queue * q, int owner) {
    q->owner = owner;
    q->begin = row_queue_begin(q->n_slices, owner, q->nth);
    q->n = row_queue_begin(q->n_slices, owner + 1, q->nth) - q->begin;
}

static inline struct row_queue row_queue_of(
        struct row_counter * counters, int64_t n_slices, int ith, int nth) {
    struct row_queue q = { .counters = counters, .n_slices = n_slices, .ith = ith, .nth = nth };
    row_queue_enter(&q, ith);
    return q;
}

// One of n slices, from the beginning or the end
static inline bool row_counter_take(uint64_t * taken, int64_t n, bool from_end, int64_t * i) {
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

// The next slice of a thread; false if no thread has any left.
static inline bool row_queue_next(struct row_queue * q, int64_t * slice) {
    int64_t i = q->n_taken++;
    if (q->counters == NULL) {
        q->next = i + 1 < q->n ? q->begin + i + 1 : -1;
        *slice = q->begin + i;
        return i < q->n;
    }
    while (!row_counter_take(&q->counters[q->owner].n, q->n, q->owner != q->ith, &i)) {
        const int owner = (q->owner + 1) % q->nth;
        if (owner == q->ith) {
            return false;
        }
        row_queue_enter(q, owner);
    }
    const int64_t next = q->owner == q->ith ? i + 1 : i - 1;
    q->next = 0 <= next && next < q->n ? q->begin + next : -1;
    *slice = q->begin + i;
    return true;
}
