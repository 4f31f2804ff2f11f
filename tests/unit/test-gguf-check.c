// gguf-check.c accepts well-formed files and rejects all others with an exact message.
//
//     test-gguf-check              all tests
//     test-gguf-check DIRECTORY    only the crafted files; also writes them there as fuzz seeds

#include "lrnn.h"
#include "kit/check.h"
#include "kit/files.h"
#include "kit/gguf-bytes.h"
#include "kit/model-file-walk.h"

#include <inttypes.h>

//
// Crafted files
//

struct craft {
    struct test * t;
    struct bytes  b;
    const char *  seeds; // a directory or NULL
    int           n_seeds;
};

static void write_seed(struct craft * c) {
    if (c->seeds != NULL) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%03d.gguf", c->seeds, c->n_seeds++);
        test_write_file(path, c->b.data, c->b.n);
    }
}

static void rejected(struct craft * c, const char * sentence) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    char                want[512];
    unsigned char *     copy;
    struct model_file * f = open_bytes(&c->b, &copy, &err);
    snprintf(want, sizeof(want), "f.gguf: %s", sentence);
    test_check(c->t, f == NULL, "accepted; expected: %s", want);
    test_check(c->t, f != NULL || strcmp(err.text, want) == 0, "said: %s\n    expected: %s",
            err.text, want);
    model_file_free(f);
    free(copy);
    write_seed(c);
}

static void accepted(struct craft * c, const char * warning) {
    struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
    unsigned char *     copy;
    struct model_file * f = open_bytes(&c->b, &copy, &err);
    if (test_check(c->t, f != NULL, "rejected: %s", err.text)) {
        const char * found = model_file_warning(f);
        test_check(c->t, strcmp(found != NULL ? found : "", warning) == 0,
                "warned: %s; expected: %s", found, warning);
        test_check(c->t, model_file_walk(f, &err), "accepted, but %s", err.text);
    }
    model_file_free(f);
    free(copy);
    write_seed(c);
}

static void craft_header(struct craft * c) {
    struct bytes * b = &c->b;

    b->n = 0;
    rejected(c, "the file is empty; expected a GGUF file");
    put(b, "GG", 2);
    rejected(c, "the file ends inside the header: found 2 bytes at byte 0; expected 4");
    b->n = 0;
    put(b, "GGML\3\0\0\0", 8);
    rejected(c, "the file begins with the bytes 47 47 4d 4c; expected 47 47 55 46 (\"GGUF\")");

    static const struct {
        uint32_t     version;
        const char * sentence;
    } VERSIONS[] = {
        { 0, "the file is GGUF version 0; expected 3" },
        { 1, "the file is GGUF version 1; expected 3" },
        { 2, "the file is GGUF version 2; expected 3" },
        { 4, "the file is GGUF version 4; expected 3" },
        { UINT32_MAX, "the file is GGUF version 4294967295; expected 3" },
        { 3u << 24, "the file is GGUF version 50331648 in the other byte order; expected 3" },
    };
    for (size_t i = 0; i < sizeof(VERSIONS) / sizeof(VERSIONS[0]); ++i) {
        put_header(b, 0, 0);
        memcpy(b->data + 4, &VERSIONS[i].version, 4);
        rejected(c, VERSIONS[i].sentence);
    }

    put_header(b, 0, 0);
    accepted(c, "");
    b->n = 20;
    rejected(c, "the file ends inside the header: found 4 bytes at byte 16; expected 8");

    put_header(b, 0, UINT64_C(1) << 60);
    put_zeros(b, 28);
    rejected(c, "the header counts 1152921504606846976 keys; expected at most 2, which fit into "
                "the "
                "file");
    put_header(b, UINT64_MAX, 0);
    put_zeros(b, 66);
    rejected(c, "the header counts 18446744073709551615 tensors; expected at most 2, which fit "
                "into "
                "the file");
    put_header(b, 0, 2);
    put_key_u32(b, "a", 1);
    put_zeros(b, 11); // there is room for a second key, but this is none
    rejected(c, "key 1 has a name of 0 bytes; expected 1 to 65535");
}

