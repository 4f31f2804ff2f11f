// Tests of statistics, against closed forms, numerical integrals, values computed by hand and the
// coverage of intervals.

#include "eval/estimates/stats.h"
#include "kit/check.h"
#include "kit/rng.h"

static const double PI = 3.14159265358979323846;

// Simpson's rule on the density of Student's t from 0 to t.
static double t_cdf_integral(double t, double df) {
    enum { N = 20000 };
    const double front = exp(lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df)) / sqrt(df * PI);
    const double h = t / N;
    double       sum = 0.0;
    for (int i = 0; i <= N; ++i) {
        const double x = i * h;
        sum += (i == 0 || i == N    ? 1.0
                       : i % 2 == 1 ? 4.0
                                    : 2.0) *
               pow(1.0 + x * x / df, -0.5 * (df + 1.0));
    }
    return 0.5 + front * sum * h / 3.0;
}

static void test_student(struct test * t) {
    const double      ts[] = { -30.0, -4.3, -1.0, -0.01, 0.0, 0.3, 1.0, 2.5, 12.0 };
    struct test_worst closed = { .what = "t cdf, 1 to 3 degrees of freedom, against closed forms",
        .limit = 1e-14 };
    struct test_worst integral = { .what = "t cdf against Simpson's rule", .limit = 1e-11 };
    struct test_worst inverse = { .what = "t quantile: cdf(quantile(p)) against p",
        .limit = 1e-13 };

    for (size_t i = 0; i < sizeof(ts) / sizeof(ts[0]); ++i) {
        const double x = ts[i];
        char         where[64];
        snprintf(where, sizeof(where), "t %g", x);
        test_bound(t, &closed, fabs(stats_t_cdf(x, 1.0) - (0.5 + atan(x) / PI)), where);
        test_bound(
                t, &closed, fabs(stats_t_cdf(x, 2.0) - (0.5 + 0.5 * x / sqrt(2.0 + x * x))), where);
        test_bound(t, &closed,
                fabs(stats_t_cdf(x, 3.0) -
                        (0.5 + (x / sqrt(3.0) / (1.0 + x * x / 3.0) + atan(x / sqrt(3.0))) / PI)),
                where);
        for (double df = 4.0; df < 5000.0; df *= 3.0) {
            test_bound(t, &integral, fabs(stats_t_cdf(x, df) - t_cdf_integral(x, df)), where);
        }
    }
    for (double df = 1.0; df < 5000.0; df *= 3.0) {
        for (double p = 0.005; p < 1.0; p += 0.045) {
            char where[64];
            snprintf(where, sizeof(where), "p %g, %g degrees of freedom", p, df);
            test_bound(t, &inverse, fabs(stats_t_cdf(stats_t_quantile(p, df), df) - p), where);
        }
    }
    test_worst_print(&closed);
    test_worst_print(&integral);
    test_worst_print(&inverse);

    // tables of textbooks
    const struct {
        double p, df, t;
    } table[] = {
        { 0.975, 1.0, 12.706 },
        { 0.975, 2.0, 4.303 },
        { 0.975, 5.0, 2.571 },
        { 0.975, 8.0, 2.306 },
        { 0.975, 9.0, 2.262 },
        { 0.975, 30.0, 2.042 },
        { 0.95, 10.0, 1.812 },
        { 0.995, 5.0, 4.032 },
        { 0.025, 9.0, -2.262 },
        { 0.5, 7.0, 0.0 },
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
        const double got = stats_t_quantile(table[i].p, table[i].df);
        test_check(t, fabs(got - table[i].t) < 5.1e-4, "t(%g, %g) is %g, expected %g", table[i].p,
                table[i].df, got, table[i].t);
    }
}

static void test_quantiles(struct test * t) {
    double x[] = { 7.0, 1.0, 4.0, 2.0 };
    stats_sort(x, 4);
    test_check(t, x[0] == 1.0 && x[1] == 2.0 && x[2] == 4.0 && x[3] == 7.0, "sorting");
    test_check(t, stats_quantile(x, 4, 0.0) == 1.0 && stats_quantile(x, 4, 1.0) == 7.0,
            "quantiles 0 and 1 are the ends");
    test_check(t, stats_quantile(x, 4, 0.5) == 3.0, "median of four numbers");
    // at 2.7
    test_check(t, fabs(stats_quantile(x, 4, 0.9) - 6.1) < 1e-12,
            "quantile 0.9 is %g, expected 4 + 0.7*3", stats_quantile(x, 4, 0.9));
    test_check(t, stats_quantile(x, 1, 0.3) == 1.0, "quantile of one number");
}

