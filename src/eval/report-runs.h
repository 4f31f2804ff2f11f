#pragma once

// The runs of a report: score files found, put together, summed up, and sorted into panels of what
// may stand side by side.

#include "eval/comparison.h"
#include "eval/summary.h"

struct report_params {
    const char * const * paths; // score files and folders of them
    int                  n_paths;
    const char *
            baseline; // model that others are compared with; NULL: the first of a panel that is not quantised
    int64_t        bucket;         // −1: one that suits the runs; 0: log2
    int64_t        trained_length; // 0: as the files say
    double         tolerance;
    enum loss_unit unit;
    bool           log2_x;
    int64_t        smooth;
    bool           partial;
};

struct report_run {
    struct scores  scores;
    struct summary summary;
    char *         name; // the model's, made different where two in a panel have the same
    int            panel;
    int            color; // of the chart: variants of one model share it
    int            dash;  // 0: not quantised
};

// Runs over the same data with the same tokenizer and protocol; with the unit of bits per byte,
// tokenizers may differ.
struct report_panel {
    char *               title;
    int                  n;
    struct report_run ** runs;
    int                  baseline; // number in runs
    int64_t              bucket;
    struct comparison *
            comparisons; // [n] with the baseline; `base` is NULL for the baseline itself and for other tokenizers
    struct byte_comparison * bytes;   // [n] for other tokenizers; `bytes` is 0 elsewhere
    const char **            refused; // [n] why there is neither; NULL
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

// False with a sentence in err: a path that cannot be read, shards that do not fit together, a
// baseline that is not there.
bool report_read(
        const struct report_params * params, struct report * report, char * err, size_t err_size);
void report_free(struct report * report);

// Pairs of figures of two runs of a panel, or NULL where the two cannot be paired or memory is
// short. Made with malloc.
struct paired * report_pair(const struct report * report, const struct report_run * base,
        const struct losses * base_losses, const struct report_run * other,
        const struct losses * other_losses);

// Warning number i of a panel: each sentence once, and the names of the models that it is about.
// NULL beyond the last.
const char * report_warning(const struct report_panel * panel, int i, char * names, size_t size);
