#include "eval/estimates/stats.h"

#include "base/random.h"
#include "memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

//
// Estimates
//

// One window in one column of a difference. A ratio is the difference from b = 0/1.
struct item {
    struct stats_pair a, b;
};

static const struct stats_pair ZERO = { .num = 0.0, .den = 1.0 };

static void item_add(struct item * sum, const struct item * x) {
    sum->a.num += x->a.num;
    sum->a.den += x->a.den;
    sum->b.num += x->b.num;
    sum->b.den += x->b.den;
}

static double item_difference(const struct item * sum) {
    return sum->a.num / sum->a.den - sum->b.num / sum->b.den;
}

static void estimate(
        const struct item * items, int64_t n_windows, int64_t n_cols, struct stats_estimate * e) {
    struct item sum = { 0 };
    double      residual = 0.0;

    *e = (struct stats_estimate) {
        .value = NAN, .se = NAN, .lo = NAN, .hi = NAN, .method = STATS_NONE
    };
    for (int64_t i = 0; i < n_windows; ++i) {
        item_add(&sum, &items[i * n_cols]);
        e->n += items[i * n_cols].a.den > 0.0;
    }
    if (e->n == 0 || !isfinite(item_difference(&sum))) {
        return;
    }
    e->value = item_difference(&sum);
    if (e->n < 2) {
        return;
    }
    for (int64_t i = 0; i < n_windows; ++i) {
        const struct item * x = &items[i * n_cols];
        const double        r = (x->a.num - sum.a.num / sum.a.den * x->a.den) / sum.a.den -
                         (x->b.num - sum.b.num / sum.b.den * x->b.den) / sum.b.den;
        residual += r * r;
    }
    e->se = sqrt((double) e->n / (double) (e->n - 1) * residual);
    if (e->n >= STATS_MIN_BOOTSTRAP) {
        e->method = STATS_BOOTSTRAP;
    } else if (e->n >= STATS_MIN_T) {
        const double half = stats_t_quantile(0.5 + 0.5 * STATS_LEVEL, (double) (e->n - 1)) * e->se;
        e->method = STATS_T;
        e->lo = e->value - half;
        e->hi = e->value + half;
    }
}

// The sums of every column for one draw of windows.
static void draw_sums(const struct item * items, int64_t n_windows, int64_t n_cols, uint64_t * rng,
        struct item * sums) {
    memset(sums, 0, (size_t) n_cols * sizeof(*sums));
    for (int64_t i = 0; i < n_windows; ++i) {
        const struct item * row = items + random_below_u32(rng, (uint32_t) n_windows) * n_cols;
        for (int64_t c = 0; c < n_cols; ++c) {
            item_add(&sums[c], &row[c]);
        }
    }
}

static void bootstrap(const struct item * items, int64_t n_windows, int64_t n_cols, uint64_t seed,
        struct stats_estimate * out) {
    struct item * sums = program_alloc((size_t) n_cols, sizeof(*sums));
    double *      draws = program_alloc((size_t) n_cols * STATS_DRAWS, sizeof(*draws));
    uint64_t      rng = seed;

    for (int64_t d = 0; d < STATS_DRAWS; ++d) {
        draw_sums(items, n_windows, n_cols, &rng, sums);
        for (int64_t c = 0; c < n_cols; ++c) {
            // A draw may miss every window of the column (once in e^10 draws for 10 windows among
            // many). Its value is then that of the sample.
            draws[c * STATS_DRAWS + d] =
                    sums[c].a.den > 0.0 ? item_difference(&sums[c]) : out[c].value;
        }
    }
    for (int64_t c = 0; c < n_cols; ++c) {
        if (out[c].method == STATS_BOOTSTRAP) {
            double * column = draws + c * STATS_DRAWS;
            stats_sort(column, STATS_DRAWS);
            out[c].lo = stats_quantile(column, STATS_DRAWS, 0.5 - 0.5 * STATS_LEVEL);
            out[c].hi = stats_quantile(column, STATS_DRAWS, 0.5 + 0.5 * STATS_LEVEL);
        }
    }
    free(sums);
    free(draws);
}

void stats_differences(const struct stats_pair * a, const struct stats_pair * b, int64_t n_windows,
        int64_t n_cols, uint64_t seed, struct stats_estimate * out) {
    const int64_t n = n_windows * n_cols;
    struct item * items = program_alloc((size_t) n, sizeof(*items));
    bool          any = false;

    for (int64_t i = 0; i < n; ++i) {
        const bool is_there = a[i].den > 0.0 && (b == NULL || b[i].den > 0.0);
        items[i] = is_there ? (struct item) { a[i], b == NULL ? ZERO : b[i] } : (struct item) { 0 };
    }
    for (int64_t c = 0; c < n_cols; ++c) {
        estimate(items + c, n_windows, n_cols, &out[c]);
        any |= out[c].method == STATS_BOOTSTRAP;
    }
    if (any) {
        bootstrap(items, n_windows, n_cols, seed, out);
    }
    free(items);
}

