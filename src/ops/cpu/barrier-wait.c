// Waiting at a barrier.
//
// Between two products the threads of a graph are microseconds apart, so a short spin is the
// fastest way to wait. But if another process runs on the core of the thread that is waited for,
// spinning only keeps that thread from running: yield instead. Before it spins, a thread fetches
// weights that it will need (fetch-ahead.c).

#include "fetch-ahead.h"

#include <sched.h>

enum { SPINS = 1024 };

void ggml_lrnn_cpu_wait(int * n_spins, struct ggml_lrnn_cpu_order * order) {
    if (order != NULL && fetch_ahead(order)) {
        return;
    }
    if (*n_spins >= SPINS) {
        sched_yield();
        return;
    }
    ++*n_spins;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}
