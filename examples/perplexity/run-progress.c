#include "run.h"

#include "interrupt.h"
#include "program.h"
#include "terminal.h"

#include "ggml.h"

#include <inttypes.h>
#include <stdio.h>

static const int64_t PLAIN_LINE_EVERY_US = 30 * 1000 * 1000;
static const int64_t TERMINAL_LINE_EVERY_US = 200 * 1000;

void run_progress_begin(struct run_progress * p, bool quiet, double limit_s) {
    ggml_time_init();
    *p = (struct run_progress) {
        .quiet = quiet,
        .is_terminal = terminal_is_smart(stderr),
        .limit_s = limit_s,
        .start_us = ggml_time_us(),
        .shown_us = ggml_time_us(),
    };
}

void run_progress_clear(const struct run_progress * p) {
    if (p->is_terminal && !p->quiet) {
        terminal_clear(stderr);
    }
}

// True if it is time for a line.
static bool is_due(struct run_progress * p) {
    const int64_t now = ggml_time_us();
    if (p->quiet ||
            now - p->shown_us < (p->is_terminal ? TERMINAL_LINE_EVERY_US : PLAIN_LINE_EVERY_US)) {
        return false;
    }
    p->shown_us = now;
    return true;
}

static void print_line(const struct run_progress * p, const char * line) {
    if (p->is_terminal) {
        terminal_redraw(stderr, line);
    } else {
        fprintf(program_stderr(), "%s\n", line);
        fflush(stderr);
    }
}

bool run_progress_score(const struct score_progress * s, void * user) {
    struct run_progress * p = user;
    const int64_t         now = ggml_time_us();
    const double  rate = (double) s->n_tokens / (1e-6 * (double) (now - p->begun_us) + 1e-9);
    const int64_t left = p->n_tokens - s->n_resumed - s->n_tokens;
    const double  left_s = (double) (left > 0 ? left : 0) / rate;
    if (is_due(p)) {
        char line[1024];
        snprintf(line, sizeof(line),
                "%.500s: windows %" PRId64 "-%" PRId64 " of %" PRId64 ", token %" PRId64
                " of %" PRId64 ", %.0f tokens/s, about %.*f %s left",
                p->model, s->window + 1, s->window + s->n_windows, p->n_windows, s->at, s->length,
                rate, left_s < 6000.0 ? 0 : 1,
                left_s < 100.0    ? left_s
                : left_s < 6000.0 ? left_s / 60.0
                                  : left_s / 3600.0,
                left_s < 100.0    ? "s"
                : left_s < 6000.0 ? "min"
                                  : "h");
        print_line(p, line);
    }
    const double used_s = 1e-6 * (double) (now - p->start_us);
    return !interrupt_seen() && (p->limit_s == 0.0 || used_s < p->limit_s);
}

bool run_progress_data(const struct windows_summary * so_far, void * user) {
    struct run_progress *         p = user;
    const struct dataset_counts * c = &so_far->counts;
    if (is_due(p)) {
        char line[1024], share[64] = "";
        if (c->bytes_total > 0) {
            snprintf(share, sizeof(share), ", %.0f %% of the data",
                    100.0 * (double) c->bytes_read / (double) c->bytes_total);
        }
        snprintf(line, sizeof(line),
                "%.500s: reading, %" PRId64 " documents, %" PRId64 " tokens, %" PRId64 " windows%s",
                p->model, c->documents, so_far->stream_tokens, so_far->n_windows, share);
        print_line(p, line);
    }
    return !interrupt_seen();
}
