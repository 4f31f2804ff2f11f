#include "eval/report/text-table.h"

#include "base/unicode.h"
#include "chart/markup.h"
#include "memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct table * table_new(struct arena * arena, int max_rows, int n_cols) {
    struct table * t = program_alloc_in(arena, 1, sizeof(*t));
    *t = (struct table) {
        .arena = arena,
        .title = "",
        .n_cols = n_cols,
        .cells = program_alloc_in(arena, (size_t) (max_rows * n_cols), sizeof(*t->cells)),
    };
    return t;
}

// Sets text.
#define PRINT(t, format, text)                                      \
    do {                                                            \
        va_list args;                                               \
        va_start(args, format);                                     \
        (text) = program_print_args_in((t)->arena, (format), args); \
        va_end(args);                                               \
    } while (0)

void table_title(struct table * t, const char * format, ...) {
    PRINT(t, format, t->title);
}

void table_note(struct table * t, const char * format, ...) {
    PRINT(t, format, t->note);
}

void table_head(struct table * t, const char * const * titles) {
    for (int c = 0; c < t->n_cols; ++c) {
        table_set(t, 0, c, "%s", titles[c]);
    }
}

void table_set(struct table * t, int row, int col, const char * format, ...) {
    PRINT(t, format, t->cells[row * t->n_cols + col]);
    t->n_rows = row < t->n_rows ? t->n_rows : row + 1;
}

void table_set_p_value(struct table * t, int row, int col, double p) {
    if (p < 1e-6) {
        table_set(t, row, col, "< 1e-6");
    } else if (isfinite(p)) {
        table_set(t, row, col, p < 1e-3 ? "%.0e" : "%.4f", p);
    }
}

void table_rule(struct table * t, int before, const char * format, ...) {
    bool skip = t->n_rules == TABLE_MAX_RULES;
    for (int i = 0; !skip && i < t->n_rules; ++i) {
        skip = t->rules[i].before == before;
    }
    if (!skip) {
        t->rules[t->n_rules].before = before;
        PRINT(t, format, t->rules[t->n_rules].word);
        t->n_rules++;
    }
}

//
// Text
//

// ASCII forms of the symbols in reports; NULL: a character of a name, which stays UTF-8.
static const char * ascii_of(uint32_t cp) {
    switch (cp) {
        case 0x00b1: return "+-";
        case 0x2212: return "-";
        case 0x2013: return "-";
        case 0x2026: return "...";
        case 0x00d7: return "x";
        default: return NULL;
    }
}

// C0 and C1: a terminal would obey them.
static bool is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

// Writes one character and returns its width in columns. Only counts if out is NULL.
static int put_char(const char ** p, const char * end, bool utf8, FILE * out) {
    uint32_t     cp = 0;
    int          bad;
    const int    n = utf8_decode(*p, end, &cp, &bad);
    const char * ascii = n == 0 || is_control(cp) ? "?" : utf8 ? NULL : ascii_of(cp);

    if (out != NULL) {
        fwrite(ascii != NULL ? ascii : *p, 1, ascii != NULL ? strlen(ascii) : (size_t) n, out);
    }
    *p += n > 0 ? n : bad;
    return ascii != NULL ? (int) strlen(ascii) : 1;
}

static int put_text(const char * text, size_t size, bool utf8, FILE * out) {
    int n = 0;
    for (const char * p = text; p < text + size;) {
        n += put_char(&p, text + size, utf8, out);
    }
    return n;
}

static int width_of(const char * text, bool utf8) {
    return text == NULL ? 0 : put_text(text, strlen(text), utf8, NULL);
}

// Writes text in a field of `width` columns. Longer text is cut and ends with "..".
static void put_field(const char * text, int width, bool left, bool utf8, FILE * out) {
    const int n = width_of(text, utf8);
    if (n > width) {
        int at = 0;
        for (const char * p = text; at < width - 2;) {
            at += put_char(&p, text + strlen(text), utf8, out);
        }
        for (; at < width; ++at) {
            putc('.', out);
        }
        return;
    }
    fprintf(out, "%*s", left ? 0 : width - n, "");
    put_text(text != NULL ? text : "", text != NULL ? strlen(text) : 0, utf8, out);
    fprintf(out, "%*s", left ? width - n : 0, "");
}

void text_write_wrapped(const char * text, int at, int columns, int indent, bool utf8, FILE * out) {
    bool is_first = true; // word of a line
    for (const char * p = text; *p != '\0';) {
        const size_t n = strcspn(p, " \n");
        const int    width = put_text(p, n, utf8, NULL);
        if (!is_first && at + 1 + width > columns) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            is_first = true;
        }
        if (!is_first) {
            putc(' ', out);
            at++;
        }
        put_text(p, n, utf8, out);
        at += width;
        p += n;
        is_first = *p == '\n';
        if (is_first) {
            fprintf(out, "\n");
            at = 0;
        }
        p += *p != '\0';
    }
    fprintf(out, "\n");
}

