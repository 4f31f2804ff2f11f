#pragma once

// The tracking horizon of a model: how its readouts drift away from those of their true state, and
// where they will be mistaken for another one.
//
// The readout of a position is its vector of logits. With
//
//     c_s          the centroid of state s: mean readout at positions up to the reference length
//     spread(W)    the largest distance of a readout from the centroid of its true state, in a
//                  window W of positions
//     margin       the smallest distance of a centroid from the boundary of its decision region,
//                  min over s and k ≠ answer(s) of (c_s[answer(s)] − c_s[k]) / √2
//
// the answer of every readout closer to its centroid than the margin is right, so no error happens
// where the spread is below the margin. The horizon is where the spread exceeds it (compare arXiv
// 2605.07755). A true state is the answer of the task.

#include "lrnn.h"
#include "eval/tasks/probe.h"

enum { HORIZON_ROWS_MAX = 48 };

// The positions after those of the previous row, up to this one.
struct horizon_row {
    int64_t position;
    int64_t n; // readouts
    double  spread;
    double  separation; // smallest distance of two centroids of these positions
};

struct horizon {
    int                n_rows;
    struct horizon_row rows[HORIZON_ROWS_MAX]; // positions are powers of two
    double             margin;
    int64_t            crossed; // last position of the first row whose spread exceeds the
                                // margin; 0: none
    int64_t first_error;        // earliest position of a wrong answer, from 1; 0: none
    bool    stopped;            // by the callback
};

// - params: the first length is the reference length, the last one the longest position
bool horizon_measure(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct horizon * horizon, struct lrnn_error * err);
