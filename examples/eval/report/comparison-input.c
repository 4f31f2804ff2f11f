#include "eval/report/comparison-input.h"

#include "lrnn.h"

#include <string.h>

int comparison_side_count(const struct comparison_side * s) {
    return s->is_report ? s->file.n_runs : s->scores.n_runs;
}

const struct summary * comparison_side_summary(const struct comparison_side * s, int i) {
    return s->is_report ? &s->file.runs[i] : &s->scores.runs[i].summary;
}

static bool is_report_path(const char * path) {
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

// The --bucket that gives the ranges of a report; −1: unknown.
static int64_t bucket_of(const struct summary * s) {
    const struct losses * l = &s->buckets;
    if (l->n == 0 || s->n_contexts > 0) {
        return -1;
    }
    const int64_t width   = l->at[0].range.to - l->at[0].range.from + 1;
    const bool    is_log2 = l->n > 2 && l->at[0].range.from == 1 && width == 2 &&
                         l->at[1].range.to == 4 && l->at[2].range.to > 6;
    return is_log2 ? 0 : width;
}

// The smallest bucket of the panels of both sides.
static int64_t common_bucket(const struct comparison_side * sides) {
    int64_t bucket = INT64_MAX;
    for (int k = 0; k < 2; ++k) {
        for (int p = 0; p < sides[k].scores.n_panels; ++p) {
            const int64_t b = sides[k].scores.panels[p].bucket;
            bucket          = b < bucket ? b : bucket;
        }
    }
    return bucket;
}

static bool read_scores(struct comparison_side * s, const struct report_params * params,
        int64_t bucket, struct lrnn_error * err) {
    struct report_params p = *params;
    p.paths                = &s->path;
    p.n_paths              = 1;
    p.bucket               = bucket;
    report_free(&s->scores);
    return report_read(&p, &s->scores, err);
}

// Reports come with buckets, and score files use the same ones. Without a report, score files are
// read twice: for the bucket that suits each, and with the smaller one.
bool comparison_sides_read(struct comparison_side sides[2], const char * const paths[2],
        const struct report_params * params, struct lrnn_error * err) {
    int64_t bucket = params->bucket;
    for (int k = 0; k < 2; ++k) {
        sides[k] = (struct comparison_side) { .path = paths[k],
            .is_report                              = is_report_path(paths[k]) };
    }
    for (int k = 0; k < 2; ++k) {
        if (sides[k].is_report) {
            if (!report_file_read(paths[k], &sides[k].file, err)) {
                return false;
            }
            bucket = bucket < 0 ? bucket_of(&sides[k].file.runs[0]) : bucket;
        }
    }
    const int n_passes = bucket < 0 ? 2 : 1;
    for (int pass = 0; pass < n_passes; ++pass) {
        for (int k = 0; k < 2; ++k) {
            if (!sides[k].is_report && !read_scores(&sides[k], params, bucket, err)) {
                return false;
            }
        }
        bucket = common_bucket(sides);
    }
    return true;
}

void comparison_sides_free(struct comparison_side sides[2]) {
    for (int k = 0; k < 2; ++k) {
        report_file_free(&sides[k].file);
        report_free(&sides[k].scores);
    }
}
