#include "commands.h"

#include "base/atomic-file.h"
#include "base/error.h"
#include "data-options.h"
#include "eval/report/report-columns.h"
#include "eval/report/report-write.h"
#include "output-check.h"
#include "program.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_COLUMNS = 100, MIN_COLUMNS = 40 };

struct args {
    struct report_params  params;
    struct option_strings paths;
    const char *          format;
    const char *          out;
    const char *          bucket;
    int                   y, x; // index of the choice
    bool                  list_columns;
};

//
// Formats
//

struct format {
    const char * word;
    const char * file; // in the folder --out; NULL: stdout
    void (*write)(const struct report * r, FILE * out);
};

static const struct format FORMATS[] = {
    { "table", NULL, NULL },
    { "json", "report.json", report_write_json },
    { "csv", "buckets.csv", report_write_buckets_csv },
    { "csv", "prefix.csv", report_write_prefix_csv },
    { "svg", "report.svg", report_write_svg },
    { "html", "report.html", report_write_html },
};

enum { N_FORMATS = sizeof(FORMATS) / sizeof(FORMATS[0]) };

// "table,svg": sets wanted[i] for every format named.
static bool parse_formats(const char * list, bool wanted[N_FORMATS], struct lrnn_error * err) {
    for (const char * p = list;; ++p) {
        const size_t n = strcspn(p, ",");
        bool         found = false;
        for (int i = 0; i < N_FORMATS; ++i) {
            if (strlen(FORMATS[i].word) == n && strncmp(FORMATS[i].word, p, n) == 0) {
                wanted[i] = found = true;
            }
        }
        if (!found) {
            return error_bad_input(
                    err, "--format: '%.*s' is none of table, json, csv, svg, html", (int) n, p);
        }
        p += n;
        if (*p == '\0') {
            return true;
        }
    }
}

//
// Output
//

static bool has_utf8_locale(void) {
    static const char * const NAMES[] = { "LC_ALL", "LC_CTYPE",
        "LANG" }; // the first one set counts
    const char *              value = NULL;
    for (int i = 0; i < 3 && (value == NULL || value[0] == '\0'); ++i) {
        value = getenv(NAMES[i]);
    }
    return value != NULL && (strstr(value, "UTF-8") != NULL || strstr(value, "utf-8") != NULL ||
                                    strstr(value, "utf8") != NULL);
}

// At most 100 columns. A file or pipe gets ASCII symbols.
static struct report_screen find_screen(void) {
    struct report_screen s = { .columns = MAX_COLUMNS };
    struct winsize       size;
    if (isatty(STDOUT_FILENO)) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= MIN_COLUMNS &&
                size.ws_col < MAX_COLUMNS) {
            s.columns = size.ws_col;
        }
        s.utf8 = has_utf8_locale();
        s.color = terminal_has_color(stdout);
    }
    return s;
}

// The path of a file in the folder --out; the name may be cut.
static const char * path_of(const struct format * f, const char * folder, char path[4096]) {
    snprintf(path, 4096, "%s/%s", folder, f->file);
    return path;
}

static bool write_file(const struct report * r, const struct format * f, const char * path,
        struct lrnn_error * err) {
    struct atomic_file file;
    if (!atomic_file_open(&file, path, err)) {
        return false;
    }
    f->write(r, file.file);
    return atomic_file_commit(&file, err);
}

// Creates the folder and checks that no output is a score file that was read.
static enum exit_code check_outputs(
        const struct report * r, const bool wanted[N_FORMATS], const char * folder) {
    enum exit_code code = EXIT_CODE_OK;
    char           path[4096];
    if (strlen(folder) + 16 > sizeof(path)) {
        return program_fail(EXIT_CODE_USAGE, "--out: the path is too long");
    }
    for (int i = 0; i < N_FORMATS && code == EXIT_CODE_OK; ++i) {
        if (wanted[i] && FORMATS[i].file != NULL) {
            if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
                return program_fail(EXIT_CODE_SYSTEM, "%s: cannot create the folder: %s", folder,
                        strerror(errno));
            }
            code = output_check_inputs(path_of(&FORMATS[i], folder, path), r->files, r->n_files);
        }
    }
    return code;
}

