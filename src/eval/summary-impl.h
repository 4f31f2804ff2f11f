#pragma once

// What the files of a summary share.

#include "eval/summary.h"

// Fills summary->extrapolation from its buckets. False: out of memory.
bool summary_extrapolate(struct summary * s, double tolerance);

bool summary_warn(struct summary * s, const char * format, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 2, 3)))
#endif
        ;
bool summary_out_of_memory(
        const struct summary * s, char * err, size_t err_size); // false, with a sentence in err
