#include "job.h"

#include <stdlib.h>
#include <time.h>

struct job * job_new(int64_t n_choices) {
    struct job * job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return NULL;
    }
    job->choices = calloc((size_t) n_choices, sizeof(*job->choices));
    if (job->choices == NULL) {
        free(job);
        return NULL;
    }
    job->n_choices = n_choices;
    for (int64_t i = 0; i < n_choices; ++i) {
        job->choices[i].job = job;
        job->choices[i].seq = -1;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&job->mutex, NULL);
    pthread_cond_init(&job->cond, &attr);
    pthread_condattr_destroy(&attr);
    return job;
}

void job_free(struct job * job) {
    if (job == NULL) {
        return;
    }
    for (int64_t i = 0; i < job->n_choices; ++i) {
        free(job->choices[i].scores);
        buffer_free(&job->choices[i].text);
        free(job->choices[i].tokens);
    }
    pthread_cond_destroy(&job->cond);
    pthread_mutex_destroy(&job->mutex);
    state_file_free(&job->state);
    free(job->choices);
    free(job);
}

int64_t job_n_results(const struct job * job) {
    int64_t n = job->n_done;
    for (int64_t i = 0; i < job->n_choices; ++i) {
        n += job->choices[i].n_new;
    }
    return n;
}

int64_t job_wait(struct job * job, int64_t n_seen, int64_t timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (job_n_results(job) == n_seen &&
            pthread_cond_timedwait(&job->cond, &job->mutex, &until) == 0) {
    }
    return job_n_results(job);
}