static enum exit_code write_all(
        const struct report * r, const bool wanted[N_FORMATS], const char * folder) {
    const struct report_screen screen = find_screen();
    struct lrnn_error          err;
    char                       path[4096];
    const enum exit_code       code = check_outputs(r, wanted, folder);
    for (int i = 0; i < N_FORMATS && code == EXIT_CODE_OK; ++i) {
        if (wanted[i] && FORMATS[i].file == NULL) {
            report_write_text(r, &screen, stdout);
        } else if (wanted[i]) {
            if (!write_file(r, &FORMATS[i], path_of(&FORMATS[i], folder, path), &err)) {
                return program_error(&err);
            }
            fprintf(program_stderr(), "wrote %s\n", path);
        }
    }
    return code;
}

static enum exit_code run(void * arg) {
    struct args *          args = arg;
    struct report_params * p = &args->params;
    bool                   wanted[N_FORMATS] = { false };
    struct report          report;
    struct lrnn_error      err;

    if (args->list_columns) {
        report_list_columns(stdout);
        return EXIT_CODE_OK;
    }
    if (args->paths.n == 0) {
        return program_fail(EXIT_CODE_USAGE, "PATH is missing; see %s --help", program_name());
    }
    p->paths = args->paths.v;
    p->n_paths = args->paths.n;
    p->unit = args->y == 0 ? LOSS_PPL : args->y == 1 ? LOSS_NATS : LOSS_BPB;
    p->log2_x = args->x == 0;
    p->bucket = -1;
    if (!parse_formats(args->format, wanted, &err) ||
            (args->bucket != NULL && !parse_bucket(args->bucket, &p->bucket, &err))) {
        return program_error(&err);
    }
    if (p->smooth > 0 && p->smooth % 2 == 0) {
        return program_fail(
                EXIT_CODE_USAGE, "--smooth is %" PRId64 "; expected an odd number", p->smooth);
    }
    if (!report_read(p, &report, &err)) {
        return program_error(&err);
    }
    const enum exit_code code = write_all(&report, wanted, args->out);
    report_free(&report);
    return code;
}

enum exit_code report_main(int argc, char ** argv) {
    struct args         args = { .format = "table", .out = ".", .params = { .tolerance = 0.02 } };
    const struct option options[] = {
        opt_group("Input"),
        opt_args("PATH", &args.paths,
                "score files of lrnn-perplexity run, or folders of them; shards are joined"),
        opt_flag("--partial", &args.params.partial, "accept unfinished runs"),
        opt_group("Output"),
        opt_string("--format", "LIST", &args.format,
                "comma-separated: table (to stdout), json, csv, svg, html (files in --out)"),
        opt_string("--out", "DIR", &args.out, "folder for the files"),
        opt_flag("--list-columns", &args.list_columns,
                "print the columns of the JSON and CSV files and exit"),
        opt_group("Estimates"),
        opt_string("--baseline", "NAME", &args.params.baseline,
                "model to compare the others with (default: the first one not quantized)"),
        opt_string("--bucket", "N|log2", &args.bucket,
                "positions per bucket; log2: 1-2, 3-4, 5-8 ... (default: 2048, or less for short "
                "windows and trained lengths)"),
        opt_int("--trained-length", "N", &args.params.trained_length, 0, 1e15,
                "context length in training (default: as the model file says)"),
        opt_float("--tolerance", "X", &args.params.tolerance, 0.0, 100.0,
                "rise of the loss, in nats, from which a model counts as degraded"),
        opt_group("Charts and tables"),
        opt_choice("--y", "ppl|nats|bpb", &args.y, "unit of the loss"),
        opt_choice("--x", "log2|linear", &args.x, "scale of the position axis"),
        opt_int("--smooth", "N", &args.params.smooth, 0, 1 << 24,
                "draw a moving average over N positions, an odd number (default: means over "
                "buckets or quarter octaves)"),
    };
    const struct program program = {
        .name = "lrnn-perplexity report",
        .summary = "reports the loss by position, from score files",
        .usage = "PATH... [options]\n"
                 "--list-columns",
        .examples = "lrnn-perplexity report results/\n"
                    "lrnn-perplexity report results/ --format table,json,csv,svg,html "
                    "--baseline delta-pos --out report/",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