static void craft_keys(struct craft * c) {
    struct bytes * b = &c->b;

    put_header(b, 0, 1);
    put_u64(b, 100);
    put(b, "abcdef", 6);
    rejected(c,
            "key 0 contains a string of 100 bytes at byte 32; expected at most 6, the rest of the "
            "file");
    put_header(b, 0, 1);
    put_u64(b, UINT64_MAX - 31); // + 32 is 0
    put(b, "abcdef", 6);
    rejected(c, "key 0 contains a string of 18446744073709551584 bytes at byte 32; expected at "
                "most "
                "6, the rest of the file");

    put_header(b, 0, 1);
    put_key_u32(b, "", 1);
    rejected(c, "key 0 has a name of 0 bytes; expected 1 to 65535");
    put_header(b, 0, 1);
    put_text_n(b, "a\0b", 3);
    put_u32(b, GGUF_TYPE_UINT32);
    put_u32(b, 1);
    rejected(c, "key 0 has a control character in its name 'a?b'");
    put_header(b, 0, 1);
    put_key_u32(b, "a\x1b[31m", 1);
    rejected(c, "key 0 has a control character in its name 'a?[31m'");
    put_header(b, 0, 1);
    put_key_u32(b, "\xc0\x80", 1);
    rejected(c, "key 0 has a name that is not UTF-8");
    put_header(b, 0, 1);
    put_key_u32(b, "größe", 1);
    accepted(c, "");

    put_header(b, 0, 3);
    put_key_u32(b, "b", 1);
    put_key_u32(b, "a", 2);
    put_key_u32(b, "b", 3);
    rejected(c, "key 'b' occurs twice; expected once");

    put_header(b, 0, 1);
    put_key(b, "a", 13);
    put_u64(b, 0);
    rejected(c, "key 'a' has a value of type 13; expected a type below 13");
    put_header(b, 0, 1);
    put_key(b, "a", UINT32_MAX);
    put_u64(b, 0);
    rejected(c, "key 'a' has a value of type 4294967295; expected a type below 13");
    put_header(b, 0, 1);
    put_array(b, "a", 99, 0);
    rejected(c, "key 'a' has elements of type 99; expected a type below 13");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_ARRAY, 0);
    rejected(c, "key 'a' is an array of arrays; expected an array of numbers, bools or strings");

    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_UINT64, UINT64_C(1) << 61); // · 8 is 0
    rejected(c,
            "key 'a' has 2305843009213693952 elements of type u64 at byte 49; expected at most 0, "
            "which fit into the file");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_FLOAT32, 3);
    put_zeros(b, 11);
    rejected(c, "key 'a' has 3 elements of type f32 at byte 49; expected at most 2, which fit into "
                "the file");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_STRING, 3);
    put_zeros(b, 23);
    rejected(c,
            "key 'a' has 3 elements of type string at byte 49; expected at most 2, which fit into "
            "the file");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_STRING, 2);
    put_text(b, "x");
    put_u64(b, 2);
    put_zeros(b, 1);
    rejected(c,
            "key 'a' contains a string of 2 bytes at byte 66; expected at most 1, the rest of the "
            "file");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_STRING, 2);
    put_text(b, "x");
    put_text(b, "\xff");
    rejected(c, "string 1 of key 'a' is not UTF-8");
    put_header(b, 0, 1);
    put_key(b, "a", GGUF_TYPE_STRING);
    put_text(b, "\xed\xa0\x80"); // a surrogate
    rejected(c, "string 0 of key 'a' is not UTF-8");
    put_header(b, 0, 1);
    put_key(b, "abc", GGUF_TYPE_UINT32);
    put_zeros(b, 3);
    rejected(c, "key 'abc' has 1 element of type u32 at byte 39; expected at most 0, which fit "
                "into "
                "the file");

    put_header(b, 0, 1);
    put_key(b, "a", GGUF_TYPE_BOOL);
    put(b, "\2", 1);
    rejected(c, "key 'a' has a bool of 2; expected 0 or 1");
    put_header(b, 0, 1);
    put_array(b, "a", GGUF_TYPE_BOOL, 3);
    put(b, "\0\1\377", 3);
    rejected(c, "key 'a' has a bool of 255; expected 0 or 1");

    put_header(b, 0, 3); // arrays may be empty, strings may contain NUL
    put_array(b, "a", GGUF_TYPE_STRING, 0);
    put_array(b, "b", GGUF_TYPE_FLOAT64, 0);
    put_key(b, "c", GGUF_TYPE_STRING);
    put_text_n(b, "\0x\n", 3);
    accepted(c, "");
}

