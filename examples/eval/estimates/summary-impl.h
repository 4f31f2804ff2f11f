#pragma once

// Shared by the files of the summary.

#include "lrnn.h"
#include "eval/estimates/summary.h"

// Fills summary->extrapolation from the buckets. Returns false if out of memory.
bool summary_extrapolate(struct summary * s, double tolerance);

// Fills summary->warnings. Returns false if out of memory.
bool summary_add_warnings(struct summary * s, const struct scores * scores);

bool summary_out_of_memory(const struct summary * s, struct lrnn_error * err); // returns false
