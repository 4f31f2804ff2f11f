#pragma once

// What was found, as a table, as JSON and as a picture.

#include "eval/eigenvalues.h"
#include "probe.h"

#include <stdio.h>

// A model and what it answered.
struct probed {
    const char *        name; // of the file, without folder and ending
    const char *        task;
    const char *        eigenvalues; // range
    double              chance;
    struct probe_result result;
    struct eigenvalues  spectrum; // without layers if it was not asked for
};

// Accuracy by length, one column a model; all have the same task.
void output_lengths(FILE * out, const struct probed * probed, int n, int64_t n_sequences);

// The paper's score, one row a model.
void output_scores(FILE * out, const struct probed * probed, int n, int64_t lo, int64_t hi);

// Range and histogram.
void output_eigenvalues(FILE * out, const struct probed * probed);

void output_json(FILE * out, const struct probed * probed, int n, bool by_length);

// One panel for the accuracies, one for each model's eigenvalues, where there are such.
void output_svg(FILE * out, const struct probed * probed, int n);