static void craft_alignment(struct craft * c) {
    struct bytes * b = &c->b;
    static const struct {
        uint32_t value;
        bool     ok;
    } VALUES[] = {
        { 0, false },
        { 1, false },
        { 4, false },
        { 8, true },
        { 24, false },
        { 32, true },
        { 4096, true },
        { 65536, true },
        { 131072, false },
        { UINT32_C(1) << 31, false },
        { UINT32_MAX, false },
    };
    for (size_t i = 0; i < sizeof(VALUES) / sizeof(VALUES[0]); ++i) {
        char sentence[256];
        put_header(b, 0, 1);
        put_key_u32(b, "general.alignment", VALUES[i].value);
        snprintf(sentence, sizeof(sentence),
                "key 'general.alignment' is %" PRIu32 "; expected a power of two from 8 to 65536",
                VALUES[i].value);
        if (VALUES[i].ok) {
            accepted(c, "");
        } else {
            rejected(c, sentence);
        }
    }
    put_header(b, 0, 1);
    put_key(b, "general.alignment", GGUF_TYPE_UINT64);
    put_u64(b, 32);
    rejected(c, "key 'general.alignment' is of type u64; expected u32");
    put_header(b, 0, 1);
    put_array(b, "general.alignment", GGUF_TYPE_UINT32, 1);
    put_u32(b, 32);
    rejected(c, "key 'general.alignment' is an array of u32; expected u32");
    put_header(b, 0, 1);
    put_key(b, "general.alignment", GGUF_TYPE_STRING);
    put_text(b, "32");
    rejected(c, "key 'general.alignment' is of type string; expected u32");
}

// One tensor with n_data bytes of data. sentence NULL: accepted.
static void craft_tensor(struct craft * c, uint32_t n_dims, int64_t ne0, int64_t ne1, uint32_t type,
        size_t n_data, const char * sentence) {
    struct bytes * b = &c->b;
    put_header(b, 1, 0);
    put_tensor(b, "x", n_dims, ne0, ne1, type, 0);
    put_padding(b, 32);
    put_zeros(b, n_data);
    if (sentence != NULL) {
        rejected(c, sentence);
    } else {
        accepted(c, "");
    }
}

static void craft_shapes(struct craft * c) {
    craft_tensor(c, 1, 8, 1, GGML_TYPE_F32, 32, NULL);
    craft_tensor(c, 4, 2, 4, GGML_TYPE_F32, 32, NULL);
    craft_tensor(c, 1, 3, 1, GGML_TYPE_F32, 12, NULL); // without final padding
    craft_tensor(c, 2, 32, 2, GGML_TYPE_Q8_0, 68, NULL);

    craft_tensor(c, 0, 1, 1, GGML_TYPE_F32, 32, "tensor 'x' has 0 dimensions; expected 1 to 4");
    craft_tensor(c, 5, 1, 1, GGML_TYPE_F32, 32, "tensor 'x' has 5 dimensions; expected 1 to 4");
    craft_tensor(
            c, 1, 0, 1, GGML_TYPE_F32, 32, "tensor 'x' has shape [0]; expected dimensions above 0");
    craft_tensor(c, 2, 8, 0, GGML_TYPE_F32, 32,
            "tensor 'x' has shape [8, 0]; expected dimensions above 0");
    craft_tensor(c, 2, -8, 1, GGML_TYPE_F32, 32,
            "tensor 'x' has shape [-8, 1]; expected dimensions above 0");
    craft_tensor(c, 2, INT64_MAX, 2, GGML_TYPE_F32, 32,
            "tensor 'x' has shape [9223372036854775807, 2]; expected fewer than 2^63 elements");
    craft_tensor(c, 2, INT64_C(1) << 32, INT64_C(1) << 32, GGML_TYPE_F32, 32,
            "tensor 'x' has shape [4294967296, 4294967296]; expected fewer than 2^63 elements");
    craft_tensor(c, 1, INT64_C(1) << 62, 1, GGML_TYPE_F32, 32,
            "tensor 'x' has shape [4611686018427387904] of f32; expected fewer than 2^63 bytes");
    craft_tensor(c, 2, (INT64_C(1) << 42) + 1, 1024, GGML_TYPE_F32,
            4096, // the byte size is 4096 plus 2^54
            "tensor 'x' has 18014398509486080 bytes at byte 96; the file ends at byte 4192");
    craft_tensor(c, 1, 33, 1, GGML_TYPE_Q8_0, 68,
            "tensor 'x' has shape [33]; expected a multiple of 32 in the first dimension, the "
            "block of q8_0");
    craft_tensor(c, 1, 32, 1, 4, 64,
            "tensor 'x' is of type 4; expected a type that ggml still "
            "has");
    craft_tensor(c, 1, 32, 1, 31, 64,
            "tensor 'x' is of type 31; expected a type that ggml still "
            "has");

    static const uint32_t UNKNOWN[] = { GGML_TYPE_COUNT, 1000, UINT32_MAX };
    for (size_t i = 0; i < sizeof(UNKNOWN) / sizeof(UNKNOWN[0]); ++i) {
        char sentence[128];
        snprintf(sentence, sizeof(sentence),
                "tensor 'x' is of type %" PRIu32 "; expected a type below %d", UNKNOWN[i],
                GGML_TYPE_COUNT);
        craft_tensor(c, 1, 32, 1, UNKNOWN[i], 64, sentence);
    }

    craft_tensor(c, 1, 8, 1, GGML_TYPE_F32, 31,
            "tensor 'x' has 32 bytes at byte 64; the file ends at byte 95");
}

