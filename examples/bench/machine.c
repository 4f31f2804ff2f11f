#define _DARWIN_C_SOURCE // macOS: sysctlbyname, _SC_NPROCESSORS_ONLN

#include "machine.h"

#include "base/error.h"
#include "backends.h"
#include "lrnn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#    include <sys/sysctl.h>
#endif

enum {
    REPETITIONS = 10,
    PEAK_ROUNDS = 4 * 1000 * 1000, // 10 to 20 ms
};

// Larger than the last-level cache of all but the largest servers.
static const size_t COPY_BYTES = (size_t) 256 << 20;

//
// Description
//

static void cpu_name(char * name, size_t name_size) {
    snprintf(name, name_size, "unknown");
#ifdef __APPLE__
    size_t size = name_size;
    sysctlbyname("machdep.cpu.brand_string", name, &size, NULL, 0);
#else
    FILE * f = fopen("/proc/cpuinfo", "r");
    char   line[512];
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
            const char * value = strchr(line, ':') + 1;
            value += strspn(value, " \t");
            snprintf(name, name_size, "%.*s", (int) strcspn(value, "\n"), value);
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
#endif
}

void machine_describe(struct machine * m) {
    memset(m, 0, sizeof(*m));
    cpu_name(m->cpu, sizeof(m->cpu));
    backends_cpu_features(m->features, sizeof(m->features));
    m->cpus = (int) sysconf(_SC_NPROCESSORS_ONLN);
    m->vector_bits = peak_loops_vector_bits();
}

void machine_print(const struct machine * m) {
    printf("%s, %d CPUs, %s; lrnn %s, ggml %s\n", m->cpu, m->cpus, m->features, lrnn_version(),
            lrnn_ggml_version());
}

const struct machine_point * machine_point(const struct machine * m, int threads) {
    for (int i = 0; i < m->n_points; ++i) {
        if (m->points[i].threads == threads) {
            return &m->points[i];
        }
    }
    return NULL;
}

//
// Measurement
//

// Lets all threads start at once.
struct team {
    atomic_int  n_ready; // threads that wait
    atomic_bool go;
};

enum task { TASK_FMA, TASK_INT8, TASK_BF16, TASK_COPY, TASK_READ, N_TASKS };

struct worker {
    struct team * team;
    pthread_t     thread;
    enum task     task;
    const char *  from; // `size` bytes to copy or to read
    char *        to;
    size_t        size;
    uint64_t      sum;  // of what was read
    double        rate; // 10^9 operations, or bytes read plus written, per second
};

// A sum that compilers vectorize; of whole lines of the cache.
static uint64_t sum_of(const char * from, size_t size) {
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i + sizeof(sum) <= size; i += sizeof(sum)) {
        uint64_t line[8];
        memcpy(line, from + i, sizeof(line));
        for (int j = 0; j < 8; ++j) {
            sum[j] += line[j];
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// CPU time of this thread: other work of the machine must not lower the measured peak.
static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static void * worker_run(void * arg) {
    struct worker * w = arg;

    atomic_fetch_add(&w->team->n_ready, 1);
    while (!atomic_load(&w->team->go)) {
    }
    const double start = thread_seconds();
    double       amount;
    switch (w->task) {
        case TASK_COPY: {
            memcpy(w->to, w->from, w->size);
            amount = 2.0 * (double) w->size;
        } break;
        case TASK_READ: {
            w->sum = sum_of(w->from, w->size);
            amount = (double) w->size;
        } break;
        case TASK_INT8: amount = int8_loop(PEAK_ROUNDS); break;
        case TASK_BF16: amount = bf16_loop(PEAK_ROUNDS); break;
        default: amount = fma_loop(PEAK_ROUNDS); break;
    }
    w->rate = 1e-9 * amount / (thread_seconds() - start);
    return NULL;
}

// Runs all workers at once. Returns the sum of their rates, or -1 if a thread cannot be created.
static double team_run(struct worker * workers, int n) {
    struct team team;
    int         n_started = 0;

    atomic_init(&team.n_ready, 0);
    atomic_init(&team.go, false);
    for (; n_started < n; ++n_started) {
        workers[n_started].team = &team;
        if (pthread_create(&workers[n_started].thread, NULL, worker_run, &workers[n_started]) !=
                0) {
            break;
        }
    }
    while (atomic_load(&team.n_ready) < n_started) {
    }
    atomic_store(&team.go, true);

    double rate = 0.0;
    for (int i = 0; i < n_started; ++i) {
        pthread_join(workers[i].thread, NULL);
        rate += workers[i].rate;
    }
    return n_started == n ? rate : -1.0;
}

bool machine_measure(struct machine * m, int threads, struct lrnn_error * err) {
    if (m->n_points == MACHINE_POINTS_MAX) {
        error_bad_input(err, "-t lists more than %d thread counts", MACHINE_POINTS_MAX);
        return false;
    }

    struct machine_point point = { .threads = threads };
    struct worker *      workers = calloc((size_t) threads, sizeof(*workers));
    char *               from = malloc(COPY_BYTES);
    char *               to = malloc(COPY_BYTES);
    bool                 ok = workers != NULL && from != NULL && to != NULL;

    if (!ok) {
        error_no_memory(
                err, "two buffers of %zu MiB to measure the copy bandwidth", COPY_BYTES >> 20);
    } else {
        memset(from, 1, COPY_BYTES); // pages never written would share one page of zeros
        memset(to, 2, COPY_BYTES);
    }

    const size_t part = COPY_BYTES / (size_t) threads;
    double *     best[N_TASKS] = { &point.fma_gflops, &point.int8_gops, &point.bf16_gflops,
            &point.copy_gbps, &point.read_gbps };
    for (int r = 0; ok && r < N_TASKS * REPETITIONS; ++r) {
        const enum task task = (enum task)(r % N_TASKS);
        for (int i = 0; i < threads; ++i) {
            workers[i].task = task;
            workers[i].from = from + part * (size_t) i;
            workers[i].to = to + part * (size_t) i;
            workers[i].size = part;
        }
        const double rate = team_run(workers, threads);
        if (rate < 0.0) {
            error_set(err, LRNN_ERROR_SYSTEM, "cannot start %d threads", threads);
            ok = false;
        } else if (rate > *best[task]) {
            *best[task] = rate;
        }
    }
    if (ok) {
        m->points[m->n_points++] = point;
    }

    free(workers);
    free(from);
    free(to);
    return ok;
}
