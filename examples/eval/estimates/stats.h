#pragma once

// Estimates with confidence intervals.
//
// Tokens of a text are not independent, but windows nearly are, so the window is the unit of
// resampling. An estimate is a ratio of sums over windows, which is the mean over tokens for any
// lengths of windows, or the difference of two such ratios over the same windows:
//
//     r = Σ_i num_i / Σ_i den_i                     num: nats, hits, KL divergence …
//                                                   den: tokens or bytes
//     d = Σ_i a_i / Σ_i α_i  −  Σ_i b_i / Σ_i β_i   a, b: two models in one bucket, or one model in
//                                                   two buckets
//
// The 95 % interval depends on the number n of windows that contribute (den_i > 0; for d, α_i > 0
// and β_i > 0, other windows are excluded):
//
//     n ≥ 10   percentile bootstrap: 2,000 draws of the windows with replacement; the 2.5 % and
//              97.5 % quantiles of r or d. The draws depend only on the number of windows and the
//              seed, so equal input gives equal bytes. The columns of one call share the draws.
//     n ≥ 3    Student's t: r ± t(0.975, n − 1) · se
//     n < 3    none
//
// The standard error of a difference of ratios, for n ≥ 2 (of a ratio: without the second term):
//
//     se² = n/(n − 1) · Σ_i e_i²,    e_i = (a_i − r_a·α_i) / Σα  −  (b_i − r_b·β_i) / Σβ
//
// With equal den_i these are the standard error and the t interval of the mean of window means, or
// of their paired differences.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STATS_DRAWS = 2000,
    STATS_MIN_BOOTSTRAP = 10, // windows
    STATS_MIN_T = 3,
};

#define STATS_LEVEL 0.95
#define STATS_SEED  UINT64_C(2411125372502)

enum stats_method { STATS_NONE, STATS_T, STATS_BOOTSTRAP };

struct stats_estimate {
    double            value;  // NaN: no windows, or not finite
    double            se;     // NaN: fewer than two windows
    double            lo, hi; // NaN: method is STATS_NONE
    int64_t           n;      // windows with den > 0
    enum stats_method method;
};

// Numerator and denominator of one window.
struct stats_pair {
    double num, den;
};

// Estimates n_cols ratios over the same windows.
// - x: [n_windows][n_cols]
void stats_ratios(const struct stats_pair * x, int64_t n_windows, int64_t n_cols, uint64_t seed,
        struct stats_estimate * out);

// The same for n_cols differences a − b.
void stats_differences(const struct stats_pair * a, const struct stats_pair * b, int64_t n_windows,
        int64_t n_cols, uint64_t seed, struct stats_estimate * out);

// The 95 % interval of Wilson of a share k/n; 0 to 1 without trials.
//
//     (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n),    p = k/n, z = 1.96
void stats_share(int64_t k, int64_t n, double * lo, double * hi);

// Two-sided p of the hypothesis that the value is 0, by Student's t of value/se with n − 1 degrees
// of freedom. NaN if se is NaN.
double stats_p_value(const struct stats_estimate * e);

// Cumulative distribution function of Student's t, and its inverse for 0 < p < 1.
double stats_t_cdf(double t, double df);
double stats_t_quantile(double p, double df);

// Quantile p, 0 ≤ p ≤ 1, of n ≥ 1 sorted numbers, with linear interpolation (the default of numpy,
// R's type 7).
double stats_quantile(const double * sorted, int64_t n, double p);
void stats_sort(double * x, int64_t n);
