// SHA-256 against the examples of FIPS 180-2 (appendix B) and NIST's test vectors, FNV-1a against
// the vectors of its authors. Data may be added in pieces of any size.

#include "base/hash.h"
#include "base/sha256.h"
#include "kit/check.h"
#include "kit/rng.h"

#include <inttypes.h>

static const struct {
    const char * text;
    const char * hex;
} SHA256_CASES[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
      "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    { "\xbd", "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b" },
};

static void check_sha256(struct test * t) {
    char hex[65];
    for (size_t i = 0; i < sizeof(SHA256_CASES) / sizeof(SHA256_CASES[0]); ++i) {
        struct sha256 s;
        sha256_begin(&s);
        sha256_add(&s, SHA256_CASES[i].text, strlen(SHA256_CASES[i].text));
        sha256_hex(&s, hex);
        test_check(t, strcmp(hex, SHA256_CASES[i].hex) == 0, "'%s': %s, expected %s",
                SHA256_CASES[i].text, hex, SHA256_CASES[i].hex);
    }

    // one million times 'a', in pieces of 0 to 200 bytes
    struct sha256   s;
    struct test_rng rng = { 1 };
    char            piece[200];
    memset(piece, 'a', sizeof(piece));
    sha256_begin(&s);
    for (size_t left = 1000000; left > 0;) {
        size_t n = (size_t) test_below(&rng, (int64_t) sizeof(piece) + 1);
        n = n < left ? n : left;
        sha256_add(&s, piece, n);
        left -= n;
    }
    sha256_hex(&s, hex);
    test_check(t,
            strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0,
            "one million times 'a': %s", hex);

    // reading the digest does not end the hash
    sha256_begin(&s);
    sha256_add(&s, "ab", 2);
    sha256_hex(&s, hex);
    sha256_add(&s, "c", 1);
    sha256_hex(&s, hex);
    test_check(t, strcmp(hex, SHA256_CASES[1].hex) == 0, "abc in two steps: %s", hex);
}

static void check_fnv(struct test * t) {
    static const struct {
        const char * text;
        uint64_t     hash;
    } cases[] = {
        { "", UINT64_C(0xcbf29ce484222325) },
        { "a", UINT64_C(0xaf63dc4c8601ec8c) },
        { "foobar", UINT64_C(0x85944171f73967e8) },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const size_t   size = strlen(cases[i].text);
        const uint64_t whole = hash_add(HASH_START, cases[i].text, size);
        const uint64_t parts = hash_add(hash_add(HASH_START, cases[i].text, size / 2),
                cases[i].text + size / 2, size - size / 2);
        test_check(t, whole == cases[i].hash, "FNV-1a of '%s': %016" PRIx64, cases[i].text, whole);
        test_check(t, parts == whole, "FNV-1a of '%s' in two steps: %016" PRIx64, cases[i].text,
                parts);
    }
}

int main(void) {
    struct test t = { 0 };
    check_sha256(&t);
    check_fnv(&t);
    return test_end(&t, "test-hash");
}
