#include "commands.h"

#include "program.h"
#include "base/arena.h"
#include "eval/text-table.h"
#include "options.h"
#include "eval/report-read.h"
#include "eval/report-runs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char * const NAME = "lrnn-perplexity compare";

enum { COLUMNS = 100 };

static enum exit_code fail(enum exit_code code, const char * err) {
    fprintf(stderr, "%s: %s\n", NAME, err);
    return code;
}

//
// What stands on either side
//

// A report, or score files.
struct side {
    const char *       path;
    bool               is_report;
    struct report_file file;
    struct report      scores;
};

static int side_count(const struct side * s) {
    return s->is_report ? s->file.n_runs : s->scores.n_runs;
}

static const struct summary * side_summary(const struct side * s, int i) {
    return s->is_report ? &s->file.runs[i] : &s->scores.runs[i].summary;
}

static const struct scores * side_scores(const struct side * s, int i) { // NULL: a report has none
    return s->is_report ? NULL : &s->scores.runs[i].scores;
}

static void side_free(struct side * s) {
    report_file_free(&s->file);
    report_free(&s->scores);
}

static bool is_report_path(const char * path) {
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

// The --bucket that gives these ranges.
static int64_t bucket_of(const struct summary * s) {
    const struct losses * f = &s->buckets;
    if (f->n == 0 || s->n_contexts > 0) {
        return -1;
    }
    const int64_t width = f->at[0].range.to - f->at[0].range.from + 1;
    return f->n > 1 && f->at[0].range.from == 1 && width == 2 && f->at[1].range.to == 4 &&
                           f->n > 2 && f->at[2].range.to > 6
                   ? 0
                   : width;
}

//
// Tables
//

static bool set_paired(struct arena * a, struct table * g, int row, const char * where,
        const char * base, const char * other, const struct paired * p, bool nats) {
    const struct stats_estimate * e  = &p->difference;
    const double                  pv = stats_p_value(e);
    bool ok = table_set(a, g, row, 0, "%s", where) && table_set(a, g, row, 1, "%s", base) &&
              table_set(a, g, row, 2, "%s", other);
    if (!isfinite(e->value)) {
        return ok && table_set(a, g, row, 3, "diverged");
    }
    ok = ok && table_set(a, g, row, 3, "%+.5f", e->value) &&
         (e->method == STATS_NONE || table_set(a, g, row, 4, "%+.5f .. %+.5f", e->lo, e->hi)) &&
         (!nats || table_set(a, g, row, 5, "%.5f", exp(e->value))) &&
         table_set(a, g, row, 6, "%" PRId64 " of %" PRId64, p->won, e->n);
    return ok && (!isfinite(pv) || table_set_p_value(a, g, row, 7, pv));
}

static struct table * new_table(
        struct arena * a, int n_rows, const char * base, const char * other, const char * unit) {
    static const char * const HEAD[] = { "targets", "first", "second", "difference",
        "95 % interval", "ratio of ppl", "windows won", "p" };
    enum { N_COLS = sizeof(HEAD) / sizeof(HEAD[0]) };
    struct table * g     = table_new(a, n_rows, N_COLS);
    char *         title = arena_alloc(a, strlen(base) + strlen(other) + strlen(unit) + 64);
    bool           ok    = g != NULL && title != NULL;
    for (int c = 0; c < N_COLS && ok; ++c) {
        ok = table_set(a, g, 0, c, "%s", HEAD[c]);
    }
    if (!ok) {
        return NULL;
    }
    sprintf(title, "%s (second) less %s (first), %s", other, base, unit);
    g->title = title;
    return g;
}

static void describe_value(const struct loss * f, char * text, size_t size) {
    if (isfinite(f->nats.value)) {
        snprintf(text, size, "%.4f", f->nats.value);
    } else {
        snprintf(text, size, "diverged");
    }
}

static bool print_tokens(const struct comparison * c, struct arena * a) {
    struct table * g = new_table(
            a, c->n_buckets + 3, c->base->meta.model, c->other->meta.model, "nats per token");
    char * note = arena_alloc(a, 768);
    char   where[64], base[32], other[32];
    bool   ok = g != NULL && note != NULL;

    for (int i = 0; i < c->n_buckets && ok; ++i) {
        const struct loss * f = &c->base->buckets.at[i];
        snprintf(where, sizeof(where), "%" PRId64 "\xe2\x80\x93%" PRId64, f->range.from,
                f->range.to);
        describe_value(f, base, sizeof(base));
        describe_value(&c->other->buckets.at[i], other, sizeof(other));
        ok = set_paired(a, g, i + 1, where, base, other, &c->buckets[i], true);
    }
    if (ok) {
        describe_value(&c->base->total.at[0], base, sizeof(base));
        describe_value(&c->other->total.at[0], other, sizeof(other));
        ok = set_paired(a, g, c->n_buckets + 1, "all", base, other, &c->all, true);
    }
    if (ok) {
        g->rules[g->n_rules].before = c->n_buckets + 1;
        g->rules[g->n_rules].word   = "together";
        g->n_rules++;
        g->n_rows = c->n_buckets + 2;
        if (c->beyond.difference.n > 0) {
            snprintf(where, sizeof(where), "beyond %" PRId64, c->trained_length);
            ok = set_paired(a, g, g->n_rows++, where, "", "", &c->beyond, true);
        }
    }
    if (!ok) {
        return false;
    }
    int n = snprintf(note, 768,
            "Paired by window; negative: the second is better. %d buckets were looked at, and of 20 that do not differ "
            "one seems to: %s is the one test to go by.",
            c->n_buckets,
            c->beyond.difference.n > 0 ? "the row beyond the training length"
                                       : "the row of all targets");
    if (c->n_left_out > 0) {
        snprintf(note + n, 768 - (size_t) n,
                " %" PRId64 " windows are in one run only and are left out.", c->n_left_out);
    }
    g->note = note;
    table_write_text(g, COLUMNS, false, stdout);
    return true;
}

static bool print_bytes(const struct byte_comparison * c, const char * base_name,
        const char * other_name, struct arena * a) {
    struct table * g    = new_table(a, 3, base_name, other_name, "bits per byte");
    char *         note = arena_alloc(a, 768);
    char           base[32], other[32];
    bool           ok = g != NULL && note != NULL;

    snprintf(base, sizeof(base), "%.4f", c->base.value);
    snprintf(other, sizeof(other), "%.4f", c->other.value);
    ok = ok && set_paired(a, g, 1, "all", base, other, &c->all, false);
    if (!ok) {
        return false;
    }
    g->n_rows = 2;
    if (c->beyond.difference.n > 0) {
        ok = set_paired(a, g, g->n_rows++, "beyond both lengths", "", "", &c->beyond, false);
    }
    snprintf(note, 768,
            "The tokenizers differ: compared are the stretches of text that both have scored and that begin and end between "
            "tokens of both, %" PRId64 " bytes of %" PRId64 " and %" PRId64
            ", paired by windows of the first.",
            c->bytes, c->base_bytes, c->other_bytes);
    g->note = note;
    table_write_text(g, COLUMNS, false, stdout);
    return ok;
}

//
// Pairs
//

enum outcome { COMPARED, REFUSED, NO_MEMORY };

static enum outcome compare_pair(
        const struct side * a, int i, const struct side * b, int j, char * err, size_t err_size) {
    const struct summary * base    = side_summary(a, i);
    const struct summary * other   = side_summary(b, j);
    struct arena *         arena   = arena_new();
    enum outcome           outcome = arena != NULL ? COMPARED : NO_MEMORY;
    bool                   bytes_only;
    char                   why[512];

    if (outcome == NO_MEMORY) {
        snprintf(err, err_size, "out of memory");
    } else if (comparison_allowed(&base->meta, &other->meta, &bytes_only, why, sizeof(why))) {
        struct comparison c;
        if (!comparison_make(base, other, &c, err, err_size)) {
            outcome = REFUSED;
        } else {
            outcome = print_tokens(&c, arena) ? COMPARED : NO_MEMORY;
            comparison_free(&c);
        }
    } else if (bytes_only && side_scores(a, i) != NULL && side_scores(b, j) != NULL) {
        struct byte_comparison c;
        if (!byte_comparison_make(side_scores(a, i), side_scores(b, j),
                    base->extrapolation.trained_length, other->extrapolation.trained_length, &c,
                    err, err_size)) {
            outcome = REFUSED;
        } else {
            outcome = print_bytes(&c, base->meta.model, other->meta.model, arena) ? COMPARED
                                                                                  : NO_MEMORY;
        }
    } else {
        snprintf(err, err_size, "%s and %s cannot be compared%s: %s%s", base->meta.model,
                other->meta.model, bytes_only ? " token by token" : "", why,
                bytes_only ? "; their score files (.nll) can be, in bits per byte" : "");
        outcome = REFUSED;
    }
    arena_free(arena);
    return outcome;
}

static enum exit_code compare_sides(const struct side * a, const struct side * b) {
    char err[1024] = "", first[1024] = "";
    int  n_compared = 0;
    for (int i = 0; i < side_count(a); ++i) {
        for (int j = 0; j < side_count(b); ++j) {
            switch (compare_pair(a, i, b, j, err, sizeof(err))) {
                case COMPARED: n_compared++; break;
                case REFUSED: // runs on other data sets are expected among several; the first reason is told if there is nothing else
                    if (first[0] == '\0') {
                        memcpy(first, err, sizeof(first));
                    }
                    break;
                case NO_MEMORY: return fail(EXIT_CODE_SYSTEM, "out of memory");
            }
        }
    }
    return n_compared > 0 ? EXIT_CODE_OK : fail(EXIT_CODE_DATA, first);
}

static bool read_side(
        struct side * s, const struct report_params * params, char * err, size_t err_size) {
    struct report_params p = *params;
    p.paths                = &s->path;
    p.n_paths              = 1;
    return s->is_report ? report_file_read(s->path, &s->file, err, err_size)
                        : report_read(&p, &s->scores, err, err_size);
}

// The bucket that suits the runs of both sides: their summaries are made with it.
static int64_t common_bucket(const struct side * sides) {
    int64_t bucket = INT64_MAX;
    for (int k = 0; k < 2; ++k) {
        for (int p = 0; p < sides[k].scores.n_panels; ++p) {
            bucket = sides[k].scores.panels[p].bucket < bucket ? sides[k].scores.panels[p].bucket
                                                               : bucket;
        }
    }
    return bucket;
}

// Reports have their buckets; score files are summed up in the same ones.
static bool read_sides(
        struct side * sides, struct report_params * params, char * err, size_t err_size) {
    for (int k = 0; k < 2; ++k) {
        if (sides[k].is_report) {
            if (!read_side(&sides[k], params, err, err_size)) {
                return false;
            }
            params->bucket =
                    params->bucket < 0 ? bucket_of(side_summary(&sides[k], 0)) : params->bucket;
        }
    }
    const bool is_free = params->bucket < 0;
    for (int pass = 0; pass < (is_free ? 2 : 1); ++pass) {
        for (int k = 0; k < 2; ++k) {
            if (!sides[k].is_report) {
                report_free(&sides[k].scores);
                if (!read_side(&sides[k], params, err, err_size)) {
                    return false;
                }
            }
        }
        params->bucket = common_bucket(sides);
    }
    return true;
}

enum exit_code compare_runs_main(int argc, char ** argv) {
    struct option_strings paths          = { 0 };
    int64_t               bucket         = 0;
    int64_t               trained_length = 0;
    bool                  partial        = false;

    const struct option options[] = {
        opt_group("Input"),
        opt_required(opt_args("A B", &paths,
                "report.json, a score file (.nll) or a folder of them, twice: what to compare with, what to compare")),
        opt_flag("--partial", &partial, "take runs that are not finished as far as they are"),
        opt_group("Figures"),
        opt_int("--bucket", "N", &bucket, 1, INT32_MAX,
                "positions a bucket (default: that of a report; 2048 or less for score files)"),
        opt_int("--train-ctx", "N", &trained_length, 0, 1e15,
                "the training length, for score files (default: what they say)"),
    };
    const struct program program = {
        .name    = NAME,
        .summary = "two runs over the same text, window by window",
        .usage =
                "A B [options]\n"
                "-m A.gguf -m B.gguf ...    runs the models in step; see lrnn-perplexity compare -m x --help",
        .examples = "lrnn-perplexity compare f32/report.json q8_0/report.json\n"
                    "lrnn-perplexity compare pos.nll neg.nll",
        OPTIONS(options),
    };
    char           err[4608];
    enum exit_code code;

    if (!program_begin(&program, argc, argv, &code)) {
        return code;
    }
    if (paths.n != 2) {
        snprintf(err, sizeof(err), "%d paths; expected two", paths.n);
        return fail(EXIT_CODE_USAGE, err);
    }
    struct side sides[2] = {
        { .path = paths.v[0], .is_report = is_report_path(paths.v[0]) },
        { .path = paths.v[1], .is_report = is_report_path(paths.v[1]) },
    };
    struct report_params params = { .bucket = bucket > 0 ? bucket : -1,
        .trained_length                     = trained_length,
        .tolerance                          = 0.02,
        .partial                            = partial };
    code = read_sides(sides, &params, err, sizeof(err)) ? compare_sides(&sides[0], &sides[1])
                                                        : fail(EXIT_CODE_DATA, err);
    side_free(&sides[0]);
    side_free(&sides[1]);
    return code;
}
