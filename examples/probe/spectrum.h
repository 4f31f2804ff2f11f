#pragma once

// Eigenvalues of state transitions.

#include <stdbool.h>
#include <stdint.h>

// The n eigenvalues of (I − β_n k_n k_nᵀ) … (I − β_1 k_1 k_1ᵀ) that are not trivially 1; k [d, n].
// False: n is above SPECTRUM_FACTORS_MAX, or the iteration did not converge.
enum { SPECTRUM_FACTORS_MAX = 16 };
bool spectrum_of_reflections(int64_t d, int n, const float * k, int64_t k_stride,
        const float * beta, int64_t beta_stride, double * re, double * im);

// The d eigenvalues of diag(g) − z zᵀ, given z_i²; real, in ascending order. The matrix is similar
// to diag(g) − w rᵀ if z_i² = w_i r_i ≥ 0.
// - work: 2 d doubles
void spectrum_of_rank_one(
        int64_t d, const double * g, const double * z2, double * eigenvalues, double * work);

// Eigenvalues of a real matrix a [n][n], which is overwritten. False: the iteration did not
// converge.
bool spectrum_of_matrix(int n, double * a, double * re, double * im);
