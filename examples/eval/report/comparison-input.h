#pragma once

// The two sides of a comparison. Each is a report.json, a score file, or a folder of score files.

#include "lrnn.h"
#include "eval/report/report-read.h"
#include "eval/report/report-model.h"

struct comparison_side {
    const char *       path;
    bool               is_report;
    struct report_file file;   // if is_report
    struct report      scores; // otherwise
};

// Reads both sides with equal buckets. On failure, free them all the same.
// - params: bucket, trained_length, tolerance and partial are used
bool comparison_sides_read(struct comparison_side sides[2], const char * const paths[2],
        const struct report_params * params, struct lrnn_error * err);
void comparison_sides_free(struct comparison_side sides[2]);

int comparison_side_count(const struct comparison_side * s);
const struct summary * comparison_side_summary(const struct comparison_side * s, int i);
