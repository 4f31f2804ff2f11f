#include "eval/estimates/losses.h"

#include "memory.h"

#include <math.h>
#include <stdlib.h>

static const double LN2 = 0.69314718055994530942;

struct loss_in_unit loss_in(const struct loss * l, enum loss_unit unit) {
    const struct stats_estimate * e = unit == LOSS_BPB ? &l->bits : &l->nats;
    return unit == LOSS_PPL ? (struct loss_in_unit) { exp(e->value), exp(e->lo), exp(e->hi) }
                            : (struct loss_in_unit) { e->value, e->lo, e->hi };
}

//
// Cells
//

struct score_cell score_cell_of(const struct score_window * w, int64_t first, int64_t last) {
    struct score_cell cell = { 0 };
    for (int64_t t = first; t <= last; ++t) {
        if (w->flags[t - 1] & SCORE_COUNTED) {
            cell.nll += (double) w->nll[t - 1];
            cell.bytes += w->bytes[t - 1];
            cell.hits += (w->flags[t - 1] & SCORE_TOP1) != 0;
            cell.tokens += 1;
        }
    }
    return cell;
}

struct score_cell score_cell_sum(const struct score_cell * cells, int n) {
    struct score_cell sum = { 0 };
    for (int i = 0; i < n; ++i) {
        if (cells[i].diverged) {
            return (struct score_cell) { .diverged = true };
        }
        sum.nll += cells[i].nll;
        sum.tokens += cells[i].tokens;
        sum.bytes += cells[i].bytes;
        sum.hits += cells[i].hits;
    }
    return sum;
}

struct stats_pair score_cell_pair(const struct score_cell * c, enum loss_unit unit) {
    return (struct stats_pair) { c->nll,
        unit == LOSS_BPB ? LN2 * (double) c->bytes : (double) c->tokens };
}

//
// Ranges
//

void losses_alloc(struct losses * l, const struct position_range * ranges, int n, int64_t n_units,
        struct arena * arena) {
    l->n = n;
    l->at = program_alloc_in(arena, (size_t) n, sizeof(*l->at));
    l->cells = program_alloc_in(arena, (size_t) (n * n_units), sizeof(*l->cells));
    for (int i = 0; i < n && ranges != NULL; ++i) {
        l->at[i].range = ranges[i];
    }
}

void losses_estimate(struct losses * l, int64_t n_units) {
    const size_t            n = (size_t) (n_units * l->n);
    struct stats_pair *     x = program_alloc(n, sizeof(*x));
    struct stats_estimate * out = program_alloc((size_t) l->n, sizeof(*out));

    for (int64_t u = 0; u < n_units; ++u) {
        for (int i = 0; i < l->n; ++i) {
            const struct score_cell * c = &l->cells[u * l->n + i];
            l->at[i].tokens += c->tokens;
            l->at[i].bytes += c->bytes;
            l->at[i].hits += c->hits;
            l->at[i].windows += c->tokens > 0;
            l->at[i].diverged += c->diverged;
        }
    }
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t i = 0; i < n; ++i) {
            x[i] = score_cell_pair(&l->cells[i], pass == 0 ? LOSS_NATS : LOSS_BPB);
        }
        stats_ratios(x, n_units, l->n, STATS_SEED, out);
        for (int i = 0; i < l->n; ++i) {
            *(pass == 0 ? &l->at[i].nats : &l->at[i].bits) = out[i];
        }
    }
    free(x);
    free(out);
}

static bool is_empty(const struct loss * l) {
    return l->tokens == 0 && l->diverged == 0;
}

void losses_trim(struct losses * l, int64_t n_units) {
    // cells and rows move to the front, over those that are no longer needed
    struct score_cell * to = l->cells;
    for (int64_t k = 0; k < n_units * l->n; ++k) {
        if (!is_empty(&l->at[k % l->n])) {
            *to++ = l->cells[k];
        }
    }
    int n = 0;
    for (int i = 0; i < l->n; ++i) {
        if (!is_empty(&l->at[i])) {
            l->at[n++] = l->at[i];
        }
    }
    l->n = n;
}

//
// Ranges of positions
//

int64_t ranges_default_bucket(int64_t window, int64_t trained_length) {
    int64_t b = 2048;
    while (b > 1 && (b * 8 > window || (trained_length > 0 && b > trained_length))) {
        b /= 2;
    }
    return b;
}

int ranges_of_buckets(int64_t length, int64_t bucket, struct position_range * ranges) {
    int n = 0;
    for (int64_t from = 1; from <= length; ++n) {
        const int64_t to = bucket > 0 ? from + bucket - 1 : from == 1 ? 2 : 2 * (from - 1);
        if (n == RANGES_MAX_BUCKETS) {
            return -1;
        }
        ranges[n] = (struct position_range) { from, to < length ? to : length };
        from = to + 1;
    }
    return n;
}

int ranges_of_prefixes(
        int64_t length, const int64_t * lengths, int n_lengths, struct position_range * ranges) {
    const int64_t whole = length + 1;
    int64_t       L = 512;
    int           n = 0;
    while (L > 2 && L * 8 > whole) {
        L /= 2;
    }
    for (int64_t last = 1; last < whole;) {
        int64_t next = L < whole ? L : whole;
        for (int i = 0; i < n_lengths; ++i) {
            next = lengths[i] > last && lengths[i] < next ? lengths[i] : next;
        }
        L *= next == L ? 2 : 1;
        ranges[n++] = (struct position_range) { 1, next - 1 };
        last = next;
    }
    return n;
}

// Where curves begin.
static int64_t curve_start(int64_t length) {
    int64_t start = 64;
    while (start > 1 && start * 64 > length + 1) {
        start /= 2;
    }
    return start;
}

int ranges_of_octaves(int64_t length, struct position_range * ranges) {
    const double start = (double) curve_start(length);
    int64_t      from = (int64_t) start + 1;
    int          n = 0;
    for (int k = 1; from <= length && n < RANGES_MAX_CURVE; ++k) {
        const int64_t end = (int64_t) floor(start * exp2(0.25 * k) + 1e-9); // exact powers of two
        if (end >= from) {
            ranges[n++] = (struct position_range) { from, end < length ? end : length };
            from = end + 1;
        }
    }
    // merge a short last range, of a window that is not a power of two
    if (n > 1 &&
            ranges[n - 1].to - ranges[n - 1].from < (ranges[n - 2].to - ranges[n - 2].from) / 2) {
        ranges[n - 2].to = ranges[n - 1].to;
        n--;
    }
    return n;
}

int ranges_of_average(
        int64_t length, int64_t smooth, bool is_log2, struct position_range * ranges) {
    const int64_t half = smooth / 2;
    int           n = 0;
    int64_t       last = -1;
    for (int k = 0; n < RANGES_MAX_CURVE; ++k) {
        const double  at = is_log2 ? (double) curve_start(length) * exp2(k / 16.0)
                                   : 1.0 + (double) k * (double) length / 256.0;
        const int64_t center = (int64_t) at;
        if (center > length) {
            break;
        }
        if (center > half && center + half <= length && center > last) { // only complete ranges
            ranges[n++] = (struct position_range) { center - half, center + half };
            last = center;
        }
    }
    return n;
}
