// Shared parts of the programs: reading token ids and .npy files.

#include "lrnn.h"
#include "kit/check.h"
#include "npy.h"
#include "token-ids.h"

//
// Token ids
//

static void check_ids(struct test * t, const char * text, int64_t n, const int32_t * expected) {
    int32_t *         ids;
    int64_t           n_ids;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };

    const bool ok = token_ids_parse(text, strlen(text), &ids, &n_ids, &err);
    test_check(t, ok && n_ids == n, "'%s': expected %d ids, found %d: %s", text, (int) n,
            (int) n_ids, err.text);
    for (int64_t i = 0; ok && i < n && i < n_ids; ++i) {
        test_check(t, ids[i] == expected[i], "'%s': id %d is %d, expected %d", text, (int) i,
                ids[i], expected[i]);
    }
    free(ids);
}

static void check_no_ids(struct test * t, const char * text, size_t size, const char * expected) {
    int32_t *         ids;
    int64_t           n_ids;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };

    const bool ok = token_ids_parse(text, size, &ids, &n_ids, &err);
    test_check(t, !ok && ids == NULL && strcmp(err.text, expected) == 0,
            "'%s': said '%s', expected '%s'", text, err.text, expected);
    if (ok) {
        free(ids);
    }
}

static void check_token_ids(struct test * t) {
    struct lrnn_error err;

    check_ids(t, "", 0, NULL);
    check_ids(t, " \t\r\n,", 0, NULL);
    check_ids(t, "7", 1, (const int32_t[]) { 7 });
    check_ids(t, "1,2, 3\n\n0004 ", 4, (const int32_t[]) { 1, 2, 3, 4 });
    check_ids(t, "2147483647", 1, (const int32_t[]) { INT32_MAX });
    check_no_ids(t, "2147483648", 10, "token 0 is '2147483648'; expected a decimal id");
    check_no_ids(t, "1 2x", 4, "token 1 is '2x'; expected a decimal id");
    check_no_ids(t, "-1", 2, "token 0 is '-1'; expected a decimal id");
    check_no_ids(t, "1.5", 3, "token 0 is '1.5'; expected a decimal id");
    check_no_ids(t, "1 \033[31m\377", 8, "token 1 is '?[31m?'; expected a decimal id");
    check_no_ids(t,
            "1\0"
            "2",
            3, "token 0 is '1?2'; expected a decimal id");

    test_check(t, token_ids_check((const int32_t[]) { 0, 9 }, 2, 10, &err), "ids 0 and 9 of 10");
    test_check(t,
            !token_ids_check((const int32_t[]) { 0, 10 }, 2, 10, &err) &&
                    strcmp(err.text, "token 1 has id 10; expected 0 to 9") == 0,
            "id 10 of 10: '%s'", err.text);
    test_check(t, !token_ids_check((const int32_t[]) { -1 }, 1, 10, &err), "id -1");
}

//
// .npy
//

enum { NPY_MAX = 512 };

// Builds a file of the given version.
static size_t make_npy(
        char * file, int version, const char * dictionary, const int32_t * values, size_t n) {
    const size_t length = strlen(dictionary);
    const size_t wide = version == 1 ? 2 : 4;

    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char) version;
    file[7] = 0;
    for (size_t i = 0; i < wide; ++i) {
        file[8 + i] = (char) (length >> 8 * i & 0xff);
    }
    memcpy(file + 8 + wide, dictionary, length);
    memcpy(file + 8 + wide + length, values, n * sizeof(*values));
    return 8 + wide + length + n * sizeof(*values);
}

static void check_npy_rejected(struct test * t, const char * dictionary, const char * word) {
    static const int32_t values[] = { 5, 6, 7 };
    char                 file[NPY_MAX];
    struct lrnn_error    err = { LRNN_ERROR_NONE, "" };
    int32_t *            read;
    int64_t              n;

    const bool ok = npy_read_int32(file, make_npy(file, 1, dictionary, values, 3), &read, &n, &err);
    test_check(t, !ok && read == NULL && strstr(err.text, word) != NULL,
            "%s: '%s', expected a message with '%s'", dictionary, err.text, word);
    free(read);
}

static void check_npy(struct test * t) {
    static const int32_t values[] = { 5, -6, 1 << 30 };
    static const char three[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }    \n";
    char              file[NPY_MAX];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    int32_t *         read;
    int64_t           n;

    for (int version = 1; version <= 3; ++version) {
        const size_t size = make_npy(file, version, three, values, 3);
        const bool   ok = npy_read_int32(file, size, &read, &n, &err);
        test_check(t, ok && n == 3 && memcmp(read, values, sizeof(values)) == 0, "version %d: %s",
                version, err.text);
        free(read);
        // each prefix is in a buffer of its size, so that sanitizers find reads beyond it
        for (size_t cut = 0; cut < size; ++cut) {
            char * part = malloc(cut + 1);
            memcpy(part, file, cut);
            part = realloc(part, cut > 0 ? cut : 1);
            test_check(t, !npy_read_int32(part, cut, &read, &n, &err) && read == NULL,
                    "version %d cut to %zu bytes", version, cut);
            free(read);
            free(part);
        }
    }
    check_npy_rejected(
            t, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", "'<i8' (3,)");
    check_npy_rejected(t, "{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", "'>i4'");
    check_npy_rejected(t, "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3), }", "(1, 3)");
    check_npy_rejected(t, "{'descr': '<i4', 'fortran_order': False, 'shape': (), }", "()");
    check_npy_rejected(t, "{'descr': '<i4', 'fortran_order': False, 'shape': (-3,), }", "(-3,)");
    check_npy_rejected(t, "{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }",
            "3 numbers; expected 4");
    check_npy_rejected(t, "{'descr': '<i4', 'shape': (999999999999999,), }",
            "3 numbers; expected 999999999999999");
    check_npy_rejected(
            t, "{'descr': '<i4', 'shape': (99999999999999999999999,), }", "expected '<i4' (n,)");
    check_npy_rejected(t, "", "? ?");

    char          header[128];
    const int64_t longest[] = { INT64_MAX, INT64_MAX };
    npy_header("'<f4'", longest, 2, header, sizeof(header));
    test_check(t,
            header[sizeof(header) - 1] == '\n' &&
                    strstr(header + 10, "(9223372036854775807, 9223372036854775807), }") != NULL,
            "the longest header does not fit");
    test_check(t, memcmp(header, "\x93NUMPY\x01\x00\x76\x00{", 11) == 0,
            "the header's size is not 118");
}

int main(void) {
    struct test t = { 0 };

    check_token_ids(&t);
    check_npy(&t);

    printf("token ids in text; whole, truncated and invalid .npy files\n");
    return test_end(&t, "token-ids");
}
