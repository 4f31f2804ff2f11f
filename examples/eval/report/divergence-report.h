#pragma once

// The results of a comparison of models (divergence.h), as JSON and as a table.

#include "eval/estimates/kl.h"

#include <stdio.h>

struct divergence_report {
    const char *                   dataset;
    int64_t                        window; // tokens
    const struct windows_summary * data;
    int                            n_models;
    const char * const *           paths;  // [n_models]; the reference is the first
    struct lrnn_model * const *    models; // [n_models]
    int                            n_ranges;
    struct divergence_summary * summaries; // [n_models − 1][n_ranges + 1]; the last: all positions
};

// Fills n_ranges and summaries; the rest must be set. Returns false if out of memory.
// - found: [n_models − 1]
// - bucket: as for divergence_ranges
bool divergence_report_make(
        struct divergence_report * r, const struct divergence_windows * found, int64_t bucket);
void divergence_report_free(struct divergence_report * r); // only what make allocated

void divergence_write_json(const struct divergence_report * r, FILE * out);
void divergence_write_table(const struct divergence_report * r, FILE * out);
