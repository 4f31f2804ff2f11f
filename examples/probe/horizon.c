#include "horizon.h"

#include "base/error.h"
#include "memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { VALUES_MAX = 1 << 24 }; // sums of readouts that are kept at once

struct measure {
    struct horizon * horizon;
    int64_t          n_vocab;
    int              n_states, n_states_max, n_centroids;
    int *            state_of;  // [n_vocab]: state of an answer; −1: not seen
    int32_t *        answers;   // [n_states]: answer of a state
    double *         centroids; // [n_centroids][n_vocab]: states seen up to the first length
    double *         sums;      // [n_rows][n_states_max][n_vocab]
    int64_t *        counts;    // [n_rows][n_states_max]
};

static void measure_free(struct measure * m) {
    free(m->state_of);
    free(m->answers);
    free(m->centroids);
    free(m->sums);
    free(m->counts);
}

static bool measure_init(struct measure * m, struct horizon * horizon,
        const struct lrnn_model * model, const struct task * task, struct lrnn_error * err) {
    *m = (struct measure) { .horizon = horizon, .n_vocab = lrnn_model_get_info(model).n_vocab };
    for (int i = 0; i < task_n_symbols(task); ++i) {
        m->n_states_max += task_is_answer(task, i);
    }
    const int64_t n_states = m->n_states_max, n_rows = horizon->n_rows;
    if (n_states * m->n_vocab > VALUES_MAX / n_rows) {
        return error_bad_input(err,
                "%" PRId64 " answers with %" PRId64 " logits in %" PRId64
                " windows are too many for --horizon; expected a product of at most %d",
                n_states, m->n_vocab, n_rows, VALUES_MAX);
    }
    const size_t size = (size_t) (n_states * m->n_vocab);
    m->state_of = program_alloc((size_t) m->n_vocab, sizeof(*m->state_of));
    m->answers = program_alloc((size_t) n_states, sizeof(*m->answers));
    m->centroids = program_alloc(size, sizeof(*m->centroids));
    m->sums = program_alloc((size_t) n_rows * size, sizeof(*m->sums));
    m->counts = program_alloc((size_t) (n_rows * n_states), sizeof(*m->counts));
    for (int64_t k = 0; k < m->n_vocab; ++k) {
        m->state_of[k] = -1;
    }
    return true;
}

static int find_row(const struct horizon * h, int64_t position) {
    int i = 0;
    while (i + 1 < h->n_rows && position > h->rows[i].position) {
        ++i;
    }
    return i;
}

// Adds a readout to the sums of its window.
static void add_readout(int64_t position, int32_t answer, const float * logits, void * user) {
    struct measure * m = user;
    if (m->state_of[answer] < 0) {
        if (m->n_states == m->n_states_max) {
            return;
        }
        m->answers[m->n_states] = answer;
        m->state_of[answer] = m->n_states++;
    }
    const int row = find_row(m->horizon, position), s = m->state_of[answer];
    double *  sum = m->sums + ((size_t) row * (size_t) m->n_states_max + (size_t) s) * m->n_vocab;
    for (int64_t k = 0; k < m->n_vocab; ++k) {
        sum[k] += (double) logits[k];
    }
    m->counts[row * m->n_states_max + s]++;
}

// Compares a readout with the centroid of its state, and adds it to the sums of its window.
static void compare_readout(int64_t position, int32_t answer, const float * logits, void * user) {
    struct measure *     m = user;
    const int            s = m->state_of[answer];
    struct horizon_row * row = &m->horizon->rows[find_row(m->horizon, position)];
    if (s >= 0 && s < m->n_centroids) {
        const double * c = m->centroids + (size_t) s * (size_t) m->n_vocab;
        double         sum = 0.0;
        for (int64_t k = 0; k < m->n_vocab; ++k) {
            sum += ((double) logits[k] - c[k]) * ((double) logits[k] - c[k]);
        }
        row->spread = fmax(row->spread, sqrt(sum));
        row->n++;
    }
    add_readout(position, answer, logits, user);
}