// Two tensors of 40 and 32 bytes at the given offsets.
static void craft_two(struct craft * c, const char * name0, uint64_t offset0, const char * name1,
        uint64_t offset1) {
    struct bytes * b = &c->b;
    put_header(b, 2, 0);
    put_tensor(b, name0, 1, 10, 1, GGML_TYPE_F32, offset0);
    put_tensor(b, name1, 1, 8, 1, GGML_TYPE_F32, offset1);
    put_padding(b, 32);
    put_zeros(b, 64 + 32);
}

static void craft_offsets(struct craft * c) {
    struct bytes * b = &c->b;
    craft_two(c, "x", 0, "y", 64);
    accepted(c, "");
    put_zeros(b, 5);
    accepted(c, "the file has 5 bytes after its last tensor; they are ignored");
    craft_two(c, "x", 0, "y", 65);
    rejected(c,
            "tensor 'y' starts at offset 65 of the data; expected a multiple of the alignment 32");
    craft_two(c, "x", 0, "y", 32);
    rejected(c, "tensor 'y' starts at offset 32 of the data; expected 64, where the previous "
                "tensor "
                "ends");
    craft_two(c, "x", 0, "y", 0);
    rejected(c, "tensor 'y' starts at offset 0 of the data; expected 64, where the previous tensor "
                "ends");
    craft_two(c, "x", 32, "y", 0);
    rejected(c, "tensor 'x' starts at offset 32 of the data; expected 0, where the previous tensor "
                "ends");
    craft_two(c, "x", 0, "y", 96);
    rejected(c, "tensor 'y' starts at offset 96 of the data; expected 64, where the previous "
                "tensor "
                "ends");
    craft_two(c, "x", 0, "y", UINT64_MAX - 31);
    rejected(c,
            "tensor 'y' starts at offset 18446744073709551584 of the data; expected at most 192, "
            "the size of the file");
    craft_two(c, "x", 0, "y", 64);
    b->n -= 33;
    rejected(c, "tensor 'y' has 32 bytes at byte 160; the file ends at byte 159");

    char name[65];
    memset(name, 'n', sizeof(name));
    name[63] = '\0';
    craft_two(c, name, 0, "y", 64);
    accepted(c, "");
    name[63] = 'n';
    name[64] = '\0';
    craft_two(c, name, 0, "y", 64);
    rejected(c, "tensor 0 has a name of 64 bytes; expected 1 to 63");
    craft_two(c, "x", 0, "", 64);
    rejected(c, "tensor 1 has a name of 0 bytes; expected 1 to 63");
    craft_two(c, "x", 0, "x", 64);
    rejected(c, "tensor 'x' occurs twice; expected once");
    craft_two(c, "x", 0, "\x80", 64);
    rejected(c, "tensor 1 has a name that is not UTF-8");

    put_header(b, 2, 0); // 'x' and 'x\0y' are equal as C strings
    put_tensor(b, "x", 1, 8, 1, GGML_TYPE_F32, 0);
    put_text_n(b, "x\0y", 3);
    put_zeros(b, 100);
    rejected(c, "tensor 1 has a control character in its name 'x?y'");

    put_header(b, 1, 1); // another alignment moves the data
    put_key_u32(b, "general.alignment", 256);
    put_tensor(b, "x", 1, 8, 1, GGML_TYPE_F32, 0);
    put_padding(b, 256);
    put_zeros(b, 32);
    accepted(c, "");
}

