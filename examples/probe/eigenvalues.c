#include "eigenvalues.h"

#include "memory.h"
#include "spectrum.h"

#include <math.h>
#include <stdlib.h>

void eigenvalues_init(struct eigenvalues * e, int n_layers, int64_t every) {
    *e = (struct eigenvalues) { .n_layers = n_layers,
        .every = every,
        .layers = program_alloc((size_t) n_layers, sizeof(*e->layers)) };
    for (int i = 0; i < n_layers; ++i) {
        e->layers[i].lo = e->layers[i].gate_lo = INFINITY;
        e->layers[i].hi = e->layers[i].gate_hi = -INFINITY;
    }
}

void eigenvalues_free(struct eigenvalues * e) {
    free(e->layers);
}

static void count(struct eigenvalues_layer * l, double re, double im) {
    const double rounding = 1e-6; // keys are F32: a zero may become −1e-8
    const double size = im == 0.0 ? fabs(re) : hypot(re, im);
    int          bin = (int) floor((re + 1.0) / 2.0 * EIGENVALUES_BINS);
    bin = bin < 0 ? 0 : bin >= EIGENVALUES_BINS ? EIGENVALUES_BINS - 1 : bin;
    l->n++;
    l->n_negative += re < -rounding;
    // two reflections at keys that are orthogonal but for rounding split −1 into a pair e^{±iφ}
    l->n_complex += size > rounding && fabs(im) > 0.01 * size;
    l->n_outside += size > 1.0 + 1e-5;
    l->bins[bin]++;
    l->lo = re < l->lo ? re : l->lo;
    l->hi = re > l->hi ? re : l->hi;
    l->largest = size > l->largest ? size : l->largest;
}

// The values that head h of the state reads of a tensor [width, heads, factors, tokens]. Several
// heads of the state may share one; a single token stands for all (the gates of RetNet).
static const float * at(const struct lrnn_trace_event * event, const struct lrnn_trace_tensor * t,
        int64_t h, int64_t token) {
    return t->data +
           ((t->ne[3] > 1 ? token : 0) * t->ne[2] * t->ne[1] + h / (event->n_head / t->ne[1])) *
                   t->ne[0];
}

// diag(g) − z zᵀ
// - work: g [d], z² [d], room for 3 d more
static void count_rank_one(struct eigenvalues_layer * l, int64_t d, double * work) {
    spectrum_of_rank_one(d, work, work + d, work + 2 * d, work + 3 * d);
    for (int64_t i = 0; i < d; ++i) {
        count(l, work[2 * d + i], 0.0);
    }
}

// Π_j (I − β_j k_j k_jᵀ) diag(gate). Counts the eigenvalues of the factors; others are the gate.
static bool householder(const struct lrnn_trace_event * event, struct eigenvalues * e,
        struct eigenvalues_layer * l, int64_t h, int64_t token, double * work) {
    const struct lrnn_trace_tensor * k = lrnn_trace_find(event, "k");
    const struct lrnn_trace_tensor * beta = lrnn_trace_find(event, "beta");
    const struct lrnn_trace_tensor * gate = lrnn_trace_find(event, "gate");
    const int                        n = (int) k->ne[2];
    const float *                    kh = at(event, k, h, token);
    const float *                    bh = at(event, beta, h, token);
    const float *                    gh = gate != NULL ? at(event, gate, h, token) : NULL;

    if (gh != NULL && gate->ne[0] > 1) {
        // (I − β k kᵀ) diag(g) is similar to diag(g) − β u uᵀ, u = g^½ ∘ k
        if (n != 1) {
            e->error = "it has a gate per key channel and more than one factor";
            return false;
        }
        double *g = work, *z2 = work + event->d_k;
        for (int64_t i = 0; i < event->d_k; ++i) {
            if (gh[i] < 0.0f) {
                e->error = "it has a negative gate of a key channel together with a reflection";
                return false;
            }
            g[i] = gh[i];
            z2[i] = (double) bh[0] * gh[i] * kh[i] * kh[i];
            l->gate_lo = fmin(l->gate_lo, gh[i]);
            l->gate_hi = fmax(l->gate_hi, gh[i]);
        }
        count_rank_one(l, event->d_k, work);
        return true;
    }
    double re[SPECTRUM_FACTORS_MAX], im[SPECTRUM_FACTORS_MAX];
    if (!spectrum_of_reflections(
                event->d_k, n, kh, k->ne[0] * k->ne[1], bh, beta->ne[0] * beta->ne[1], re, im)) {
        e->error = "it has more than 16 factors per token";
        return false;
    }
    const double g = gh != NULL ? gh[0] : 1.0;
    l->gate_lo = fmin(l->gate_lo, g);
    l->gate_hi = fmax(l->gate_hi, g);
    for (int i = 0; i < n; ++i) {
        count(l, g * re[i], g * im[i]);
    }
    return true;
}

