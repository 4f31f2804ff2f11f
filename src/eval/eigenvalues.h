#pragma once

// The eigenvalues of every transition that a model makes on an input, counted layer by layer.

#include "lrnn.h"

enum { EIGENVALUES_BINS = 40 }; // from −1 to 1

struct eigenvalues_layer {
    int64_t n;          // counted; 0: an attention layer, or nothing was seen
    int64_t n_negative; // with a real part below zero
    int64_t n_complex;
    int64_t n_outside;              // with an absolute value above 1 + 1e-5
    int64_t bins[EIGENVALUES_BINS]; // of the real part; what lies outside counts at the edge
    double  lo, hi;                 // of the real part
    double  largest;                // absolute value
    double  gate_lo,
            gate_hi; // Householder families: of the gate, which is every eigenvalue that no key touches; 1 without a gate
};

struct eigenvalues {
    int                        n_layers;
    struct eigenvalues_layer * layers;
    int64_t                    every; // tokens are looked at, one in so many
    enum lrnn_transition       kind;
    int64_t                    per_token; // counted a head and token: n_h, d_k, or d_k × d_v
    const char *               error;     // NULL, or why the callback stopped the call
};

bool eigenvalues_init(struct eigenvalues * e, int n_layers, int64_t every);
void eigenvalues_free(struct eigenvalues * e);

// For lrnn_session_params: watch, with LRNN_TRACE_SCANS and the struct as user data.
bool eigenvalues_watch(const struct lrnn_trace_event * watched, void * user);

// All layers together.
struct eigenvalues_layer eigenvalues_total(const struct eigenvalues * e);
