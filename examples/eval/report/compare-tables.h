#pragma once

// What `lrnn-perplexity compare` prints.

#include "eval/estimates/kl.h"
#include "eval/estimates/paired.h"
#include "eval/report/text-table.h"

// Scored runs.
struct table * comparison_table(const struct comparison * c, struct arena * arena);
struct table * byte_comparison_table(const struct byte_comparison * c, const char * base,
        const char * other, struct arena * arena); // base, other: names of the models

// Models by their distributions (kl.h).
struct kl_report {
    const char *                   dataset;
    int64_t                        window; // tokens
    const struct windows_summary * data;
    int                            n_models;
    const char * const *           paths;  // [n_models]; the reference is the first
    struct lrnn_model * const *    models; // [n_models]
    int                            n_ranges;
    struct kl_summary * summaries; // [n_models − 1][n_ranges + 1]; the last: all positions
};

// Fills n_ranges and summaries; the rest must be set. Fails if there are too many buckets.
// - found: [n_models − 1]
// - bucket: as for ranges_of_buckets
bool kl_report_make(struct kl_report * r, const struct kl_windows * found, int64_t bucket,
        struct lrnn_error * err);
void kl_report_free(struct kl_report * r); // only what make allocated

void kl_report_write_json(const struct kl_report * r, FILE * out);
void kl_report_write_text(const struct kl_report * r, FILE * out);
