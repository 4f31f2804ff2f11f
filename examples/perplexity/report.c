#include "report.h"

#include "program.h"
#include "base/atomic-file.h"
#include "options.h"
#include "eval/report-files.h"
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char * const NAME = "lrnn-perplexity report";

enum { MAX_COLUMNS = 100, MIN_COLUMNS = 40 };

struct args {
    struct option_strings paths;
    const char *          format;
    const char *          out;
    const char *          baseline;
    const char *          bucket;
    int                   y, x; // index of the choice
    int64_t               smooth;
    int64_t               trained_length;
    double                tolerance;
    bool                  partial;
};

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

//
// Formats
//

struct format {
    const char * word;
    const char * file; // in the folder of --out; NULL: stdout
    bool (*write)(const struct report * r, FILE * out);
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

// "table,svg": sets wanted[i] for every format that is named.
static bool parse_formats(const char * list, bool wanted[N_FORMATS], char * err, size_t err_size) {
    for (const char * p = list;; ++p) {
        const size_t n     = strcspn(p, ",");
        bool         found = false;
        for (int i = 0; i < N_FORMATS; ++i) {
            if (strlen(FORMATS[i].word) == n && strncmp(FORMATS[i].word, p, n) == 0) {
                wanted[i] = found = true;
            }
        }
        if (!found) {
            snprintf(err, err_size, "--format: '%.*s' is none of table, json, csv, svg, html",
                    (int) n, p);
            return false;
        }
        p += n;
        if (*p == '\0') {
            return true;
        }
    }
}

static bool parse_bucket(const char * text, int64_t * bucket, char * err, size_t err_size) {
    char * end;
    if (text == NULL) {
        *bucket = -1;
        return true;
    }
    if (strcmp(text, "log2") == 0) {
        *bucket = 0;
        return true;
    }
    errno   = 0;
    *bucket = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || *bucket < 1 || *bucket > INT32_MAX) {
        snprintf(err, err_size, "--bucket: '%s' is neither log2 nor a number of positions", text);
        return false;
    }
    return true;
}

//
// Output
//

static bool says_utf8(const char * variable, bool * utf8) {
    const char * value = getenv(variable);
    if (value == NULL || value[0] == '\0') {
        return false;
    }
    *utf8 = strstr(value, "UTF-8") != NULL || strstr(value, "utf8") != NULL ||
            strstr(value, "utf-8") != NULL;
    return true;
}

// At most 100 columns; what is not a terminal gets plain ASCII.
static struct report_screen find_screen(void) {
    struct report_screen s = { .columns = MAX_COLUMNS };
    struct winsize       size;
    if (isatty(STDOUT_FILENO)) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= MIN_COLUMNS &&
                size.ws_col < MAX_COLUMNS) {
            s.columns = size.ws_col;
        }
        // the first that is set counts
        (void) (says_utf8("LC_ALL", &s.utf8) || says_utf8("LC_CTYPE", &s.utf8) ||
                says_utf8("LANG", &s.utf8));
        s.color = terminal_has_color(stdout);
    }
    return s;
}

static bool write_file(const struct report * r, const struct format * f, const char * folder,
        char * err, size_t err_size) {
    struct atomic_file file;
    char               path[4096];
    if (snprintf(path, sizeof(path), "%s/%s", folder, f->file) >= (int) sizeof(path)) {
        snprintf(err, err_size, "the name of the folder is too long");
        return false;
    }
    if (!atomic_file_open(&file, path, err, err_size)) {
        return false;
    }
    if (!f->write(r, file.file)) {
        snprintf(err, err_size, "%s: out of memory", path);
        atomic_file_cancel(&file);
        return false;
    }
    if (ferror(file.file)) {
        snprintf(err, err_size, "%s: cannot be written", path);
        atomic_file_cancel(&file);
        return false;
    }
    if (!atomic_file_commit(&file, err, err_size)) {
        return false;
    }
    fprintf(stderr, "wrote %s\n", path);
    return true;
}

