// Waiting at a barrier.
//
// Between two products the threads of a graph are microseconds apart, so a short spin is the
// fastest way to wait. But if another process runs on the core of the thread that is waited for,
// spinning only keeps that thread from running: yield instead. Meanwhile the memory is idle, and
// the weights that the thread will read next can be fetched.

#include "glue.h"

#include <sched.h>

enum {
    SPINS = 1024,
    LINE  = 64, // bytes of a line of the cache
    LINES = 4,  // to prefetch between two looks at the barrier
};

void ggml_lrnn_cpu_wait(int n, struct ggml_lrnn_cpu_ahead * ahead) {
    if (ahead != NULL && ahead->at < ahead->end) {
        for (int i = 0; i < LINES; ++i, ahead->at += LINE) {
            __builtin_prefetch(ahead->at, 0, 2);
        }
        return;
    }
    if (n >= SPINS) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}
