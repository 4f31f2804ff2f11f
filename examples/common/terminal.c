#include "terminal.h"

#include "ggml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Shortest time between two updates, in a log file and on a terminal.
static const int64_t PLAIN_LINE_EVERY_US    = 10 * 1000 * 1000;
static const int64_t TERMINAL_LINE_EVERY_US = 50 * 1000;

static bool is_terminal(FILE * out) {
    const char * term = getenv("TERM");

    return isatty(fileno(out)) && term != NULL && strcmp(term, "dumb") != 0;
}

bool terminal_has_color(FILE * out) {
    const char * no_color = getenv("NO_COLOR");

    return is_terminal(out) && (no_color == NULL || no_color[0] == '\0');
}

void progress_begin(struct progress * p, int n_steps) {
    ggml_time_init();
    *p = (struct progress) {
        .n_steps     = n_steps,
        .is_terminal = is_terminal(stderr),
        .start_us    = ggml_time_us(),
        .shown_us    = ggml_time_us(),
    };
}

void progress_step(struct progress * p, const char * what) {
    const int64_t now_us = ggml_time_us();

    const int64_t every_us = p->is_terminal ? TERMINAL_LINE_EVERY_US : PLAIN_LINE_EVERY_US;
    if (p->n_steps == 0 || now_us - p->shown_us < every_us) {
        return;
    }
    p->shown_us = now_us;

    fprintf(stderr, "%s[%d/%d] %s", p->is_terminal ? "\r\033[K" : "", p->n_done + 1, p->n_steps,
            what);
    if (p->n_done > 0) {
        const double left_s =
                1e-6 * (double) (now_us - p->start_us) / p->n_done * (p->n_steps - p->n_done);
        fprintf(stderr, ", about %.0f s left", left_s);
    }
    fprintf(stderr, "%s", p->is_terminal ? "" : "\n");
    fflush(stderr);
}

void progress_done(struct progress * p) {
    p->n_done++;
}

void progress_clear(struct progress * p) {
    if (p->is_terminal && p->n_steps > 0) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}
