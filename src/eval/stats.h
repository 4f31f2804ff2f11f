#pragma once

// How sure a measured mean is.
//
// Tokens of a text are not independent, windows nearly are: the unit of everything here is the
// window. A figure is a ratio of sums over windows, which is the mean over tokens whatever the
// windows' lengths; a comparison is the difference of two such figures over the same windows:
//
//     r = Σ_i num_i / Σ_i den_i                              num: nats, hits, KL divergence …; den: tokens, or bytes
//     d = Σ_i a_i / Σ_i α_i  −  Σ_i b_i / Σ_i β_i            a, b: two models in one bucket, or one model in two
//
// Interval, 95 %, by the number n of windows that have something in it (den_i > 0; α_i > 0 and β_i
// > 0, others are left out of d):
//
//     n ≥ 10   percentile bootstrap: 2,000 times the windows are drawn with replacement, r or d is formed of each draw, and the 2.5 % and
//              97.5 % quantiles of these are the ends. The draws depend on the number of windows and the seed alone: equal input gives
//              equal bytes, and columns of one call are drawn together
//     n ≥ 3    Student's t: r ± t(0.975, n − 1) · se
//     n < 3    none
//
// Standard error, for n ≥ 2, of a difference of ratios of sums (of a ratio: the same without the
// second term):
//
//     se² = n/(n − 1) · Σ_i e_i²,    e_i = (a_i − r_a·α_i) / Σα  −  (b_i − r_b·β_i) / Σβ
//
// With equal den_i these are the standard error and the t interval of the mean of window means, or
// of their paired differences.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STATS_DRAWS         = 2000,
    STATS_MIN_BOOTSTRAP = 10, // windows
    STATS_MIN_T         = 3,
};

#define STATS_LEVEL 0.95
#define STATS_SEED  UINT64_C(2411125372502)

enum stats_method { STATS_NONE, STATS_T, STATS_BOOTSTRAP };

struct stats_estimate {
    double            value;  // NaN if there is nothing, or something that is not finite, in it
    double            se;     // NaN for fewer than two windows
    double            lo, hi; // NaN where method is STATS_NONE
    int64_t           n;      // windows with den > 0
    enum stats_method method;
};

// A numerator and a denominator of one window.
struct stats_pair {
    double num, den;
};

// Estimates n_cols ratios over the same windows; x: [n_windows][n_cols], a row a window. False only
// if memory is short.
bool stats_ratios(const struct stats_pair * x, int64_t n_windows, int64_t n_cols, uint64_t seed,
        struct stats_estimate * out);

// The same for n_cols differences a − b.
bool stats_differences(const struct stats_pair * a, const struct stats_pair * b, int64_t n_windows,
        int64_t n_cols, uint64_t seed, struct stats_estimate * out);

// True if the whole interval lies on one side of zero.
bool stats_excludes_zero(const struct stats_estimate * e);

// Two-sided p of the hypothesis that the ratio is 0, by Student's t of value/se with n − 1 degrees
// of freedom. NaN where se is NaN.
double stats_p_value(const struct stats_estimate * e);

// Distribution function of Student's t, and its inverse for 0 < p < 1.
double stats_t_cdf(double t, double df);
double stats_t_quantile(double p, double df);

// Quantile of n ≥ 1 numbers in ascending order, 0 ≤ p ≤ 1, interpolated between neighbours: numpy's
// default, R's type 7.
double stats_quantile(const double * sorted, int64_t n, double p);
void stats_sort(double * x, int64_t n);
