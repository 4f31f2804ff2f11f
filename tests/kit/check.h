#pragma once

// Checks: counted, and printed if they fail. The worst error among many cases is kept and printed.
// Includes the standard headers that nearly every test needs.

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct test {
    int64_t n_checks;
    int64_t n_failed;
};

// Counts a check and prints the message if it failed. Returns `ok`.
bool test_check(struct test * t, bool ok, const char * fmt, ...)
#ifdef __GNUC__
        __attribute__((format(printf, 3, 4)))
#endif
        ;

// True if the text contains this word, and not only as a part of a longer word.
bool test_has_word(const char * text, const char * word);

// Prints the number of checks and failures. Returns the exit code of main.
int test_end(const struct test * t, const char * name);

// The worst error among cases that share a limit.
struct test_worst {
    const char * what;
    double       limit;
    double       value;
    int64_t      n; // cases
    char         where[256];
};

// Checks value ≤ limit and keeps the worst value. NaN fails.
void test_bound(struct test * t, struct test_worst * w, double value, const char * where);
void test_worst_print(const struct test_worst * w);

#ifdef __cplusplus
}
#endif
