// NFC of the cases of test-unicode-cases.py: decompositions, Hangul, marks in any order, and marks
// between a starter and a mark that would compose.

#include "base/unicode.h"
#include "kit/check.h"

// Reads code points up to the first character that is neither a digit nor a space.
static size_t read_points(char ** p, char * out) {
    size_t n = 0;
    for (;;) {
        char *              end;
        const unsigned long cp = strtoul(*p, &end, 16);
        if (end == *p) {
            return n;
        }
        n += (size_t) utf8_encode((uint32_t) cp, out + n);
        *p = end;
    }
}

static bool nfc_is(const char * text, size_t size, const char * expected, size_t expected_size) {
    struct buffer out = { 0 };
    const bool    ok = nfc_normalize(text, size, &out) && out.n == expected_size &&
                    memcmp(out.data, expected, expected_size) == 0;
    buffer_free(&out);
    return ok;
}

int main(void) {
    struct test t = { 0 };
    FILE *      f = fopen(LRNN_CASES, "r");
    char        line[1024];
    int64_t     n_cases = 0, n_changed = 0;
    if (!test_check(&t, f != NULL, "cannot open %s", LRNN_CASES)) {
        return test_end(&t, "test-unicode");
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        char         text[512], expected[512];
        char *       p = line;
        const size_t n_text = read_points(&p, text);
        p += *p == ';';
        const size_t n_expected = read_points(&p, expected);
        line[strcspn(line, "\n")] = '\0';
        test_check(&t, nfc_is(text, n_text, expected, n_expected), "wrong NFC: %s", line);
        test_check(&t, nfc_is(expected, n_expected, expected, n_expected), "NFC changed: %s", line);
        const bool same = n_text == n_expected && memcmp(text, expected, n_text) == 0;
        test_check(&t, same || !nfc_quick_check(text, n_text), "taken for NFC: %s", line);
        n_cases++;
        n_changed += !same;
    }
    fclose(f);
    printf("%lld texts, of which NFC changes %lld\n", (long long) n_cases, (long long) n_changed);
    test_check(&t, n_cases > 2000 && n_changed > 1000, "cases are missing");
    return test_end(&t, "test-unicode");
}
