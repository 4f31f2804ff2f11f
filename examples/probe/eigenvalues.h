#pragma once

// Counts the eigenvalues of the transitions that a model makes on an input, per layer.

#include "lrnn.h"

enum { EIGENVALUES_BINS = 40 }; // from −1 to 1

struct eigenvalues_layer {
    int64_t n;                      // counted; 0: an attention layer, or no input
    int64_t n_negative;             // with a real part below zero
    int64_t n_complex;              // more than 0.01 radians off the real axis
    int64_t n_outside;              // with an absolute value above 1 + 1e-5
    int64_t bins[EIGENVALUES_BINS]; // of the real part; values outside are in the outer bins
    double  lo, hi;                 // of the real part
    double  largest;                // absolute value

    // Householder families: range of the gate, which is the eigenvalue in all directions orthogonal
    // to the keys; 1 without a gate
    double gate_lo, gate_hi;
};

struct eigenvalues {
    int                        n_layers;
    struct eigenvalues_layer * layers;
    int64_t                    every; // count one token in this many
    enum lrnn_transition       kind;
    const char *               error; // why the callback stopped the call; NULL: it did not
};

// - every: count one token in this many
void eigenvalues_init(struct eigenvalues * e, int n_layers, int64_t every);
void eigenvalues_free(struct eigenvalues * e);

// The trace callback of a session, for LRNN_TRACE_SCANS. `user` is a struct eigenvalues.
bool eigenvalues_trace(const struct lrnn_trace_event * event, void * user);

// The sum of all layers.
struct eigenvalues_layer eigenvalues_total(const struct eigenvalues * e);