//
// Damage
//

static void check_truncation(struct test * t) {
    struct bytes b = { 0 };
    put_sample(&b);
    const size_t n = b.n;
    for (b.n = 0; b.n < n; ++b.n) {
        struct lrnn_error   err = { LRNN_ERROR_NONE, "" };
        unsigned char *     copy;
        struct model_file * f = open_bytes(&b, &copy, &err);
        test_check(t, f == NULL, "accepted %zu of %zu bytes", b.n, n);
        test_check(
                t, strncmp(err.text, "f.gguf: ", 8) == 0, "%zu of %zu bytes: %s", b.n, n, err.text);
        model_file_free(f);
        free(copy);
    }
    free(b.data);
}

// Sets every byte of the metadata to every value. Files that are still accepted must be consistent,
// and ggml must read them in the same way.
static void check_mutations(struct test * t) {
    struct bytes b = { 0 };
    int64_t      n_accepted = 0;
    put_sample(&b);
    for (size_t i = 0; i < b.n - SAMPLE_DATA; ++i) {
        const unsigned char before = b.data[i];
        for (unsigned v = 0; v < 256; ++v) {
            struct lrnn_error err = { LRNN_ERROR_NONE, "" };
            unsigned char *   copy;
            b.data[i] = (unsigned char) v;
            struct model_file * f = open_bytes(&b, &copy, &err);
            if (f != NULL) {
                test_check(t, model_file_walk(f, &err), "byte %zu = %u: accepted, but %s", i, v,
                        err.text);
                n_accepted++;
            } else {
                test_check(t, strncmp(err.text, "f.gguf: ", 8) == 0 && v != before,
                        "byte %zu = %u: %s", i, v, err.text);
            }
            model_file_free(f);
            free(copy);
        }
        b.data[i] = before;
    }
    printf("mutations: %" PRId64 " of %zu accepted\n", n_accepted, 256 * (b.n - SAMPLE_DATA));
    free(b.data);
}

// The time for many names is not quadratic: the test would exceed its time limit.
static void check_many(struct test * t) {
    enum { N_KEYS = 200000, N_TENSORS = 100000 };
    struct bytes      b = { 0 };
    unsigned char *   copy;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    char              name[32];
    put_header(&b, N_TENSORS, N_KEYS);
    for (uint32_t i = 0; i < N_KEYS; ++i) {
        snprintf(name, sizeof(name), "key.%" PRIu32, i * 7919u % N_KEYS);
        put_key_u32(&b, name, i);
    }
    for (uint32_t i = 0; i < N_TENSORS; ++i) {
        snprintf(name, sizeof(name), "blk.%" PRIu32 ".w", i);
        put_tensor(&b, name, 1, 8, 1, GGML_TYPE_F32, 32u * i);
    }
    put_padding(&b, 32);
    put_zeros(&b, 32 * N_TENSORS);
    struct model_file * f = open_bytes(&b, &copy, &err);
    if (test_check(t, f != NULL, "rejected: %s", err.text)) {
        test_check(t, model_file_walk(f, &err), "accepted, but %s", err.text);
    }
    model_file_free(f);
    free(copy);
    free(b.data);
}

int main(int argc, char ** argv) {
    struct test  t = { 0 };
    struct craft c = { .t = &t, .seeds = argc > 1 ? argv[1] : NULL };
    put_sample(&c.b);
    accepted(&c, "");

    craft_header(&c);
    craft_keys(&c);
    craft_alignment(&c);
    craft_shapes(&c);
    craft_offsets(&c);
    free(c.b.data);
    if (c.seeds != NULL) {
        return test_end(&t, "gguf-check, seeds");
    }

    check_truncation(&t);
    check_mutations(&t);
    check_many(&t);
    return test_end(&t, "gguf-check");
}
