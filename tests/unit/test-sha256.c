// SHA-256 against the examples of FIPS 180-2 (appendix B) and NIST's test vectors, and however the
// bytes come.

#include "base/sha256.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char * text;
    const char * hex;
} CASES[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    { "\xbd", "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b" },
};

int main(void) {
    struct test t = { 0 };
    char        hex[65];
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); ++i) {
        struct sha256 s;
        sha256_begin(&s);
        sha256_add(&s, CASES[i].text, strlen(CASES[i].text));
        sha256_hex(&s, hex);
        test_check(&t, strcmp(hex, CASES[i].hex) == 0, "'%s': %s, expected %s", CASES[i].text, hex,
                CASES[i].hex);
    }

    // a million times 'a', in pieces of every size from 0 to 200
    struct sha256   s;
    struct test_rng rng = { 1 };
    char            piece[200];
    memset(piece, 'a', sizeof(piece));
    sha256_begin(&s);
    for (size_t left = 1000000; left > 0;) {
        size_t n = (size_t) test_below(&rng, (int64_t) sizeof(piece) + 1);
        n        = n < left ? n : left;
        sha256_add(&s, piece, n);
        left -= n;
    }
    sha256_hex(&s, hex);
    test_check(&t,
            strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0,
            "a million times a: %s", hex);

    // asking does not end it: one byte more is the hash of all
    sha256_begin(&s);
    sha256_add(&s, "ab", 2);
    sha256_hex(&s, hex);
    sha256_add(&s, "c", 1);
    sha256_hex(&s, hex);
    test_check(&t, strcmp(hex, CASES[1].hex) == 0, "abc in two steps: %s", hex);
    return test_end(&t, "test-sha256");
}
