#pragma once

// Reads a report.json for a comparison: the facts about each run, and the sums of every window in
// every bucket. The result equals that of the score files to the bit.

#include "lrnn.h"
#include "eval/estimates/summary.h"

struct report_file {
    int              n_runs;
    struct summary * runs;
    struct arena *   arena;
};

bool report_file_read(const char * path, struct report_file * file, struct lrnn_error * err);
void report_file_free(struct report_file * file);
