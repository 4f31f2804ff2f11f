#pragma once

// Normalized mean square error: Σ (a − b)² / Σ b². NaN must meet NaN.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct nmse {
    double error; // Σ (a − b)²
    double size;  // Σ b²
};

void nmse_add(struct nmse * s, double a, double b);
double nmse_value(const struct nmse * s);

double test_nmse(const float * a, const float * b, int64_t n);

#ifdef __cplusplus
}
#endif
