// Eigenvalues: of matrices with known eigenvalues, and computed in two ways.

#include "spectrum.h"
#include "kit/check.h"
#include "kit/rng.h"

enum { N_MAX = 32 };

static const double PI = 3.14159265358979323846;

static int compare(const void * a, const void * b) {
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

// X diag(λ) X⁻¹, where X is a product of elementary matrices, has the real eigenvalues λ.
static void check_real(struct test * t, struct test_rng * r, int n) {
    double a[N_MAX * N_MAX] = { 0 }, lambda[N_MAX], re[N_MAX], im[N_MAX];
    for (int i = 0; i < n; ++i) {
        a[i * n + i] = lambda[i] = test_uniform(r, -1.0, 1.0);
    }
    // row i += c · row j and column j −= c · column i: a similarity
    for (int step = 0; step < 3 * n && n > 1; ++step) {
        const int    i = (int) test_below(r, n), j = (i + 1 + (int) test_below(r, n - 1)) % n;
        const double c = test_uniform(r, -0.5, 0.5);
        for (int k = 0; k < n; ++k) {
            a[i * n + k] += c * a[j * n + k];
        }
        for (int k = 0; k < n; ++k) {
            a[k * n + j] -= c * a[k * n + i];
        }
    }
    const bool found = spectrum_of_matrix(n, a, re, im);
    qsort(lambda, (size_t) n, sizeof(double), compare);
    qsort(re, (size_t) n, sizeof(double), compare);
    double worst = 0.0;
    for (int i = 0; i < n; ++i) {
        worst = fmax(worst, fmax(fabs(re[i] - lambda[i]), fabs(im[i])));
    }
    // the tolerance is large because close eigenvalues are ill-conditioned
    test_check(t, found && worst < 1e-4, "%d real eigenvalues are off by %g", n, worst);
}

// The cyclic shift of n points has the n-th roots of one.
static void check_cycle(struct test * t, int n) {
    double a[N_MAX * N_MAX] = { 0 }, re[N_MAX], im[N_MAX];
    for (int i = 0; i < n; ++i) {
        a[i * n + (i + 1) % n] = 1.0;
    }
    const bool found = spectrum_of_matrix(n, a, re, im);
    test_check(t, found, "the shift of %d points: no eigenvalues", n);
    for (int k = 0; k < n && found; ++k) {
        double nearest = INFINITY;
        for (int i = 0; i < n; ++i) {
            nearest = fmin(
                    nearest, hypot(re[i] - cos(2.0 * PI * k / n), im[i] - sin(2.0 * PI * k / n)));
        }
        test_check(
                t, nearest < 1e-9, "the shift of %d points: root %d is off by %g", n, k, nearest);
    }
}

// Two reflections whose keys are at angle θ/2 rotate by θ: exp(± i θ). One factor: 1 − β ‖k‖².
static void check_reflections(struct test * t) {
    for (int i = 1; i < 8; ++i) {
        const double theta = 2.0 * PI * i / 17.0;
        const float  k[8] = { 1.0f, 0.0f, 0.0f, 0.0f, (float) cos(theta / 2.0),
             (float) sin(theta / 2.0), 0.0f, 0.0f };
        const float  beta[2] = { 2.0f, 2.0f };
        double       re[2], im[2];
        const bool   found = spectrum_of_reflections(4, 2, k, 4, beta, 1, re, im);
        test_check(t,
                found && fabs(re[0] - cos(theta)) < 1e-6 && fabs(fabs(im[0]) - sin(theta)) < 1e-6 &&
                        im[0] == -im[1],
                "a rotation by %g has eigenvalues %g ± %g i", theta, re[0], im[0]);
    }
    const float k[4] = { 0.5f, -1.0f, 0.25f, 0.0f }, beta = 1.5f;
    double      re, im;
    test_check(t,
            spectrum_of_reflections(4, 1, k, 4, &beta, 1, &re, &im) &&
                    fabs(re - (1.0 - 1.5 * 1.3125)) < 1e-12 && im == 0.0,
            "1 − β ‖k‖² is %g", re);
}

// A product of n random factors: its trace and determinant follow from the n eigenvalues and d − n
// ones.
static void check_product(struct test * t, struct test_rng * r, int d, int n) {
    float  k[N_MAX * N_MAX] = { 0 }, beta[N_MAX] = { 0 };
    double p[N_MAX * N_MAX] = { 0 }, re[N_MAX], im[N_MAX], determinant = 1.0, trace = 0.0;
    for (int i = 0; i < d; ++i) {
        p[i * d + i] = 1.0;
    }
    for (int j = 0; j < n; ++j) {
        double norm = 0.0;
        for (int i = 0; i < d; ++i) {
            k[j * d + i] = (float) (test_normal(r) / sqrt(d));
            norm += (double) k[j * d + i] * k[j * d + i];
        }
        beta[j] = (float) test_uniform(r, 0.0, 2.0);
        determinant *= 1.0 - beta[j] * norm;
        for (int c = 0; c < d; ++c) {
            double dot = 0.0;
            for (int i = 0; i < d; ++i) {
                dot += (double) k[j * d + i] * p[i * d + c];
            }
            for (int i = 0; i < d; ++i) {
                p[i * d + c] -= (double) beta[j] * k[j * d + i] * dot;
            }
        }
    }
    for (int i = 0; i < d; ++i) {
        trace += p[i * d + i];
    }
    const bool found = spectrum_of_reflections(d, n, k, d, beta, 1, re, im);
    double     sum = d - n, x = 1.0, y = 0.0;
    for (int j = 0; j < n; ++j) {
        const double z = x * re[j] - y * im[j];
        y = x * im[j] + y * re[j];
        x = z;
        sum += re[j];
    }
    test_check(t,
            found && fabs(sum - trace) < 1e-9 && fabs(x - determinant) < 1e-9 && fabs(y) < 1e-9,
            "%d factors of size %d: trace %g and %g, determinant %g and %g", n, d, sum, trace, x,
            determinant);
}

// diag(g) − z zᵀ, by its secular equation and as a general matrix
static void check_rank_one(struct test * t, struct test_rng * r, int d, bool repeated) {
    double g[N_MAX] = { 0 }, z2[N_MAX] = { 0 }, z[N_MAX], a[N_MAX * N_MAX], ours[N_MAX], re[N_MAX],
           im[N_MAX], work[2 * N_MAX];
    for (int i = 0; i < d; ++i) {
        g[i] = repeated ? 0.25 * (double) test_below(r, 4) : test_uniform(r, 0.0, 1.0);
        z[i] = repeated && i % 3 == 0 ? 0.0 : test_normal(r) / sqrt(d);
        z2[i] = z[i] * z[i];
    }
    for (int i = 0; i < d; ++i) {
        for (int j = 0; j < d; ++j) {
            a[i * d + j] = (i == j ? g[i] : 0.0) - z[i] * z[j];
        }
    }
    spectrum_of_rank_one(d, g, z2, ours, work);
    const bool found = spectrum_of_matrix(d, a, re, im);
    qsort(re, (size_t) d, sizeof(double), compare);
    qsort(ours, (size_t) d, sizeof(double), compare);
    double worst = 0.0;
    for (int i = 0; i < d; ++i) {
        worst = fmax(worst, fabs(re[i] - ours[i]));
    }
    test_check(t, found && worst < 1e-7,
            "diagonal minus rank one of size %d: the two ways differ by %g", d, worst);
}

int main(void) {
    struct test     t = { 0 };
    struct test_rng r = { 42 };

    for (int n = 1; n <= 16; ++n) {
        check_real(&t, &r, n);
        check_cycle(&t, n);
    }
    check_reflections(&t);
    for (int n = 1; n <= 8; ++n) {
        check_product(&t, &r, 12, n);
    }
    for (int d = 1; d <= N_MAX; ++d) {
        check_rank_one(&t, &r, d, false);
        check_rank_one(&t, &r, d, true);
    }
    return test_end(&t, "eigenvalues");
}