// Estimates one ratio.
static bool ratio(
        const double * num, const double * den, int n, uint64_t seed, struct stats_estimate * e) {
    struct stats_pair x[64];
    for (int i = 0; i < n; ++i) {
        x[i] = (struct stats_pair) { num[i], den[i] };
    }
    stats_ratios(x, n, 1, seed, e);
    return e->n <= n;
}

// Five windows: means 2, 3, 4, 5, 6 over 10 tokens each. Mean 4, sd √2.5, se √(2.5/5) = √0.5,
// t(0.975, 4) = 2.776445.
static void test_small(struct test * t) {
    const double          num[] = { 20.0, 30.0, 40.0, 50.0, 60.0 };
    const double          den[] = { 10.0, 10.0, 10.0, 10.0, 10.0 };
    struct stats_estimate e;

    test_check(t, ratio(num, den, 5, STATS_SEED, &e) && e.method == STATS_T && e.n == 5,
            "five windows: Student's t");
    test_check(
            t, e.value == 4.0 && fabs(e.se - sqrt(0.5)) < 1e-12, "mean %g, se %g", e.value, e.se);
    test_check(t,
            fabs(e.lo - (4.0 - 2.776445 * sqrt(0.5))) < 1e-6 &&
                    fabs(e.hi - (4.0 + 2.776445 * sqrt(0.5))) < 1e-6,
            "interval %g .. %g", e.lo, e.hi);
    test_check(t,
            fabs(stats_p_value(&e) - 2.0 * (1.0 - t_cdf_integral(4.0 / sqrt(0.5), 4.0))) < 1e-10,
            "p %g", stats_p_value(&e));

    test_check(t,
            ratio(num, den, 2, STATS_SEED, &e) && e.method == STATS_NONE && e.value == 2.5 &&
                    isnan(e.lo) && isnan(e.hi) && fabs(e.se - 0.5) < 1e-12,
            "two windows: a standard error, no interval");
    test_check(t,
            ratio(num, den, 1, STATS_SEED, &e) && e.value == 2.0 && isnan(e.se) &&
                    isnan(stats_p_value(&e)),
            "one window: only a mean");
    test_check(t, ratio(num, den, 0, STATS_SEED, &e) && isnan(e.value) && e.n == 0,
            "no windows: no estimate");

    // windows of different lengths: the ratio of sums, not the mean of means; empty windows do not
    // count
    const double uneven_num[] = { 10.0, 0.0, 90.0, 0.0 };
    const double uneven_den[] = { 10.0, 0.0, 30.0, 0.0 };
    test_check(t, ratio(uneven_num, uneven_den, 4, STATS_SEED, &e) && e.value == 2.5 && e.n == 2,
            "ratio %g of %d windows", e.value, (int) e.n);
    test_check(t, fabs(e.se - sqrt(2.0 * (15.0 * 15.0 + 15.0 * 15.0)) / 40.0) < 1e-12,
            "standard error %g", e.se); // residuals ∓15

    const double bad[] = { 1.0, NAN, 2.0 };
    test_check(t, ratio(bad, den, 3, STATS_SEED, &e) && isnan(e.value) && e.method == STATS_NONE,
            "NaN in, NaN out");

    const double same[] = { 30.0, 30.0, 30.0, 30.0 };
    test_check(t,
            ratio(same, den, 4, STATS_SEED, &e) && e.value == 3.0 && e.se == 0.0 && e.lo == 3.0 &&
                    e.hi == 3.0,
            "equal windows: an interval of width 0");
    test_check(t, stats_p_value(&e) == 0.0, "p of a nonzero constant");
}

// Of n windows, k are 1: draws are Binomial(n, k/n). Its quantiles are computed by summation.
static void test_binomial(struct test * t) {
    enum { N = 40 };
    const double          p = 0.25;
    double                num[N], den[N], cdf = 0.0, term = pow(1.0 - p, N);
    int                   lo = -1, hi = -1;
    struct stats_estimate e;

    for (int i = 0; i < N; ++i) {
        num[i] = i < N / 4;
        den[i] = 1.0;
    }
    for (int k = 0; k <= N; ++k) {
        cdf += term;
        lo = lo < 0 && cdf > 0.025 ? k : lo;
        hi = hi < 0 && cdf > 0.975 ? k : hi;
        term *= p / (1.0 - p) * (N - k) / (k + 1.0);
    }
    test_check(t, ratio(num, den, N, STATS_SEED, &e) && e.method == STATS_BOOTSTRAP,
            "forty windows: bootstrap");
    test_check(t, fabs(e.lo * N - lo) < 1e-9 && fabs(e.hi * N - hi) < 1e-9,
            "interval %g .. %g of %d, expected %d .. %d", e.lo * N, e.hi * N, N, lo, hi);
}

