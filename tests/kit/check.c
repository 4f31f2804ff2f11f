#include "kit/check.h"

#include <ctype.h>
#include <stdarg.h>

bool test_check(struct test * t, bool ok, const char * fmt, ...) {
    t->n_checks++;
    if (!ok) {
        t->n_failed++;
        va_list args;
        va_start(args, fmt);
        printf("FAILED: ");
        vprintf(fmt, args);
        printf("\n");
        fflush(stdout);
        va_end(args);
    }
    return ok;
}

static bool is_word(char c) {
    return isalnum((unsigned char) c) || c == '_';
}

bool test_has_word(const char * text, const char * word) {
    for (const char * at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == text || !is_word(at[-1])) && !is_word(at[strlen(word)])) {
            return true;
        }
    }
    return false;
}

int test_end(const struct test * t, const char * name) {
    printf("%s: %lld checks, %lld failed\n", name, (long long) t->n_checks,
            (long long) t->n_failed);
    return t->n_failed == 0 && t->n_checks > 0 ? 0 : 1;
}

void test_bound(struct test * t, struct test_worst * w, double value, const char * where) {
    w->n++;
    if (w->n == 1 || !(value <= w->value)) {
        w->value = value;
        snprintf(w->where, sizeof(w->where), "%s", where);
    }
    test_check(t, value <= w->limit, "%s: %.3g > %.3g: %s", w->what, value, w->limit, where);
}

void test_worst_print(const struct test_worst * w) {
    if (w->n > 0) {
        printf("  %-46s %6lld cases   worst %9.2e   limit %7.0e   (%s)\n", w->what,
                (long long) w->n, w->value, w->limit, w->where);
    }
}
