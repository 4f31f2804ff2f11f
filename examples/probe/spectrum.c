#include "spectrum.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

//
// A real matrix: Hessenberg form by elimination, then QR steps with two shifts (Francis) on the
// part that is not yet split off
//

static void to_hessenberg(int n, double * a) {
#define A(i, j) a[(i) * n + (j)]
    for (int m = 1; m < n - 1; ++m) {
        int pivot = m;
        for (int i = m; i < n; ++i) {
            pivot = fabs(A(i, m - 1)) > fabs(A(pivot, m - 1)) ? i : pivot;
        }
        const double x = A(pivot, m - 1);
        if (x == 0.0) {
            continue;
        }
        for (int j = m - 1; j < n && pivot != m; ++j) {
            const double t = A(pivot, j);
            A(pivot, j) = A(m, j);
            A(m, j) = t;
        }
        for (int i = 0; i < n && pivot != m; ++i) {
            const double t = A(i, pivot);
            A(i, pivot) = A(i, m);
            A(i, m) = t;
        }
        for (int i = m + 1; i < n; ++i) {
            const double y = A(i, m - 1) / x;
            A(i, m - 1) = 0.0;
            for (int j = m; j < n; ++j) {
                A(i, j) -= y * A(m, j);
            }
            for (int j = 0; j < n; ++j) {
                A(j, m) += y * A(j, i);
            }
        }
    }
#undef A
}

// [a b; c d]
static void two_by_two(double a, double b, double c, double d, double * re, double * im) {
    const double half = 0.5 * (a + d);
    const double disc = 0.25 * (a - d) * (a - d) + b * c;
    if (disc >= 0.0) {
        // the larger root; the other from their product, which avoids cancellation
        const double root = sqrt(disc);
        const double big = half >= 0.0 ? half + root : half - root;
        re[0] = big;
        re[1] = big != 0.0 ? (a * d - b * c) / big : 0.0;
        im[0] = im[1] = 0.0;
    } else {
        re[0] = re[1] = half;
        im[0] = sqrt(-disc);
        im[1] = -im[0];
    }
}

// An implicit QR step on rows lo … hi of the Hessenberg matrix h. The two shifts are given by their
// sum s and product p.
static void francis_step(int n, double * h, int lo, int hi, double s, double p) {
#define H(i, j) h[(i) * n + (j)]
    double x = H(lo, lo) * H(lo, lo) + H(lo, lo + 1) * H(lo + 1, lo) - s * H(lo, lo) + p;
    double y = H(lo + 1, lo) * (H(lo, lo) + H(lo + 1, lo + 1) - s);
    double z = hi - lo >= 2 ? H(lo + 1, lo) * H(lo + 2, lo + 1) : 0.0;
    for (int k = lo; k < hi; ++k) {
        // a Householder reflection of (x, y, z) onto the first axis, from both sides
        const int    last = k + 2 <= hi ? k + 2 : hi;
        const double zz = last == k + 2 ? z : 0.0;
        const double norm = sqrt(x * x + y * y + zz * zz);
        if (norm != 0.0) {
            const double v0 = x + (x >= 0.0 ? norm : -norm), v1 = y, v2 = zz;
            const double beta = 2.0 / (v0 * v0 + v1 * v1 + v2 * v2);
            for (int j = k > lo ? k - 1 : lo; j <= hi; ++j) {
                const double t = beta * (v0 * H(k, j) + v1 * H(k + 1, j) +
                                                (last == k + 2 ? v2 * H(k + 2, j) : 0.0));
                H(k, j) -= t * v0;
                H(k + 1, j) -= t * v1;
                if (last == k + 2) {
                    H(k + 2, j) -= t * v2;
                }
            }
            for (int i = lo; i <= (k + 3 < hi ? k + 3 : hi); ++i) {
                const double t = beta * (v0 * H(i, k) + v1 * H(i, k + 1) +
                                                (last == k + 2 ? v2 * H(i, k + 2) : 0.0));
                H(i, k) -= t * v0;
                H(i, k + 1) -= t * v1;
                if (last == k + 2) {
                    H(i, k + 2) -= t * v2;
                }
            }
        }
        x = H(k + 1, k);
        y = k + 2 <= hi ? H(k + 2, k) : 0.0;
        z = k + 3 <= hi ? H(k + 3, k) : 0.0;
    }
#undef H
}

