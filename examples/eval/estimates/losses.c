#include "eval/estimates/losses.h"

#include <math.h>
#include <stdlib.h>

static const double LN2 = 0.69314718055994530942;

double loss_value(const struct loss * l, enum loss_unit unit) {
    return unit == LOSS_PPL    ? exp(l->nats.value)
           : unit == LOSS_NATS ? l->nats.value
                               : l->bits.value;
}

double loss_lo(const struct loss * l, enum loss_unit unit) {
    return unit == LOSS_PPL ? exp(l->nats.lo) : unit == LOSS_NATS ? l->nats.lo : l->bits.lo;
}

double loss_hi(const struct loss * l, enum loss_unit unit) {
    return unit == LOSS_PPL ? exp(l->nats.hi) : unit == LOSS_NATS ? l->nats.hi : l->bits.hi;
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

bool losses_alloc(struct losses * l, const struct position_range * ranges, int n, int64_t n_units,
        struct arena * arena) {
    l->n     = n;
    l->at    = arena_alloc(arena, ((size_t) n + 1) * sizeof(*l->at));
    l->cells = arena_alloc(arena, ((size_t) n * (size_t) n_units + 1) * sizeof(*l->cells));
    if (l->at == NULL || l->cells == NULL) {
        return false;
    }
    for (int i = 0; i < n; ++i) {
        l->at[i].range = ranges[i];
    }
    return true;
}

bool losses_estimate(struct losses * l, int64_t n_units) {
    const size_t            n   = (size_t) (n_units * l->n);
    struct stats_pair *     x   = malloc((n + 1) * sizeof(*x));
    struct stats_estimate * out = malloc(((size_t) l->n + 1) * sizeof(*out));
    bool                    ok  = x != NULL && out != NULL;

    for (int64_t u = 0; u < n_units && ok; ++u) {
        for (int i = 0; i < l->n; ++i) {
            const struct score_cell * c = &l->cells[u * l->n + i];
            l->at[i].tokens += c->tokens;
            l->at[i].bytes += c->bytes;
            l->at[i].hits += c->hits;
            l->at[i].windows += c->tokens > 0;
            l->at[i].diverged += c->diverged;
        }
    }
    for (int pass = 0; pass < 2 && ok; ++pass) {
        for (size_t i = 0; i < n; ++i) {
            x[i] = score_cell_pair(&l->cells[i], pass == 0 ? LOSS_NATS : LOSS_BPB);
        }
        ok = stats_ratios(x, n_units, l->n, STATS_SEED, out);
        for (int i = 0; i < l->n && ok; ++i) {
            *(pass == 0 ? &l->at[i].nats : &l->at[i].bits) = out[i];
        }
    }
    free(x);
    free(out);
    return ok;
}

static bool is_empty(const struct loss * l) {
    return l->tokens == 0 && l->diverged == 0;
}

void losses_trim(struct losses * l, int64_t n_units) {
    int n = 0;
    for (int i = 0; i < l->n; ++i) {
        n += !is_empty(&l->at[i]);
    }
    // rows become shorter and move to the front, over cells that are no longer needed
    for (int64_t u = 0; u < n_units && n < l->n; ++u) {
        int k = 0;
        for (int i = 0; i < l->n; ++i) {
            if (!is_empty(&l->at[i])) {
                l->cells[u * n + k++] = l->cells[u * l->n + i];
            }
        }
    }
    int k = 0;
    for (int i = 0; i < l->n; ++i) {
        if (!is_empty(&l->at[i])) {
            l->at[k++] = l->at[i];
        }
    }
    l->n = n;
}
