// lrnn-perplexity export RUN: a run as a table with one row per scored token. The columns:
//
//     token     index of the token in the run: W · window + t, for target t of the window
//     position  number of tokens the model has seen
//     document  number of the document that contains the token
//     byte      of the document, where the token begins; unknown for some (see below)
//     loss      in nats, −ln p(token); may be non-finite
//
// Score files contain no token ids. They do not say how many bytes the first token of a window has,
// which is not a target. The bytes of the targets that follow it in its document are known if that
// token is a bos or if the next window continues the document, except in llama mode and with
// several context lengths.

#include "lrnn.h"
#include "commands.h"

#include "base/arena.h"
#include "base/atomic-file.h"
#include "eval/report/report-model.h"
#include "npy.h"
#include "output-check.h"
#include "program.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum format {
    FORMAT_CSV, // an unknown byte is empty; losses have 9 digits, which is exact
    FORMAT_NPY, // structured: four int64 and a float32; an unknown byte is −1
};

struct row {
    int64_t token, position, document, byte; // byte −1: unknown
    float   loss;
};

enum { ROW_SIZE = 4 * 8 + 4 };

static const char NPY_TYPE[] = "[('token', '<i8'), ('position', '<i8'), ('document', '<i8'), "
                               "('byte', '<i8'), ('loss', '<f4')]";

static int64_t count_rows(const struct scores * s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        for (int64_t t = 0; t < s->windows[i].n_targets; ++t) {
            n += (s->windows[i].flags[t] & SCORE_COUNTED) != 0;
        }
    }
    return n;
}

static void write_header(int64_t n_rows, enum format format, FILE * out) {
    char header[NPY_HEADER_MAX];
    if (format == FORMAT_CSV) {
        fputs("token,position,document,byte,loss\n", out);
        return;
    }
    npy_header(NPY_TYPE, &n_rows, 1, header, sizeof(header));
    fwrite(header, 1, sizeof(header), out);
}

static void put_integer(uint64_t v, int n_bytes, uint8_t * at) {
    for (int i = 0; i < n_bytes; ++i) {
        at[i] = (uint8_t) (v >> 8 * i);
    }
}

static void write_npy(const struct row * r, FILE * out) {
    uint8_t  bytes[ROW_SIZE];
    uint32_t loss;
    memcpy(&loss, &r->loss, sizeof(loss));
    put_integer((uint64_t) r->token, 8, bytes);
    put_integer((uint64_t) r->position, 8, bytes + 8);
    put_integer((uint64_t) r->document, 8, bytes + 16);
    put_integer((uint64_t) r->byte, 8, bytes + 24);
    put_integer(loss, 4, bytes + 32);
    fwrite(bytes, 1, sizeof(bytes), out);
}

static void write_csv(const struct row * r, FILE * out) {
    fprintf(out, "%" PRId64 ",%" PRId64 ",%" PRId64 ",", r->token, r->position, r->document);
    if (r->byte >= 0) {
        fprintf(out, "%" PRId64, r->byte);
    }
    if (isnan(r->loss)) { // printf may write a sign
        fputs(",nan\n", out);
    } else {
        fprintf(out, ",%.9g\n", (double) r->loss);
    }
}

static void write_window(const struct scores * s, int64_t number, enum format format, FILE * out) {
    const struct score_window * w = &s->windows[number];
    const int64_t               start = w->index * s->meta.window;
    int64_t                     byte = 0; // of the next token; −1: unknown
    int32_t                     span = 0;
    // contexts of the same targets overlap, and in llama mode the bos replaces a token of the text
    const bool in_order = s->meta.same_targets[0] == '\0' && strcmp(s->meta.mode, "llama") != 0;
    if (!in_order || !score_first_token_bytes(s, number, &byte)) {
        byte = -1;
    } else {
        byte += w->n_spans > 0 ? w->spans[0].byte : 0;
    }
    for (int64_t t = 1; t <= w->n_targets; ++t) {
        if (span + 1 < w->n_spans && w->spans[span + 1].first == t) {
            byte = w->spans[++span].byte;
        }
        const struct row row = {
            .token = start + t,
            .position = strcmp(s->meta.reset, "never") == 0 ? start + t : t,
            .document = w->n_spans > 0 ? w->spans[span].document : -1,
            .byte = byte,
            .loss = w->nll[t - 1],
        };
        if (w->flags[t - 1] & SCORE_COUNTED) {
            if (format == FORMAT_NPY) {
                write_npy(&row, out);
            } else {
                write_csv(&row, out);
            }
        }
        byte = byte < 0 ? -1 : byte + w->bytes[t - 1];
    }
}

static void write_table(const struct scores * s, enum format format, FILE * out) {
    write_header(count_rows(s), format, out);
    for (int64_t i = 0; i < s->n_windows && !ferror(out); ++i) {
        write_window(s, i, format, out);
    }
}

//
// Command line
//

struct args {
    struct option_strings paths;
    const char *          out;
    int                   format; // enum format
    bool                  partial;
};

static enum exit_code write_run(const struct args * args, const struct report * r) {
    const struct scores * scores = &r->runs[0].scores;
    const enum format     format = (enum format) args->format;
    struct atomic_file    file;
    struct lrnn_error     err;

    if (args->out == NULL) {
        write_table(scores, format, stdout);
        return EXIT_CODE_OK;
    }
    const enum exit_code code = output_check(args->out, r->files, r->n_files);
    if (code != EXIT_CODE_OK) {
        return code;
    }
    if (!atomic_file_open(&file, args->out, &err)) {
        return program_error(&err);
    }
    write_table(scores, format, file.file);
    if (!atomic_file_commit(&file, &err)) {
        return program_error(&err);
    }
    return EXIT_CODE_OK;
}

static enum exit_code run(void * arg) {
    const struct args * args = arg;
    struct report       report = { .arena = arena_new() };
    enum exit_code      code = EXIT_CODE_OK;
    struct lrnn_error   err;

    if (args->out == NULL && args->format == FORMAT_NPY && isatty(STDOUT_FILENO)) {
        arena_free(report.arena);
        return program_fail(EXIT_CODE_USAGE, "--out is missing: stdout is a terminal");
    }
    if (report.arena == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory");
    }
    if (!report_find_runs(&report, args->paths.v, args->paths.n, args->partial, &err)) {
        code = program_error(&err);
    } else if (report.n_runs != 1) {
        code = program_fail(EXIT_CODE_DATA, "%s: %d runs; expected 1, or the shards of one",
                args->paths.v[0], report.n_runs);
    } else {
        code = write_run(args, &report);
    }
    report_free(&report);
    return code;
}

enum exit_code export_main(int argc, char ** argv) {
    struct args         args = { 0 };
    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("RUN", &args.paths,
                "a score file of lrnn-perplexity run, all shards of a run, or a folder of them")),
        opt_flag("--partial", &args.partial, "accept an unfinished run"),
        opt_group("Output"),
        opt_choice("--format", "csv|npy", &args.format,
                "text with a header row, or a structured NumPy array"),
        opt_string("--out", "F", &args.out, "the file (default: stdout)"),
    };
    const struct program program = {
        .name = "lrnn-perplexity export",
        .summary = "writes the loss of every scored token: token, position, document, byte, loss",
        .usage = "RUN... [--format csv|npy] [--out F]",
        .examples = "lrnn-perplexity export results/model.nll --format npy --out losses.npy\n"
                    "lrnn-perplexity export results/model.nll | head",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
