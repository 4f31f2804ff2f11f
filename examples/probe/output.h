#pragma once

// Results of lrnn-probe: tables, JSON and a chart.

#include "eigenvalues.h"
#include "horizon.h"
#include "eval/tasks/probe.h"
#include "sequence.h"

#include <stdio.h>

// A model and its results.
struct probed {
    char                name[128]; // of the file, without folder and extension
    char                task[64];
    char                eigenvalues[16]; // the range that the file states
    double              chance;
    struct probe_result result;
    struct eigenvalues  spectrum; // no layers: not counted
    struct horizon      horizon;  // no rows: not measured
    struct sequence     sequence; // no letters: not asked
};

// Accuracy by length, and the share of sequences without any error up to that length. All models
// have the same task.
void output_lengths(FILE * out, const struct probed * probed, int n, int64_t n_sequences);

// The score of the paper, one row per model.
void output_scores(FILE * out, const struct probed * probed, int n, int64_t lo, int64_t hi);

// Spread and separation by position, if there is one model; then one row per model with its
// horizon.
void output_horizons(FILE * out, const struct probed * probed, int n);

// Range and histogram of the eigenvalues.
void output_eigenvalues(FILE * out, const struct probed * probed);

void output_json(FILE * out, const struct probed * probed, int n, bool by_length);

// One panel for all accuracies and one for the shares of sequences without error, or one for all
// spreads; and one per model for its eigenvalues.
void output_svg(FILE * out, const struct probed * probed, int n);