// A 95 % interval contains the true value about 95 times in 100; the percentile bootstrap of 50
// windows is known to be slightly too narrow.
static void test_coverage(struct test * t) {
    enum { RUNS = 400, N = 50, SMALL = 6 };
    struct test_rng rng = { 7 };
    int             held = 0, held_small = 0;

    for (int r = 0; r < RUNS; ++r) {
        double                num[N], den[N];
        struct stats_estimate e;
        for (int i = 0; i < N; ++i) {
            den[i] = 100.0 + (double) test_below(&rng, 100); // different lengths
            num[i] = den[i] * (3.0 + 0.3 * test_normal(&rng));
        }
        if (ratio(num, den, N, STATS_SEED, &e)) {
            held += e.lo <= 3.0 && 3.0 <= e.hi;
        }
        if (ratio(num, den, SMALL, STATS_SEED, &e)) {
            held_small += e.lo <= 3.0 && 3.0 <= e.hi;
        }
    }
    // ± 4 standard deviations of a count with p = 0.945: 0.945 ± 0.046
    printf("coverage: bootstrap of %d windows %.3f, t of %d windows %.3f\n", N,
            (double) held / RUNS, SMALL, (double) held_small / RUNS);
    test_check(t, fabs((double) held / RUNS - 0.945) < 0.046,
            "bootstrap: %d of %d intervals contain the true value", held, RUNS);
    test_check(t, fabs((double) held_small / RUNS - 0.95) < 0.046,
            "t: %d of %d intervals contain the true value", held_small, RUNS);
}

static bool is_same(const struct stats_estimate * a, const struct stats_estimate * b) {
    return a->value == b->value && a->se == b->se && a->lo == b->lo && a->hi == b->hi &&
           a->n == b->n && a->method == b->method;
}

// Windows differ a lot, models a little: only the paired interval detects it.
static void test_paired(struct test * t) {
    enum { N = 30, COLS = 2 };
    struct test_rng       rng = { 11 };
    double                a[N], b[N], diff[N], den[N];
    struct stats_pair     x[N][COLS], y[N][COLS];
    struct stats_estimate ea, ed, both[COLS], paired[COLS], again;

    for (int i = 0; i < N; ++i) {
        den[i] = 2048.0;
        a[i] = den[i] * (3.0 + 0.3 * test_normal(&rng));
        diff[i] = den[i] * (0.01 + 0.005 * test_normal(&rng));
        b[i] = a[i] - diff[i];
        x[i][0] = (struct stats_pair) { a[i], den[i] };
        x[i][1] = (struct stats_pair) { diff[i], den[i] };
        y[i][0] = (struct stats_pair) { b[i], den[i] };
        y[i][1] = (struct stats_pair) { 0.0, 1.0 };
    }
    test_check(t, ratio(a, den, N, STATS_SEED, &ea) && ratio(diff, den, N, STATS_SEED, &ed),
            "two estimates");
    test_check(
            t, ea.hi - ea.lo > 0.1 && ed.lo > 0.0 && ed.hi < 0.02, "paired %g .. %g", ed.lo, ed.hi);

    // columns of one call equal single calls to the bit, and so does a second call
    stats_ratios(&x[0][0], N, COLS, STATS_SEED, both);
    test_check(t, is_same(&both[0], &ea) && is_same(&both[1], &ed), "columns equal single calls");
    test_check(t, ratio(a, den, N, STATS_SEED, &again) && is_same(&again, &ea),
            "a second call gives the same");
    test_check(t,
            ratio(a, den, N, STATS_SEED + 1, &again) && again.lo != ea.lo &&
                    fabs(again.lo - ea.lo) < 0.3 * ea.se,
            "another seed gives a similar interval");
    test_check(t,
            fabs(ea.lo - (ea.value - 1.96 * ea.se)) < 0.3 * ea.se &&
                    fabs(ea.hi - (ea.value + 1.96 * ea.se)) < 0.3 * ea.se,
            "the interval of a mean of 30 is near ± 1.96 se");

    // with equal denominators, the difference of ratios is the ratio of differences; b = 0
    // subtracts nothing
    stats_differences(&x[0][0], &y[0][0], N, COLS, STATS_SEED, paired);
    test_check(t,
            fabs(paired[0].value - ed.value) < 1e-12 && fabs(paired[0].se - ed.se) < 1e-12 &&
                    fabs(paired[0].lo - ed.lo) < 1e-12 && fabs(paired[0].hi - ed.hi) < 1e-12,
            "a − b, paired: %.15g, expected %.15g", paired[0].value, ed.value);
    test_check(t, is_same(&paired[1], &ed), "minus zero");

    // a window that one side lacks is excluded on both
    y[3][0].den = 0.0;
    a[3] = b[3] = diff[3] = den[3] = 0.0;
    stats_differences(&x[0][0], &y[0][0], N, COLS, STATS_SEED, paired);
    ratio(diff, den, N, STATS_SEED, &again);
    test_check(t,
            paired[0].n == N - 1 && fabs(paired[0].value - again.value) < 1e-12 &&
                    fabs(paired[0].lo - again.lo) < 1e-12,
            "%d windows", (int) paired[0].n);
}