// diag(g) − w rᵀ
static bool rank_one(const struct lrnn_trace_event * event, struct eigenvalues * e,
        struct eigenvalues_layer * l, int64_t h, int64_t token, double * work) {
    const float * gh = at(event, lrnn_trace_find(event, "gate"), h, token);
    const float * rh = at(event, lrnn_trace_find(event, "r"), h, token);
    const float * wh = at(event, lrnn_trace_find(event, "w"), h, token);
    double *      g = work, *z2 = work + event->d_k;
    for (int64_t i = 0; i < event->d_k; ++i) {
        g[i] = gh[i];
        z2[i] = (double) wh[i] * rh[i];
        if (z2[i] < 0.0) {
            e->error = "its rank-one part is not similar to a symmetric one";
            return false;
        }
    }
    count_rank_one(l, event->d_k, work);
    return true;
}

static void diagonal(const struct lrnn_trace_event * event, const char * name, bool log,
        struct eigenvalues_layer * l, int64_t h, int64_t token) {
    const struct lrnn_trace_tensor * t = lrnn_trace_find(event, name);
    const float *                    x = at(event, t, h, token);
    for (int64_t i = 0; i < t->ne[0]; ++i) {
        count(l, log ? exp((double) x[i]) : x[i], 0.0);
    }
}

// exp(dt A), or 2 exp(dt A) − 1. A [d_v, d_k, heads] and dt [d_v, heads, 1, tokens], or one number
// per head each.
static void exponential(const struct lrnn_trace_event * event, struct eigenvalues_layer * l,
        int64_t h, int64_t token) {
    const struct lrnn_trace_tensor * A = lrnn_trace_find(event, "A");
    const struct lrnn_trace_tensor * dt = lrnn_trace_find(event, "dt");
    const float *                    d = at(event, dt, h, token);
    const float * a = A->data + h / (event->n_head / A->ne[2]) * A->ne[0] * A->ne[1];
    for (int64_t i = 0; i < A->ne[1]; ++i) {
        for (int64_t j = 0; j < A->ne[0]; ++j) {
            const double x = exp((double) d[dt->ne[0] > 1 ? j : 0] * a[i * A->ne[0] + j]);
            count(l, event->transition == LRNN_TRANSITION_TWO_EXP_M1 ? 2.0 * x - 1.0 : x, 0.0);
        }
    }
}

bool eigenvalues_trace(const struct lrnn_trace_event * event, void * user) {
    struct eigenvalues *       e = user;
    struct eigenvalues_layer * l =
            event->layer >= 0 && event->layer < e->n_layers ? &e->layers[event->layer] : NULL;
    if (l == NULL) {
        e->error = "it has a recurrence outside the layers";
        return false;
    }
    double * work = program_alloc((size_t) event->d_k * 5, sizeof(*work));
    bool     going = true;
    e->kind = event->transition;
    for (int32_t s = 0; s < event->n_seqs; ++s) {
        for (int64_t i = 0; i < event->seqs[s].count; ++i) {
            const int64_t token = event->seqs[s].first + i;
            for (int64_t h = 0;
                    h < event->n_head && going && (event->seqs[s].position + i) % e->every == 0;
                    ++h) {
                switch (event->transition) {
                    case LRNN_TRANSITION_HOUSEHOLDER:
                        going = householder(event, e, l, h, token, work);
                        break;
                    case LRNN_TRANSITION_RANK_ONE:
                        going = rank_one(event, e, l, h, token, work);
                        break;
                    case LRNN_TRANSITION_GATE: diagonal(event, "gate", false, l, h, token); break;
                    case LRNN_TRANSITION_MLSTM: diagonal(event, "log_f", true, l, h, token); break;
                    case LRNN_TRANSITION_EXP:
                    case LRNN_TRANSITION_TWO_EXP_M1: exponential(event, l, h, token); break;
                    case LRNN_TRANSITION_NONE: break;
                }
            }
        }
    }
    free(work);
    return going;
}

struct eigenvalues_layer eigenvalues_total(const struct eigenvalues * e) {
    struct eigenvalues_layer t = {
        .lo = INFINITY, .hi = -INFINITY, .gate_lo = INFINITY, .gate_hi = -INFINITY
    };
    for (int i = 0; i < e->n_layers; ++i) {
        const struct eigenvalues_layer * l = &e->layers[i];
        t.n += l->n;
        t.n_negative += l->n_negative;
        t.n_complex += l->n_complex;
        t.n_outside += l->n_outside;
        for (int b = 0; b < EIGENVALUES_BINS; ++b) {
            t.bins[b] += l->bins[b];
        }
        t.lo = fmin(t.lo, l->lo);
        t.hi = fmax(t.hi, l->hi);
        t.largest = fmax(t.largest, l->largest);
        t.gate_lo = fmin(t.gate_lo, l->gate_lo);
        t.gate_hi = fmax(t.gate_hi, l->gate_hi);
    }
    return t;
}
