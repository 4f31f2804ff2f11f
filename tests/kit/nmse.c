#include "kit/nmse.h"

#include <math.h>

void nmse_add(struct nmse * s, double a, double b) {
    if (isnan(a) && isnan(b)) {
        return;
    }
    s->error += (a - b) * (a - b);
    s->size += b * b;
}

double nmse_value(const struct nmse * s) {
    return s->error == 0.0 ? 0.0 : s->error / s->size;
}

double test_nmse(const float * a, const float * b, int64_t n) {
    struct nmse s = { 0 };
    for (int64_t i = 0; i < n; ++i) {
        nmse_add(&s, a[i], b[i]);
    }
    return nmse_value(&s);
}