static void write_rule(int width, const char * word, bool utf8, FILE * out) {
    const int n = width_of(word, utf8);
    int       at = 0;
    for (; at < 2; ++at) {
        putc('-', out);
    }
    if (n > 0 && n + 6 < width) {
        putc(' ', out);
        put_text(word, strlen(word), utf8, out);
        putc(' ', out);
        at += n + 2;
    }
    for (; at < width; ++at) {
        putc('-', out);
    }
    putc('\n', out);
}

// Writes a row without trailing blanks.
static void write_row(const struct table * t, int row, const int * widths, int first, int end,
        bool utf8, FILE * out) {
    char * line = NULL;
    size_t n = 0;
    FILE * file = open_memstream(&line, &n);
    for (int c = 0; c < end && file != NULL; c = c == 0 ? first : c + 1) {
        fputs(c > 0 ? "  " : "", file);
        put_field(t->cells[row * t->n_cols + c], widths[c], c == 0 || t->left, utf8, file);
    }
    if (file != NULL) {
        fclose(file);
        while (n > 0 && line[n - 1] == ' ') {
            n--;
        }
        fwrite(line, 1, n, out);
        free(line);
    }
    putc('\n', out);
}

static void write_columns(const struct table * t, const int * widths, int first, int end, int total,
        bool utf8, FILE * out) {
    for (int row = 0; row < t->n_rows; ++row) {
        for (int i = 0; i < t->n_rules; ++i) {
            if (t->rules[i].before == row) {
                write_rule(total, t->rules[i].word, utf8, out);
            }
        }
        write_row(t, row, widths, first, end, utf8, out);
        if (row == 0) {
            write_rule(total, NULL, utf8, out);
        }
    }
}

void table_write_text(const struct table * t, int columns, bool utf8, FILE * out) {
    int * widths = program_alloc((size_t) t->n_cols, sizeof(*widths));
    for (int c = 0; c < t->n_cols; ++c) {
        for (int row = 0; row < t->n_rows; ++row) {
            const int n = width_of(t->cells[row * t->n_cols + c], utf8);
            widths[c] = n > widths[c] ? n : widths[c];
        }
        // any column must fit next to the first
        const int most = c == 0 ? columns / 3 : columns - 2 - widths[0];
        widths[c] = widths[c] > most ? most : widths[c];
    }
    text_write_wrapped(t->title, 0, columns, 0, utf8, out);
    for (int first = 1; first < t->n_cols || first == 1;) {
        int total = widths[0], end = first;
        while (end < t->n_cols && (end == first || total + 2 + widths[end] <= columns)) {
            total += 2 + widths[end++];
        }
        if (first > 1) {
            putc('\n', out);
        }
        write_columns(t, widths, first, end, total, utf8, out);
        first = end > first ? end : first + 1;
    }
    if (t->note != NULL) {
        text_write_wrapped(t->note, 0, columns, 0, utf8, out);
    }
    putc('\n', out);
    free(widths);
}

//
// HTML
//

void table_write_html(const struct table * t, FILE * out) {
    fputs("<figure class=\"table\"><figcaption>", out);
    markup_text(out, t->title);
    fprintf(out, "</figcaption>\n<div class=\"scroll\"><table%s>\n",
            t->left ? " class=\"left\"" : "");
    for (int row = 0; row < t->n_rows; ++row) {
        for (int i = 0; i < t->n_rules; ++i) {
            if (t->rules[i].before == row) {
                fprintf(out, "<tr class=\"rule\"><td colspan=\"%d\">", t->n_cols);
                markup_text(out, t->rules[i].word);
                fputs("</td></tr>\n", out);
            }
        }
        fputs("<tr>", out);
        for (int c = 0; c < t->n_cols; ++c) {
            const char * cell = t->cells[row * t->n_cols + c];
            const char * tag = row == 0 || c == 0 ? "th" : "td";
            const bool   best = row > 0 && cell != NULL && strlen(cell) > 2 &&
                              strcmp(cell + strlen(cell) - 2, " *") == 0;
            fprintf(out, "<%s%s>", tag, best ? " class=\"best\"" : "");
            markup_text(out, cell != NULL ? cell : "");
            fprintf(out, "</%s>", tag);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
    if (t->note != NULL) {
        fputs("<p class=\"note\">", out);
        markup_text(out, t->note);
        fputs("</p>\n", out);
    }
    fputs("</figure>\n", out);
}