bool spectrum_of_matrix(int n, double * a, double * re, double * im) {
#define A(i, j) a[(i) * n + (j)]
    to_hessenberg(n, a);
    int hi = n - 1, tries = 0;
    while (hi >= 0) {
        int lo = hi;
        while (lo > 0) {
            const double size = fabs(A(lo - 1, lo - 1)) + fabs(A(lo, lo));
            if (fabs(A(lo, lo - 1)) <= DBL_EPSILON * (size > 0.0 ? size : 1.0)) {
                A(lo, lo - 1) = 0.0;
                break;
            }
            --lo;
        }
        if (lo == hi) {
            re[hi] = A(hi, hi);
            im[hi] = 0.0;
            hi--;
            tries = 0;
        } else if (lo == hi - 1) {
            two_by_two(A(lo, lo), A(lo, hi), A(hi, lo), A(hi, hi), re + lo, im + lo);
            hi -= 2;
            tries = 0;
        } else {
            if (++tries > 100) {
                return false;
            }
            double s = A(hi - 1, hi - 1) + A(hi, hi);
            double p = A(hi - 1, hi - 1) * A(hi, hi) - A(hi - 1, hi) * A(hi, hi - 1);
            if (tries % 10 == 0) { // the matrix may be a fixed point: use another shift
                const double e = fabs(A(hi, hi - 1)) + fabs(A(hi - 1, hi - 2));
                s = 1.5 * e;
                p = e * e;
            }
            francis_step(n, a, lo, hi, s, p);
        }
    }
    return true;
#undef A
}

//
// Products of reflections
//
// P = I − K T Kᵀ with T = (I + B L)⁻¹ B, where B = diag(β) and L is the part of KᵀK below the
// diagonal: the coefficients c = T Kᵀ x of P x = x − Σ c_j k_j follow from c_j = β_j (k_jᵀ x −
// Σ_{i<j} k_jᵀ k_i c_i). The eigenvalues of K T Kᵀ other than 0 are those of T KᵀK, which is n × n.
//

bool spectrum_of_reflections(int64_t d, int n, const float * k, int64_t k_stride,
        const float * beta, int64_t beta_stride, double * re, double * im) {
    double gram[SPECTRUM_FACTORS_MAX * SPECTRUM_FACTORS_MAX];
    double m[SPECTRUM_FACTORS_MAX * SPECTRUM_FACTORS_MAX];
    if (n > SPECTRUM_FACTORS_MAX) {
        return false;
    }
    for (int i = 0; i < n; ++i) {
        for (int j = 0; j <= i; ++j) {
            double sum = 0.0;
            for (int64_t c = 0; c < d; ++c) {
                sum += (double) k[i * k_stride + c] * (double) k[j * k_stride + c];
            }
            gram[i * n + j] = gram[j * n + i] = sum;
        }
    }
    for (int i = 0; i < n; ++i) { // rows of T KᵀK by substitution
        for (int j = 0; j < n; ++j) {
            double sum = gram[i * n + j];
            for (int l = 0; l < i; ++l) {
                sum -= gram[i * n + l] * m[l * n + j];
            }
            m[i * n + j] = (double) beta[i * beta_stride] * sum;
        }
    }
    if (!spectrum_of_matrix(n, m, re, im)) {
        return false;
    }
    for (int i = 0; i < n; ++i) {
        re[i] = 1.0 - re[i];
        im[i] = -im[i];
    }
    return true;
}

//
// Diagonal minus rank one
//
// The eigenvalues are the zeros of f(λ) = 1 − Σ z_i²/(g_i − λ), which decreases from pole to pole:
// one below the smallest g, one between each two neighbors.
//

struct entry {
    double g, z2;
};

static int compare(const void * a, const void * b) {
    const double x = ((const struct entry *) a)->g, y = ((const struct entry *) b)->g;
    return (x > y) - (x < y);
}

void spectrum_of_rank_one(
        int64_t d, const double * g, const double * z2, double * eigenvalues, double * work) {
    struct entry * e = (struct entry *) work;
    double         total = 0.0;
    for (int64_t i = 0; i < d; ++i) {
        e[i] = (struct entry) { g[i], z2[i] };
        total += z2[i];
    }
    qsort(e, (size_t) d, sizeof(*e), compare);
    for (int64_t i = 0; i < d; ++i) {
        // the trace changes by the total, so that no eigenvalue moves further
        double lo = i > 0 ? e[i - 1].g : e[0].g - total, hi = e[i].g;
        for (int step = 0; step < 64 && lo < hi; ++step) {
            const double mid = 0.5 * (lo + hi);
            if (mid <= lo || mid >= hi) {
                break;
            }
            double f = 1.0;
            for (int64_t j = 0; j < d; ++j) {
                f -= e[j].z2 / (e[j].g - mid);
            }
            if (f > 0.0) { // f decreases up to the next pole
                lo = mid;
            } else {
                hi = mid;
            }
        }
        eigenvalues[i] = 0.5 * (lo + hi);
    }
}