static enum exit_code write_all(
        const struct report * r, const bool wanted[N_FORMATS], const char * folder) {
    char err[4608];
    for (int i = 0; i < N_FORMATS; ++i) {
        if (!wanted[i]) {
            continue;
        }
        if (FORMATS[i].file == NULL) {
            const struct report_screen screen = find_screen();
            if (!report_write_text(r, &screen, stdout)) {
                return fail(EXIT_CODE_SYSTEM, "out of memory");
            }
            if (fflush(stdout) != 0 || ferror(stdout)) {
                return fail(EXIT_CODE_SYSTEM, "stdout cannot be written");
            }
        } else {
            if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
                snprintf(err, sizeof(err), "%s: cannot be made: %s", folder, strerror(errno));
                return fail(EXIT_CODE_SYSTEM, err);
            }
            if (!write_file(r, &FORMATS[i], folder, err, sizeof(err))) {
                return fail(EXIT_CODE_SYSTEM, err);
            }
        }
    }
    return EXIT_CODE_OK;
}

enum exit_code report_main(int argc, char ** argv) {
    struct args args = { .format = "table", .out = ".", .tolerance = 0.02 };

    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("PATH", &args.paths,
                "score files of lrnn-perplexity run, or folders of them; shards of a run are put together")),
        opt_flag("--partial", &args.partial, "take runs that are not finished as far as they are"),
        opt_group("Output"),
        opt_string("--format", "LIST", &args.format,
                "of table (to stdout), json, csv, svg, html (files in the folder of --out), with commas between them"),
        opt_string("--out", "DIR", &args.out, "folder for files"),
        opt_group("Figures"),
        opt_string("--baseline", "NAME", &args.baseline,
                "the model that others are compared with (default: the first that is not quantised)"),
        opt_string("--bucket", "N|log2", &args.bucket,
                "positions a bucket, or 1-2, 3-4, 5-8 ... (default: 2048; less for short windows and training lengths)"),
        opt_int("--train-ctx", "N", &args.trained_length, 0, 1e15,
                "the training length (default: what the model file says)"),
        opt_float("--tolerance", "X", &args.tolerance, 0.0, 100.0,
                "nats by which the loss must rise before a model is said to degrade"),
        opt_group("Pictures and tables"),
        opt_choice("--y", "ppl|nats|bpb", &args.y, "what is shown"),
        opt_choice("--x", "log2|linear", &args.x, "the axis of positions"),
        opt_int("--smooth", "N", &args.smooth, 0, 1 << 24,
                "draw a moving average over N positions, an odd number, in place of means over stretches (default: off)"),
    };
    const struct program program = {
        .name    = NAME,
        .summary = "loss by position, out of score files",
        .usage   = "PATH... [options]",
        .examples =
                "lrnn-perplexity report results/\n"
                "lrnn-perplexity report results/ --format table,json,csv,svg,html --baseline delta-pos --out report/",
        OPTIONS(options),
    };
    bool                 wanted[N_FORMATS] = { false };
    struct report_params params            = { 0 };
    struct report        report;
    char                 err[4608];
    enum exit_code       code;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (!parse_formats(args.format, wanted, err, sizeof(err)) ||
            !parse_bucket(args.bucket, &params.bucket, err, sizeof(err))) {
        return fail(EXIT_CODE_USAGE, err);
    }
    if (args.smooth > 0 && args.smooth % 2 == 0) {
        return fail(EXIT_CODE_USAGE,
                "--smooth: an odd number is needed, so that the average has a middle");
    }
    params.paths          = args.paths.v;
    params.n_paths        = args.paths.n;
    params.baseline       = args.baseline;
    params.trained_length = args.trained_length;
    params.tolerance      = args.tolerance;
    params.unit           = args.y == 0 ? LOSS_PPL : args.y == 1 ? LOSS_NATS : LOSS_BPB;
    params.log2_x         = args.x == 0;
    params.smooth         = args.smooth;
    params.partial        = args.partial;
    if (!report_read(&params, &report, err, sizeof(err))) {
        return fail(EXIT_CODE_DATA, err);
    }
    code = write_all(&report, wanted, args.out);
    report_free(&report);
    return code;
}