// Buckets with different numbers of targets: the standard error of the difference, compared with
// the jackknife, which the formula linearizes.
static void test_different_denominators(struct test * t) {
    enum { N = 200 };
    struct test_rng          rng = { 5 };
    static struct stats_pair a[N], b[N];
    struct stats_estimate    e;
    double                   sa = 0.0, na = 0.0, sb = 0.0, nb = 0.0, mean = 0.0, var = 0.0;

    for (int i = 0; i < N; ++i) {
        const double level = 3.0 + 0.2 * test_normal(&rng);
        a[i].den = 50.0 + (double) test_below(&rng, 50);
        b[i].den = 20.0 + (double) test_below(&rng, 10);
        a[i].num = a[i].den * (level + 0.05 * test_normal(&rng));
        b[i].num = b[i].den * (level - 0.1 + 0.05 * test_normal(&rng));
        sa += a[i].num;
        na += a[i].den;
        sb += b[i].num;
        nb += b[i].den;
    }
    for (int i = 0; i < N; ++i) {
        mean += ((sa - a[i].num) / (na - a[i].den) - (sb - b[i].num) / (nb - b[i].den)) / N;
    }
    for (int i = 0; i < N; ++i) {
        const double d =
                (sa - a[i].num) / (na - a[i].den) - (sb - b[i].num) / (nb - b[i].den) - mean;
        var += d * d * (N - 1.0) / N;
    }
    stats_differences(a, b, N, 1, STATS_SEED, &e);
    test_check(t, fabs(e.value - (sa / na - sb / nb)) < 1e-12, "value %g", e.value);
    test_check(t, fabs(e.se / sqrt(var) - 1.0) < 0.01, "standard error %g, jackknife %g", e.se,
            sqrt(var));
    test_check(t, fabs((e.hi - e.lo) / (2.0 * 1.96 * e.se) - 1.0) < 0.1,
            "width of the interval %g for a standard error of %g", e.hi - e.lo, e.se);
}

// If an end q of the interval is the true share, the normal approximation of the number of hits
// gives k or a more distant one with probability 5 %.
static void test_shares(struct test * t) {
    struct test_worst worst = { .what = "interval of a share: probability at both ends",
        .limit = 1e-12 };
    for (int64_t n = 1; n < 4000; n = 3 * n + 1) {
        for (int64_t k = 0; k <= n; k += 1 + n / 9) {
            const double p = (double) k / (double) n;
            double       ends[2];
            char         where[64];
            stats_share(k, n, &ends[0], &ends[1]);
            snprintf(where, sizeof(where), "%d of %d", (int) k, (int) n);
            for (int i = 0; i < 2; ++i) {
                const double q = ends[i];
                if (q > 0.0 && q < 1.0) {
                    const double z = fabs(p - q) / sqrt(q * (1.0 - q) / (double) n);
                    test_bound(t, &worst, fabs(erfc(z / sqrt(2.0)) - 0.05), where);
                }
            }
            test_check(t, ends[0] <= p && p <= ends[1] && ends[0] >= 0.0 && ends[1] <= 1.0,
                    "%s: [%g, %g]", where, ends[0], ends[1]);
        }
    }
    test_worst_print(&worst);
}

int main(void) {
    struct test t = { 0 };
    test_student(&t);
    test_shares(&t);
    test_quantiles(&t);
    test_small(&t);
    test_binomial(&t);
    test_coverage(&t);
    test_paired(&t);
    test_different_denominators(&t);
    return test_end(&t, "test-stats");
}
