#include "run-progress.h"

#include "interrupt.h"

#include "ggml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t PLAIN_LINE_EVERY_US    = 30 * 1000 * 1000;
static const int64_t TERMINAL_LINE_EVERY_US = 200 * 1000;

void run_progress_begin(struct run_progress * p, bool quiet, double limit_s) {
    const char * term = getenv("TERM");
    ggml_time_init();
    *p = (struct run_progress) {
        .quiet       = quiet,
        .is_terminal = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0,
        .limit_s     = limit_s,
        .start_us    = ggml_time_us(),
        .shown_us    = ggml_time_us(),
    };
}

bool run_progress_is_over(const struct run_progress * p) {
    return interrupt_seen() ||
           (p->limit_s > 0.0 && 1e-6 * (double) (ggml_time_us() - p->start_us) >= p->limit_s);
}

// True if it is time for another line.
static bool is_due(struct run_progress * p) {
    const int64_t now = ggml_time_us();
    if (p->quiet ||
            now - p->shown_us < (p->is_terminal ? TERMINAL_LINE_EVERY_US : PLAIN_LINE_EVERY_US)) {
        return false;
    }
    p->shown_us = now;
    return true;
}

static void print_time(double s) {
    if (s < 100.0) {
        fprintf(stderr, "about %.0f s left", s);
    } else if (s < 100.0 * 60.0) {
        fprintf(stderr, "about %.0f min left", s / 60.0);
    } else {
        fprintf(stderr, "about %.1f h left", s / 3600.0);
    }
}

bool run_progress_score(const struct score_progress * s, void * user) {
    struct run_progress * p = user;
    if (is_due(p)) {
        const int64_t left = p->n_tokens - s->n_resumed - s->n_tokens;
        const double  rate =
                (double) s->n_tokens / (1e-6 * (double) (ggml_time_us() - p->begun_us) + 1e-9);
        fprintf(stderr, "%s%s: ", p->is_terminal ? "\r\033[K" : "", p->model);
        if (s->n_windows > 1) {
            fprintf(stderr, "windows %" PRId64 "-%" PRId64, s->window + 1,
                    s->window + s->n_windows);
        } else {
            fprintf(stderr, "window %" PRId64, s->window + 1);
        }
        fprintf(stderr, " of %" PRId64 ", token %" PRId64 " of %" PRId64 ", %.0f tokens/s, ",
                p->n_windows, s->at, s->length, rate);
        print_time((double) (left > 0 ? left : 0) / rate);
        fprintf(stderr, "%s", p->is_terminal ? "" : "\n");
        fflush(stderr);
    }
    return !run_progress_is_over(p);
}

bool run_progress_data(const struct windows_summary * so_far, void * user) {
    struct run_progress * p = user;
    if (is_due(p)) {
        const struct dataset_counts * c = &so_far->counts;
        fprintf(stderr,
                "%s%s: reading, %" PRId64 " documents, %" PRId64 " tokens, %" PRId64 " windows",
                p->is_terminal ? "\r\033[K" : "", p->model, c->documents, so_far->stream_tokens,
                so_far->n_windows);
        if (c->bytes_total > 0) {
            fprintf(stderr, ", %.0f %% of the data",
                    100.0 * (double) c->bytes_read / (double) c->bytes_total);
        }
        fprintf(stderr, "%s", p->is_terminal ? "" : "\n");
        fflush(stderr);
    }
    return !interrupt_seen(); // not the time: a run that has read its data makes at least one call, so that resuming gets on
}

void run_progress_clear(const struct run_progress * p) {
    if (p->is_terminal && !p->quiet) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}
