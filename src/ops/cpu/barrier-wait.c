// Waiting at a barrier.
//
// Between two products the threads of a graph are microseconds apart, so a short spin is the
// fastest way to wait. But if another process runs on the core of the thread that is waited for,
// spinning only keeps that thread from running: yield instead.
//
// Generation is limited by memory, which would be idle meanwhile. A thread that waits knows the
// products that come next and which of their rows are its own. Before it spins, it fetches those
// rows into its second-level cache, a few lines at a time, until the wait is over.

#include "barriers.h"
#include "product/product.h"

#include <sched.h>

enum {
    SPINS = 1024,
    LINES = 8,             // to fetch between two looks at the barrier
    MAX_SIZE = 512 * 1024, // bytes to fetch before they are used: half of a second-level cache
};

void prefetch_from(struct ggml_lrnn_cpu_thread * t, int i) {
    if (i > t->prefetch.node) {
        t->prefetch = (struct prefetch) { .node = i - 1, .n_bytes = MAX_SIZE };
    }
}

// Continues with the next private product. Other products have many columns and are not limited by
// memory. Which experts come next may not be known yet.
static bool next_product(struct ggml_lrnn_cpu_thread * t) {
    struct prefetch * f = &t->prefetch;
    while (++f->node < t->plan->n_nodes) {
        const struct plan_step * step = &t->plan->steps[f->node];
        if (step->is_private && t->plan->nodes[f->node]->op == GGML_OP_MUL_MAT) {
            product_weights_of(
                    step->kernel, t->plan->nodes[f->node], t->ith, t->nth, &f->at, &f->end);
            return true;
        }
    }
    f->n_bytes = 0;
    return false;
}

// Fetches a few lines; false if there is nothing to fetch.
static bool fetch(struct ggml_lrnn_cpu_thread * t) {
    struct prefetch * f = &t->prefetch;
    if (f->n_bytes <= 0 || (f->at >= f->end && !next_product(t))) {
        return false;
    }
    for (int i = 0; i < LINES && f->at < f->end;
            ++i, f->at += CACHE_LINE, f->n_bytes -= CACHE_LINE) {
        __builtin_prefetch(f->at, 0, 2);
    }
    return true;
}

void ggml_lrnn_cpu_wait(int * n_spins, struct ggml_lrnn_cpu_thread * thread) {
    if (thread != NULL && fetch(thread)) {
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