// c_s, from the sums of all windows; then clears them.
static void find_centroids(struct measure * m) {
    const int64_t n = m->n_vocab;
    m->n_centroids = m->n_states;
    for (int s = 0; s < m->n_centroids; ++s) {
        int64_t  count = 0;
        double * c = m->centroids + (size_t) s * (size_t) n;
        for (int r = 0; r < m->horizon->n_rows; ++r) {
            const size_t i = (size_t) (r * m->n_states_max + s);
            for (int64_t k = 0; k < n; ++k) {
                c[k] += m->sums[i * (size_t) n + (size_t) k];
                m->sums[i * (size_t) n + (size_t) k] = 0.0;
            }
            count += m->counts[i];
            m->counts[i] = 0;
        }
        for (int64_t k = 0; k < n; ++k) {
            c[k] /= (double) count;
        }
    }
}

static double find_margin(const struct measure * m) {
    double margin = INFINITY;
    for (int s = 0; s < m->n_centroids; ++s) {
        const double * c = m->centroids + (size_t) s * (size_t) m->n_vocab;
        for (int64_t k = 0; k < m->n_vocab; ++k) {
            if (k != m->answers[s]) {
                margin = fmin(margin, (c[m->answers[s]] - c[k]) / sqrt(2.0));
            }
        }
    }
    return margin;
}

// The smallest distance of two centroids of a window; NAN with fewer than two states.
static double find_separation(const struct measure * m, int row) {
    double smallest = NAN;
    for (int s = 0; s < m->n_states; ++s) {
        const size_t  i = (size_t) (row * m->n_states_max + s);
        const int64_t ni = m->counts[i];
        for (int t = 0; t < s && ni > 0; ++t) {
            const size_t  j = (size_t) (row * m->n_states_max + t);
            const int64_t nj = m->counts[j];
            double        sum = 0.0;
            for (int64_t k = 0; k < m->n_vocab && nj > 0; ++k) {
                const double d = m->sums[i * (size_t) m->n_vocab + (size_t) k] / (double) ni -
                                 m->sums[j * (size_t) m->n_vocab + (size_t) k] / (double) nj;
                sum += d * d;
            }
            smallest = nj > 0 ? fmin(smallest, sqrt(sum)) : smallest;
        }
    }
    return smallest;
}

static void make_rows(struct horizon * h, int64_t longest) {
    *h = (struct horizon) { 0 };
    for (int64_t p = 4; h->n_rows < HORIZON_ROWS_MAX; p *= 2) {
        h->rows[h->n_rows++] = (struct horizon_row) { .position = p < longest ? p : longest };
        if (p >= longest) {
            break;
        }
    }
}

bool horizon_measure(struct lrnn_model * model, const struct task * task,
        const struct probe_params * params, struct horizon * horizon, struct lrnn_error * err) {
    const int64_t       longest = params->lengths[params->n_lengths - 1];
    struct measure      m;
    struct probe_result result;
    struct probe_params pass = *params;
    bool                ok;

    make_rows(horizon, longest);
    if (!measure_init(&m, horizon, model, task, err)) {
        return false;
    }
    pass.n_lengths = 1;
    pass.observe = add_readout;
    pass.observe_user = &m;
    ok = probe_by_length(model, task, &pass, &result, err);
    if (ok && !result.stopped) {
        find_centroids(&m);
        horizon->margin = find_margin(&m);
        pass.lengths[0] = longest;
        pass.observe = compare_readout;
        ok = probe_by_length(model, task, &pass, &result, err);
    }
    horizon->stopped = result.stopped;
    if (ok && !result.stopped) {
        horizon->first_error = result.first_error;
        for (int i = 0; i < horizon->n_rows; ++i) {
            struct horizon_row * row = &horizon->rows[i];
            row->separation = find_separation(&m, i);
            if (row->spread > horizon->margin && horizon->crossed == 0) {
                horizon->crossed = row->position;
            }
        }
    }
    measure_free(&m);
    return ok;
}
