// --help and --version.

#include "backends.h"
#include "exit-code.h"
#include "lrnn.h"
#include "options.h"
#include "terminal.h"

#include <inttypes.h>
#include <string.h>

enum {
    WIDTH = 80,  // columns
    INDENT = 28, // where descriptions begin
    LINE = 512,
};

void option_default(const struct option * o, char * text, size_t text_size) {
    text[0] = '\0';
    if (o->dest == NULL || strstr(o->help, "(default: ") != NULL) {
        return;
    }
    switch (o->type) {
        case OPTION_INT: snprintf(text, text_size, "%" PRId64, *(const int64_t *) o->dest); break;
        case OPTION_INT32: snprintf(text, text_size, "%" PRId32, *(const int32_t *) o->dest); break;
        case OPTION_FLOAT: snprintf(text, text_size, "%g", *(const double *) o->dest); break;
        case OPTION_CHOICE:
            option_word(o->value, "|", *(const int *) o->dest, text, text_size);
            break;
        case OPTION_STRING: {
            const char * s = *(const char * const *) o->dest;
            snprintf(text, text_size, "%s", s != NULL ? s : "");
        } break;
        case OPTION_INTS: {
            const struct option_ints * list = o->dest;
            size_t                     used = 0;
            for (int i = 0; i < list->n && used < text_size; ++i) {
                used += (size_t) snprintf(
                        text + used, text_size - used, "%s%" PRId64, i > 0 ? "," : "", list->v[i]);
            }
        } break;
        case OPTION_GROUP:
        case OPTION_FLAG:
        case OPTION_STRINGS: break;
    }
}

static void print_option(FILE * out, const struct option * o) {
    char left[256], value[200], text[1024];

    snprintf(left, sizeof(left), "  %s%s%s", o->names, o->value != NULL ? " " : "",
            o->value != NULL ? o->value : "");
    option_default(o, value, sizeof(value));
    if (value[0] != '\0') {
        snprintf(text, sizeof(text), "%s (default: %s)", o->help, value);
    } else {
        snprintf(text, sizeof(text), "%s%s", o->help, o->required ? " (required)" : "");
    }

    int column = fprintf(out, "%s", left);
    if (column >= INDENT) { // too long for one line
        fprintf(out, "\n");
        column = 0;
    }
    terminal_print_wrapped(out, text, column, INDENT, WIDTH);
}

void options_version(const struct program * program, FILE * out) {
    fprintf(out, "%s %s, ggml %s\n", program->name, lrnn_version(), lrnn_ggml_version());
    if (backends_cuda_notice()[0] != '\0') {
        terminal_print_wrapped(out, backends_cuda_notice(), 0, 0, WIDTH);
    }
}

const char * usage_split(char * line) {
    char * gap = strstr(line, "  ");
    if (gap == NULL) {
        return NULL;
    }
    *gap = '\0';
    return gap + 1 + strspn(gap + 1, " ");
}

// Descriptions are in a column of their own if all lines fit, and otherwise below the command.
static void print_usage(const struct program * program, FILE * out) {
    char line[LINE];
    bool fits = true;
    for (int i = 0; option_word(program->usage, "\n", i, line, sizeof(line)); ++i) {
        fits = fits && strlen("  ") + strlen(program->name) + 1 + strlen(line) <= WIDTH;
    }
    for (int i = 0; option_word(program->usage, "\n", i, line, sizeof(line)); ++i) {
        const char * description = fits ? NULL : usage_split(line);
        fprintf(out, "  %s %s\n", program->name, line);
        if (description != NULL) {
            terminal_print_wrapped(out, description, 0, 6, WIDTH);
        }
    }
}

// A command line, broken between words as a shell reads it: with a backslash.
static void print_example(const char * line, FILE * out) {
    enum { ROOM = WIDTH - 2 }; // for the backslash
    int column = 0;
    for (const char * p = line; *p != '\0';) {
        const int n = (int) strcspn(p, " ");
        if (column > 0 && column + 1 + n > (p[n] == '\0' ? WIDTH : ROOM)) {
            fprintf(out, " \\\n");
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column > 0 ? " " : p == line ? "  " : "      ", n, p);
        p += n + (p[n] == ' ');
    }
    fprintf(out, "\n");
}

void options_help(const struct program * program, FILE * out) {
    const bool   color = terminal_has_color(out);
    const char * bold = color ? TERMINAL_BOLD : "";
    const char * reset = color ? TERMINAL_RESET : "";
    char         line[LINE];

    fprintf(out, "%s%s%s:", bold, program->name, reset);
    terminal_print_wrapped(out, program->summary, (int) strlen(program->name) + 1, 0, WIDTH);
    fprintf(out, "\n%sUsage%s\n", bold, reset);
    print_usage(program, out);
    for (int i = 0; i < options_count(program); ++i) {
        const struct option * o = options_at(program, i);
        if (o->type == OPTION_GROUP) {
            fprintf(out, "\n%s%s%s\n", bold, o->names, reset);
        } else {
            print_option(out, o);
        }
    }
    fprintf(out, "\n%sExamples%s\n", bold, reset);
    for (int i = 0; option_word(program->examples, "\n", i, line, sizeof(line)); ++i) {
        print_example(line, out);
    }
    fprintf(out, "\n%sExit status%s\n", bold, reset);
    for (int i = 0; i < N_EXIT_CODES; ++i) {
        fprintf(out, "  %d %s\n", i, EXIT_CODE_TEXT[i]);
    }
}
