#include "eval/report/report-write.h"

#include "base/arena.h"
#include "eval/report/report-tables.h"

#include <string.h>

static void write_warnings(
        const struct report_panel * panel, const struct report_screen * screen, FILE * out) {
    char         names[512], text[2048];
    const char * warning;
    for (int i = 0; (warning = report_warning(panel, i, names, sizeof(names))) != NULL; ++i) {
        snprintf(text, sizeof(text), "warning: %s: %s", names, warning);
        text_write_wrapped(text, 0, screen->columns, 4, screen->utf8, out);
    }
}

static void write_heading(
        const struct report_panel * panel, const struct report_screen * screen, FILE * out) {
    char text[1024];
    fputs(screen->color ? "\033[1m" : "", out);
    text_write_wrapped(panel->title, 0, screen->columns, 0, screen->utf8, out);
    fputs(screen->color ? "\033[0m" : "", out);
    text_write_wrapped(
            report_describe(panel, text, sizeof(text)), 0, screen->columns, 2, screen->utf8, out);
    for (int i = 0; i < panel->n; ++i) { // the key of shortened names
        const struct report_run * run = panel->runs[i];
        if (strcmp(run->label, run->name) != 0) {
            snprintf(text, sizeof(text), "%s: %s", run->label, run->name);
            text_write_wrapped(text, 0, screen->columns, 4, screen->utf8, out);
        }
    }
    putc('\n', out);
}

static bool write_panel(const struct report * r, const struct report_panel * panel,
        const struct report_screen * screen, FILE * out) {
    struct table * tables[REPORT_MAX_TABLES];
    struct arena * arena = arena_new();
    const int      n     = arena != NULL ? report_make_tables(r, panel, arena, tables) : -1;
    bool           ok    = n >= 0;

    if (ok) {
        write_heading(panel, screen, out);
        for (int i = 0; i < n; ++i) {
            table_write_text(tables[i], screen->columns, screen->utf8, out);
        }
        write_warnings(panel, screen, out);
    }
    arena_free(arena);
    return ok;
}

bool report_write_text(const struct report * r, const struct report_screen * screen, FILE * out) {
    for (int p = 0; p < r->n_panels; ++p) {
        if (p > 0) {
            putc('\n', out);
        }
        if (!write_panel(r, &r->panels[p], screen, out)) {
            return false;
        }
    }
    text_write_wrapped(REPORT_LEGEND, 0, screen->columns, 0, screen->utf8, out);
    return true;
}