void stats_ratios(const struct stats_pair * x, int64_t n_windows, int64_t n_cols, uint64_t seed,
        struct stats_estimate * out) {
    stats_differences(x, NULL, n_windows, n_cols, seed, out);
}

double stats_p_value(const struct stats_estimate * e) {
    if (isnan(e->value) || isnan(e->se)) {
        return NAN;
    }
    if (e->se == 0.0) {
        return e->value == 0.0 ? 1.0 : 0.0;
    }
    return 2.0 * stats_t_cdf(-fabs(e->value / e->se), (double) (e->n - 1));
}

//
// Student's t
//

// The regularized incomplete beta function I_x(a, b) without its front factor, by its continued
// fraction (Abramowitz and Stegun 26.5.8), evaluated with Lentz's method (1976). Converges fast for
// x < (a + 1)/(a + b + 2); the caller makes sure of that.
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300; // replaces zero divisors
    double       c = 1.0;
    double       d = 1.0 - (a + b) * x / (a + 1.0);
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    double f = d;

    for (int m = 1; m <= 10000; ++m) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double       step = 1.0;
        for (int k = 0; k < 2; ++k) {
            const double term = k == 0 ? even : odd;
            d = 1.0 + term * d;
            d = 1.0 / (fabs(d) < tiny ? tiny : d);
            c = 1.0 + term / c;
            c = fabs(c) < tiny ? tiny : c;
            step = c * d;
            f *= step;
        }
        if (fabs(step - 1.0) < 1e-16) {
            break;
        }
    }
    return f;
}

// - y: 1 − x, without the rounding of a subtraction
static double beta_incomplete(double a, double b, double x, double y) {
    if (x <= 0.0 || y <= 0.0) {
        return x <= 0.0 ? 0.0 : 1.0;
    }
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y));

    return x < (a + 1.0) / (a + b + 2.0) ? front * beta_fraction(a, b, x) / a
                                         : 1.0 - front * beta_fraction(b, a, y) / b;
}

// P(T ≤ t) = 1 − I_x(df/2, 1/2)/2 for t ≥ 0, with x = df/(df + t²)
double stats_t_cdf(double t, double df) {
    const double tail =
            0.5 * beta_incomplete(0.5 * df, 0.5, df / (df + t * t), t * t / (df + t * t));
    return t > 0.0 ? 1.0 - tail : tail;
}

// By bisection: the function is monotone, and speed does not matter here.
double stats_t_quantile(double p, double df) {
    if (p > 0.5) {
        return -stats_t_quantile(1.0 - p, df);
    }
    double lo = -1.0, hi = 0.0;
    while (stats_t_cdf(lo, df) > p && lo > -1e300) {
        hi = lo;
        lo *= 2.0;
    }
    for (int i = 0; i < 200 && lo < hi; ++i) {
        const double mid = 0.5 * (lo + hi);
        if (mid == lo || mid == hi) {
            break;
        }
        if (stats_t_cdf(mid, df) > p) {
            hi = mid;
        } else {
            lo = mid;
        }
    }
    return 0.5 * (lo + hi);
}

//
// Quantiles
//

static int compare_doubles(const void * a, const void * b) {
    const double x = *(const double *) a;
    const double y = *(const double *) b;
    return (x > y) - (x < y);
}

void stats_sort(double * x, int64_t n) {
    qsort(x, (size_t) n, sizeof(*x), compare_doubles);
}

void stats_share(int64_t k, int64_t n, double * lo, double * hi) {
    const double z = 1.959963984540054; // the quantile 0.975 of the normal distribution
    *lo = 0.0;
    *hi = 1.0;
    if (n > 0) {
        const double m = (double) n, p = (double) k / m;
        const double half = z * sqrt(p * (1.0 - p) / m + z * z / (4.0 * m * m));
        const double middle = p + z * z / (2.0 * m), scale = 1.0 + z * z / m;
        // exact at the ends, where rounding would leave them
        *lo = k == 0 ? 0.0 : (middle - half) / scale;
        *hi = k == n ? 1.0 : (middle + half) / scale;
    }
}

double stats_quantile(const double * sorted, int64_t n, double p) {
    const double  at = p * (double) (n - 1);
    const int64_t i = (int64_t) at;
    return i + 1 < n ? sorted[i] + (at - (double) i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}
