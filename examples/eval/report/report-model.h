#pragma once

// The model of a report: runs with their summaries, grouped into panels of comparable runs.

#include "lrnn.h"
#include "eval/estimates/paired.h"
#include "eval/estimates/summary.h"

struct report_params {
    const char * const * paths; // score files and folders of them
    int                  n_paths;
    const char *         baseline;       // model; NULL: the first of a panel not quantized
    int64_t              bucket;         // −1: one that suits the runs; 0: log2
    int64_t              trained_length; // 0: as the files say
    double               tolerance;
    enum loss_unit       unit;
    bool                 log2_x;
    int64_t              smooth;
    bool                 partial;
};

struct report_run {
    struct scores  scores;
    struct summary summary;
    char *         name;  // of the model, unique in its panel
    const char *   label; // the name, at most CHART_LABEL_CHARS characters of it
    int            panel;
    int            color; // in charts; variants of one model share it, if there are few models
    int            dash;  // 0: not quantized, if there are few models
    // with the baseline of the panel:
    struct comparison      comparison; // base NULL: none
    struct byte_comparison bytes;      // of other tokenizers; bytes 0: none
    const char *           refused;    // why there is neither; NULL
};

// Runs on the same data with the same protocol and tokenizer. In bits per byte, tokenizers may
// differ.
struct report_panel {
    char *               title;
    int                  n;
    struct report_run ** runs;
    int                  baseline; // index in runs
    int64_t              bucket;
};

struct report {
    struct report_params  params;
    int                   n_files;
    const char **         files; // score files that were read
    int                   n_runs;
    struct report_run *   runs;
    int                   n_panels;
    struct report_panel * panels;
    struct arena *        arena;
};

bool report_read(
        const struct report_params * params, struct report * report, struct lrnn_error * err);
void report_free(struct report * report);

// Pairs the losses of two runs of a panel. To be freed; NULL: not comparable.
struct paired * report_pair(const struct report * report, const struct report_run * base,
        const struct losses * base_losses, const struct report_run * other,
        const struct losses * other_losses);

// Are there too many models for one color each? Then dashes also distinguish models.
bool report_is_crowded(const struct report * report);

// Warning i of a panel, without duplicates, and the names of the models it concerns; NULL after the
// last.
const char * report_warning(const struct report_panel * panel, int i, char * names, size_t size);

// Lists names in a sentence: "a, b, c, d and 5 more". Starts with text, "", and its size.
struct name_series {
    char * text;
    size_t size, n;
    int    n_shown, n_hidden;
};

void name_series_add(struct name_series * list, const char * name);
void name_series_end(struct name_series * list);

// Finds score files and joins the shards of each run (find-scores.c). Fills files and runs[].scores
// of a report that has an arena. Files with equal headers are shards of one run.
// - paths: score files, or folders that are searched for *.nll at any depth
bool report_find_runs(struct report * r, const char * const * paths, int n_paths, bool partial,
        struct lrnn_error * err);
