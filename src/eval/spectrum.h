#pragma once

// Eigenvalues of the transitions that recurrences really make.

#include <stdbool.h>
#include <stdint.h>

// (I − β_n k_n k_nᵀ) … (I − β_1 k_1 k_1ᵀ), k [d, n], columns one after the other: the n eigenvalues
// that are not trivially 1, as (re, im) pairs. False: n is above SPECTRUM_FACTORS_MAX, or the
// iteration did not end.
enum { SPECTRUM_FACTORS_MAX = 16 };
bool spectrum_of_reflections(int64_t d, int n, const float * k, int64_t k_stride,
        const float * beta, int64_t beta_stride, double * re, double * im);

// diag(g) − z zᵀ with z_i² given, which is similar to diag(g) − w rᵀ where z_i² = w_i r_i ≥ 0: all
// d eigenvalues, ascending; real.
// - work: 2 d doubles
void spectrum_of_rank_one(
        int64_t d, const double * g, const double * z2, double * eigenvalues, double * work);

// Eigenvalues of a real matrix a [n, n], row by row, which is destroyed. False: the iteration did
// not end.
bool spectrum_of_matrix(int n, double * a, double * re, double * im);
