#pragma once

// Finds score files and joins the shards of each run.

#include "lrnn.h"
#include "eval/report/report-model.h"

// Fills files and runs[].scores of a report. Files with equal headers are shards of one run.
// - paths: score files, or folders that are searched for *.nll at any depth
bool report_find_runs(struct report * r, const char * const * paths, int n_paths, bool partial,
        struct lrnn_error * err);
