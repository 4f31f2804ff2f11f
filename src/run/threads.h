#pragma once

// The number of threads of a batch.
//
// Threads meet at barriers between the nodes of a graph. On a busy machine a thread then often
// waits until another one is scheduled again, and several threads can be a hundred times slower
// than one. So small batches of small models use one thread, and other small batches use whatever
// was faster lately. Results do not depend on the number of threads.

#include <stdbool.h>
#include <stdint.h>

enum { THREADS_MEASURED_MAX = 32 }; // batches up to this many tokens are measured

struct threads_stats { // of batches of one size
    double  many, one; // moving averages of the seconds per batch; 0: unknown
    int32_t n_batches; // since the last change between one and many
    bool    use_one;   // one thread is faster
    int32_t hold;      // batches until many threads are tried again
    int32_t n_good;    // successful tries in a row
};

struct threads {
    int32_t              n_max;
    double               work_per_token; // weights that are multiplied per token
    int64_t              n_tokens;       // of the current batch
    int32_t              n;              // threads of the current batch
    struct threads_stats stats[THREADS_MEASURED_MAX + 1];
};

// Returns the number of threads for a batch of n_tokens.
int32_t threads_choose(struct threads * t, int64_t n_tokens);

// Reports how long that batch took.
void threads_measure(struct threads * t, double seconds);
