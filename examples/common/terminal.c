#include "terminal.h"

#include "program.h"

#include "ggml.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// Shortest time between two updates, in a log file and on a terminal.
static const int64_t PLAIN_LINE_EVERY_US = 10 * 1000 * 1000;
static const int64_t TERMINAL_LINE_EVERY_US = 50 * 1000;

bool terminal_is_smart(FILE * out) {
    const char * term = getenv("TERM");

    return isatty(fileno(out)) && term != NULL && strcmp(term, "dumb") != 0;
}

bool terminal_has_color(FILE * out) {
    const char * no_color = getenv("NO_COLOR");

    return terminal_is_smart(out) && (no_color == NULL || no_color[0] == '\0');
}

//
// Width
//

int terminal_width(FILE * out) {
    enum { DEFAULT = 80, MAX = 10000 };
    const char * columns = getenv("COLUMNS");

#ifdef TIOCGWINSZ
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
#endif
    const long n = columns != NULL ? strtol(columns, NULL, 10) : 0;
    return n > 0 && n <= MAX ? (int) n : DEFAULT;
}

// The first byte of a character of UTF-8. Each counts as one column.
static bool begins_character(char c) {
    return ((unsigned char) c & 0xc0) != 0x80;
}

static int count_columns(const char * text, size_t size) {
    int n = 0;
    for (size_t i = 0; i < size; ++i) {
        n += begins_character(text[i]);
    }
    return n;
}

void terminal_print_wrapped(FILE * out, const char * text, int column, int indent, int width) {
    for (const char * p = text; *p != '\0';) {
        const size_t size = strcspn(p, " ");
        const int    n = count_columns(p, size);
        if (column > indent && column + 1 + n > width) {
            fprintf(out, "\n");
            column = 0;
        }
        if (column < indent) {
            fprintf(out, "%*s", indent - column, "");
            column = indent;
        } else if (column > indent) {
            fprintf(out, " ");
            column++;
        }
        fprintf(out, "%.*s", (int) size, p);
        column += n;
        p += size + (p[size] == ' ');
    }
    fprintf(out, "\n");
}

void terminal_print(FILE * out, const char * text) {
    terminal_print_wrapped(out, text, 0, 0, isatty(fileno(out)) ? terminal_width(out) : INT_MAX);
}

// The byte offset of character n.
static size_t offset_of(const char * text, int n) {
    size_t at = 0;
    while (text[at] != '\0' && (n > 0 || !begins_character(text[at]))) {
        at++;
        n -= begins_character(text[at]);
    }
    return at;
}

void terminal_redraw(FILE * out, const char * text) {
    static const char DOTS[] = "...";
    const int         width = terminal_width(out) - 1; // some terminals wrap after the last column
    const int         n = count_columns(text, strlen(text));

    terminal_clear(out);
    if (n <= width) {
        fprintf(out, "%s", text);
    } else { // the end says more than the middle
        const int n_kept = width > (int) strlen(DOTS) ? width - (int) strlen(DOTS) : 0;
        const int n_head = n_kept / 3;
        fprintf(out, "%.*s%.*s%s", (int) offset_of(text, n_head), text, width, DOTS,
                text + offset_of(text, n - (n_kept - n_head)));
    }
    fflush(out);
}

void terminal_clear(FILE * out) {
    fprintf(out, "\r\033[K");
    fflush(out);
}

//
// Progress
//

void progress_begin(struct progress * p, int n_steps) {
    ggml_time_init();
    *p = (struct progress) {
        .n_steps = n_steps,
        .is_terminal = terminal_is_smart(stderr),
        .start_us = ggml_time_us(),
        .shown_us = ggml_time_us(),
    };
}

bool progress_is_due(struct progress * p) {
    const int64_t now_us = ggml_time_us();
    const int64_t every_us = p->is_terminal ? TERMINAL_LINE_EVERY_US : PLAIN_LINE_EVERY_US;
    if (p->n_steps == 0 || now_us - p->shown_us < every_us) {
        return false;
    }
    p->shown_us = now_us;
    return true;
}

void progress_print(const struct progress * p, const char * line) {
    if (p->is_terminal) {
        terminal_redraw(stderr, line);
    } else {
        fprintf(program_stderr(), "%s\n", line);
        fflush(stderr);
    }
}

void progress_step(struct progress * p, const char * what) {
    if (!progress_is_due(p)) {
        return;
    }
    char left[64] = "";
    char line[1024];
    if (p->n_done > 0) {
        const double left_s =
                1e-6 * (double) (p->shown_us - p->start_us) / p->n_done * (p->n_steps - p->n_done);
        snprintf(left, sizeof(left), ", about %.0f s left", left_s);
    }
    snprintf(line, sizeof(line), "[%d/%d] %.800s%s", p->n_done + 1, p->n_steps, what, left);
    progress_print(p, line);
}

void progress_done(struct progress * p) {
    p->n_done++;
}

void progress_clear(struct progress * p) {
    if (p->is_terminal && p->n_steps > 0) {
        terminal_clear(stderr);
    }
}
