// JSON. Reading: the grammar of RFC 8259, values at paths, the text of strings; and on random
// documents, whole and damaged, the same results as Python's json module (test-json-cases.py).
// Writing: strings of any bytes, nested objects and arrays.

#include "base/json-read.h"
#include "json-write.h"
#include "kit/check.h"

// Reads a copy that ends with its last byte, so the address sanitizer sees any read beyond it.
static enum json_kind read_copy(const char * text, size_t size, const char * path,
        struct json_value * value, struct buffer * decoded, int64_t * n_lone,
        struct json_error * error) {
    struct json_path paths[1];
    char *           copy = malloc(size > 0 ? size : 1);
    if (copy == NULL || !json_path_parse(path, strlen(path), &paths[0])) {
        abort();
    }
    memcpy(copy, text, size);
    const enum json_kind kind = json_read(copy, size, paths, 1, value, error);
    decoded->n = 0;
    *n_lone = 0;
    if (kind != JSON_MISSING && value->kind == JSON_STRING &&
            !json_read_string(*value, decoded, n_lone)) {
        abort();
    }
    free(copy);
    return kind;
}

static const char * const ACCEPTED[] = { "{}", "[]", "0", "-0", "-1", "10", "1.5", "1e5", "1E+5",
    "1e-5", "-0.0e0", "123456789012345678901234567890", "1e9999", "true", "false", "null", "\"\"",
    " \t\r\n{ \"a\" \t: \r\n 1 } \n", "[ ]", "[1,[2,[3]]]", "{\"\":0}", "{\"a\":1,\"a\":2}",
    "\"\x7f\"", "\"\\u0000\"", "\"\\uD800\"", "\"\\uDC00\\uD800\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\xc2\x80\"", "\"\xdf\xbf\"", "\"\xe0\xa0\x80\"",
    "\"\xed\x9f\xbf\"", "\"\xee\x80\x80\"", "\"\xef\xbf\xbf\"", "\"\xf0\x90\x80\x80\"",
    "\"\xf4\x8f\xbf\xbf\"", "\"1234567\"", "\"12345678\"", "\"123456789\"",
    "\"\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\"", "[[[[[[[[[[]]]]]]]]]]" };

static const char * const REFUSED[] = { "", " ", "{", "}", "[", "]", "{]", "[}", "[1", "[1,",
    "[1,]", "[,1]", "[,]", "[1 2]", "[1,,2]", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,",
    "{\"a\":1,}", "{,}", "{\"a\" 1}", "{\"a\"::1}", "{a:1}", "{'a':1}", "{1:1}", "{null:1}",
    "{\"a\":1 \"b\":2}", "{\"a\":1;}", "{} {}", "{}x", "[] ]", "1 2", "nul", "nulL", "True", "tru",
    "truee", "NaN", "Infinity", "-Infinity", "-", "+1", "01", "-01", "00", "1.", ".5", "-.5",
    "1.e5", "1e", "1e+", "1E-", "1e5.5", "0x10", "1_000", "1,5", "\"", "\"abc", "\"\\\"", "\"\\",
    "\"\\x41\"", "\"\\u\"", "\"\\u12\"", "\"\\u123\"", "\"\\u123g\"", "\"\\u 123\"", "\"\\U0041\"",
    "\"\\a\"", "\"\\'\"", "\"\\0\"", "\"\n\"", "\"\t\"", "\"\x1f\"", "\"\x01\"", "'a'", "//c\n1",
    "/*c*/1", "1//c", "\xef\xbb\xbf{}", "\v1", "\f1",
    "\xc2\xa0"
    "1",
    "1\xc2\xa0",
    // not UTF-8: invalid first bytes, missing bytes, overlong forms, surrogates, > U+10FFFF
    "\"\x80\"", "\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xc3\"", "\"\xe0\x80\x80\"", "\"\xe0\x9f\xbf\"",
    "\"\xe2\x80\"", "\"\xed\xa0\x80\"", "\"\xed\xbf\xbf\"", "\"\xf0\x80\x80\x80\"",
    "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"", "\"\xf5\x80\x80\x80\"", "\"\xff\"", "\"\xfe\"",
    "\"12345678\xff\"", "{\"\xff\":1}", "\xff" };

static void test_grammar(struct test * t) {
    struct json_error error;
    for (size_t i = 0; i < sizeof(ACCEPTED) / sizeof(ACCEPTED[0]); ++i) {
        const enum json_kind kind =
                json_read(ACCEPTED[i], strlen(ACCEPTED[i]), NULL, 0, NULL, &error);
        test_check(t, kind != JSON_MISSING, "refused: %s: byte %zu: %s", ACCEPTED[i], error.at,
                error.what);
    }
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); ++i) {
        const size_t         size = strlen(REFUSED[i]);
        const enum json_kind kind = json_read(REFUSED[i], size, NULL, 0, NULL, &error);
        test_check(t, kind == JSON_MISSING, "accepted: %s", REFUSED[i]);
        test_check(t, kind != JSON_MISSING || (error.at <= size && error.what[0] != '\0'),
                "%s: byte %zu: no reason", REFUSED[i], error.at);
    }
    // NUL does not end the text
    test_check(t, json_read("\"\0\"", 3, NULL, 0, NULL, &error) == JSON_MISSING && error.at == 1,
            "a raw NUL in a string");
    test_check(t, json_read("{}\0", 3, NULL, 0, NULL, &error) == JSON_MISSING && error.at == 2,
            "a NUL after the value");
    test_check(t, json_read("\"\\\0\"", 4, NULL, 0, NULL, &error) == JSON_MISSING,
            "a NUL after a backslash");
    // every byte after a backslash
    for (int c = 0; c < 256; ++c) {
        const char text[] = { '"', '\\', (char) c, '"' };
        const bool ok = c != 0 && strchr("\"\\/bfnrt", c) != NULL;
        test_check(t, (json_read(text, 4, NULL, 0, NULL, &error) != JSON_MISSING) == ok,
                "backslash and byte %d: %s", c, ok ? "refused" : "accepted");
    }
    // every byte in a string, at each of eight offsets
    for (int c = 0; c < 256; ++c) {
        for (size_t at = 0; at < 16; ++at) {
            char text[18];
            memset(text, 'x', sizeof(text));
            text[0] = text[17] = '"';
            text[1 + at] = (char) c;
            const bool ok = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            const bool is = json_read(text, sizeof(text), NULL, 0, NULL, &error) != JSON_MISSING;
            // a backslash before an x is no escape; at the end it takes the quote away: refused
            // either way
            test_check(t, is == ok, "byte %d at place %zu: %s", c, at, is ? "accepted" : "refused");
        }
    }
    // depth
    for (int depth = JSON_MAX_DEPTH - 1; depth <= JSON_MAX_DEPTH + 1; ++depth) {
        char text[2 * JSON_MAX_DEPTH + 8];
        for (int i = 0; i < depth; ++i) {
            text[i] = '[';
            text[depth + i] = ']';
        }
        const enum json_kind kind = json_read(text, (size_t) (2 * depth), NULL, 0, NULL, &error);
        test_check(t, (kind == JSON_ARRAY) == (depth <= JSON_MAX_DEPTH), "depth %d: %s", depth,
                kind == JSON_ARRAY ? "accepted" : "refused");
    }
}

// The value at a path: the text of a string, otherwise the bytes of the document.
static const struct {
    const char *   text;
    const char *   path;
    enum json_kind kind;
    const char *   value;
    size_t         size; // 0: strlen(value)
    int64_t        n_lone;
} PATHS[] = {
    { "{\"a\":\"x\"}", "a", JSON_STRING, "x", 0, 0 },
    { "{\"a\":\"x\"}", "b", JSON_MISSING, "", 0, 0 },
    { "{\"a\":\"x\"}", "a.a", JSON_MISSING, "", 0, 0 },
    { "{\"a\": -1.5e3 }", "a", JSON_NUMBER, "-1.5e3", 0, 0 },
    { "{\"a\":[1,{\"b\":2}] }", "a", JSON_ARRAY, "[1,{\"b\":2}]", 0, 0 },
    { "{\"a\":[{\"b\":2}]}", "a.b", JSON_MISSING, "", 0, 0 },
    { "{\"b\":{\"a\":1},\"a\":true}", "a", JSON_TRUE, "true", 0, 0 },
    { "{\"b\":{\"a\":\"no\"}}", "a", JSON_MISSING, "", 0, 0 },
    { "{\"a\":{\"b\":{\"c\":\"x\"}}}", "a.b.c", JSON_STRING, "x", 0, 0 },
    { "{\"a\":{\"b\":{\"c\":\"x\"}}}", "a.b", JSON_OBJECT, "{\"c\":\"x\"}", 0, 0 },
    { "{\"a.b\":\"x\"}", "a.b", JSON_MISSING, "", 0, 0 },
    { "{\"a\":null,\"ab\":1}", "a", JSON_NULL, "null", 0, 0 },
    { "{\"ab\":1,\"A\":1,\"\":1}", "a", JSON_MISSING, "", 0, 0 },
    { "{\"\\u0061\":\"x\"}", "a", JSON_STRING, "x", 0, 0 },
    { "{\"\\u00e9\":\"x\"}", "\xc3\xa9", JSON_STRING, "x", 0, 0 },
    { "{\"\\ud83d\\ude00\":\"x\"}", "\xf0\x9f\x98\x80", JSON_STRING, "x", 0, 0 },
    { "{\"a\\u0000\":\"x\"}", "a", JSON_MISSING, "", 0, 0 },
    // the last of two equal keys counts
    { "{\"a\":\"x\",\"a\":\"y\"}", "a", JSON_STRING, "y", 0, 0 },
    { "{\"a\":{\"b\":\"x\"},\"a\":{}}", "a.b", JSON_MISSING, "", 0, 0 },
    { "{\"a\":{\"b\":\"x\"},\"a\":1}", "a.b", JSON_MISSING, "", 0, 0 },
    { "{\"a\":{\"b\":\"x\",\"b\":\"y\"},\"\\u0061\":{\"b\":\"z\"}}", "a.b", JSON_STRING, "z", 0,
            0 },
    // strings
    { "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "a", JSON_STRING, "\"\\/\b\f\n\r\t", 0, 0 },
    { "{\"a\":\"\\u0041\\u00E9\\u20ac\\uFFFF\"}", "a", JSON_STRING,
            "A\xc3\xa9\xe2\x82\xac\xef\xbf\xbf", 0, 0 },
    { "{\"a\":\"x\\u0000y\"}", "a", JSON_STRING, "x\0y", 3, 0 },
    { "{\"a\":\"\\uD83D\\uDE00\"}", "a", JSON_STRING, "\xf0\x9f\x98\x80", 0, 0 },
    { "{\"a\":\"\\udbff\\udfff\"}", "a", JSON_STRING, "\xf4\x8f\xbf\xbf", 0, 0 },
    { "{\"a\":\"\\uD83D\"}", "a", JSON_STRING, "\xef\xbf\xbd", 0, 1 },
    { "{\"a\":\"\\uDE00x\"}", "a", JSON_STRING, "\xef\xbf\xbdx", 0, 1 },
    { "{\"a\":\"\\uD83Dx\\uDE00\"}", "a", JSON_STRING, "\xef\xbf\xbdx\xef\xbf\xbd", 0, 2 },
    { "{\"a\":\"\\uD83D\\n\"}", "a", JSON_STRING, "\xef\xbf\xbd\n", 0, 1 },
    { "{\"a\":\"\\uD83D\\u0041\"}", "a", JSON_STRING,
            "\xef\xbf\xbd"
            "A",
            0, 1 },
    { "{\"a\":\"\\uDE00\\uD83D\"}", "a", JSON_STRING, "\xef\xbf\xbd\xef\xbf\xbd", 0, 2 },
    { "{\"a\":\"\\uD83D\\uD83D\\uDE00\"}", "a", JSON_STRING, "\xef\xbf\xbd\xf0\x9f\x98\x80", 0, 1 },
};

static void test_paths(struct test * t) {
    struct buffer decoded = { 0 };
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); ++i) {
        const size_t      size = strlen(PATHS[i].text);
        struct json_path  path;
        struct json_value v;
        struct json_error error;
        int64_t           n_lone = 0;
        decoded.n = 0;
        test_check(t, json_path_parse(PATHS[i].path, strlen(PATHS[i].path), &path),
                "path %s refused", PATHS[i].path);
        const bool is_json = json_read(PATHS[i].text, size, &path, 1, &v, &error) != JSON_MISSING;
        test_check(t, is_json && v.kind == PATHS[i].kind, "%s at %s: %s, expected %s",
                PATHS[i].text, PATHS[i].path, json_kind_name(v.kind),
                json_kind_name(PATHS[i].kind));
        if (!is_json || v.kind == JSON_MISSING) {
            continue;
        }
        const bool is_string = v.kind == JSON_STRING;
        if (is_string && !json_read_string(v, &decoded, &n_lone)) {
            abort();
        }
        const char * value = is_string ? decoded.data : v.data;
        const size_t n = is_string ? decoded.n : v.size;
        const size_t wanted = PATHS[i].size > 0 ? PATHS[i].size : strlen(PATHS[i].value);
        test_check(t, n == wanted && memcmp(value, PATHS[i].value, n) == 0,
                "%s at %s: '%.*s', expected '%s'", PATHS[i].text, PATHS[i].path, (int) n, value,
                PATHS[i].value);
        test_check(t, n_lone == PATHS[i].n_lone, "%s: %lld lone surrogates", PATHS[i].text,
                (long long) n_lone);
        test_check(t,
                !is_string || (json_string_is(v, PATHS[i].value, wanted) &&
                                      !json_string_is(v, PATHS[i].value, wanted - 1)),
                "%s at %s: json_string_is disagrees", PATHS[i].text, PATHS[i].path);
    }
    buffer_free(&decoded);

    static const char * const bad[] = { "", ".", "a.", ".a", "a..b", "a.b.c.d.e.f.g.h.i" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        struct json_path path;
        test_check(
                t, !json_path_parse(bad[i], strlen(bad[i]), &path), "path '%s' accepted", bad[i]);
    }

    // the maximum number of paths: each finds its own value
    char             names[JSON_MAX_PATHS][16];
    char             text[JSON_MAX_PATHS * 32 + 2] = "{";
    struct json_path paths[JSON_MAX_PATHS];
    for (int i = 0; i < JSON_MAX_PATHS; ++i) {
        snprintf(names[i], sizeof(names[i]), "k%d", i);
        json_path_parse(names[i], strlen(names[i]), &paths[i]);
        snprintf(text + strlen(text), 32, "%s\"k%d\":%d", i > 0 ? "," : "", i, i);
    }
    strcat(text, "}");
    struct json_value values[JSON_MAX_PATHS];
    struct json_error error;
    bool ok = json_read(text, strlen(text), paths, JSON_MAX_PATHS, values, &error) == JSON_OBJECT;
    for (int i = 0; i < JSON_MAX_PATHS && ok; ++i) {
        ok = values[i].kind == JSON_NUMBER && atoi(values[i].data) == i;
    }
    test_check(t, ok, "%d paths at a time", JSON_MAX_PATHS);
}

static void test_arrays(struct test * t) {
    static const char * const items[] = { "1", "\"a,]\"", "[2, 3]", "{\"b\": []}", "null" };
    static const char * const arrays[] = { "[]", " [ ] ", "[1,\"a,]\",[2, 3],{\"b\": []},null]",
        "[ 1 , \"a,]\" ,[2, 3],\n{\"b\": []}\t,null ]" };
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) {
        const size_t      n_items = i < 2 ? 0 : sizeof(items) / sizeof(items[0]);
        struct json_value array = { JSON_ARRAY, strchr(arrays[i], '['), 0 };
        struct json_value item;
        array.size = (size_t) (strrchr(arrays[i], ']') + 1 - array.data);
        for (size_t k = 0; k < n_items; ++k) {
            test_check(t,
                    json_array_next(&array, &item) && item.size == strlen(items[k]) &&
                            memcmp(item.data, items[k], item.size) == 0,
                    "%s: item %zu is not %s", arrays[i], k, items[k]);
        }
        for (int k = 0; k < 3; ++k) {
            test_check(t, !json_array_next(&array, &item), "%s has more items", arrays[i]);
        }
    }
}

// "-", or the letter of the kind, followed by the text of a string in hexadecimal
static void describe(
        struct json_value v, const struct buffer * decoded, char * out, size_t out_size) {
    static const char letters[] = { '-', 'o', 'a', 's', 'n', 't', 'f', 'z' };
    size_t            n = (size_t) snprintf(out, out_size, "%c", letters[v.kind]);
    for (size_t i = 0; v.kind == JSON_STRING && i < decoded->n && n + 3 < out_size; ++i) {
        n += (size_t) snprintf(out + n, out_size - n, "%02x", (uint8_t) decoded->data[i]);
    }
}

static void test_random(struct test * t) {
    FILE * file = fopen(LRNN_CASES, "rb");
    test_check(t, file != NULL, "cannot open %s", LRNN_CASES);
    if (file == NULL) {
        return;
    }
    char *        text = NULL;
    char *        told = NULL;
    size_t        text_capacity = 0, told_capacity = 0;
    struct buffer decoded = { 0 };
    int           n = 0, n_refused = 0;
    for (ssize_t size; (size = getline(&text, &text_capacity, file)) > 0 &&
                       getline(&told, &told_capacity, file) > 0;
            ++n) {
        size--; // the newline
        told[strcspn(told, "\n")] = '\0';
        char              k[1024], ok[1024], ours[2100];
        struct json_value value;
        struct json_error error;
        int64_t           n_lone;
        enum json_kind    kind =
                read_copy(text, (size_t) size, "k", &value, &decoded, &n_lone, &error);
        describe(value, &decoded, k, sizeof(k));
        read_copy(text, (size_t) size, "o.k", &value, &decoded, &n_lone, &error);
        describe(value, &decoded, ok, sizeof(ok));
        if (kind == JSON_MISSING) {
            snprintf(ours, sizeof(ours), "refused");
            n_refused++;
        } else {
            snprintf(ours, sizeof(ours), "%c %s %s", "-oasntfz"[kind], k, ok);
        }
        test_check(
                t, strcmp(ours, told) == 0, "%.*s: %s, expected %s", (int) size, text, ours, told);
    }
    test_check(t, n >= 900, "%d documents in %s", n, LRNN_CASES);
    printf("random documents: %d, %d of them refused, as by Python's json\n", n, n_refused);
    buffer_free(&decoded);
    free(text);
    free(told);
    fclose(file);
}

//
// Writing
//

static void check_written(struct test * t, const char * text, size_t size, const char * expected) {
    char * written = NULL;
    size_t n;
    FILE * out = open_memstream(&written, &n);

    json_write_bytes(out, text, size);
    fclose(out);
    test_check(t, strcmp(written, expected) == 0, "wrote %s, expected %s", written, expected);
    free(written);
}

static void test_writing(struct test * t) {
    check_written(t, "", 0, "\"\"");
    check_written(t, "a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
    check_written(t, "\n\t\0\x1f\x7f", 5, "\"\\n\\u0009\\u0000\\u001f\\u007f\"");
    check_written(t, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9,
            "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\""); // é € 🙂
    // not UTF-8: a lone continuation byte, an incomplete character, overlong forms, a surrogate,
    // a code point beyond U+10FFFF
    check_written(t, "\x80", 1, "\"\\ufffd\"");
    check_written(t,
            "\xc3"
            "a",
            2, "\"\\ufffda\"");
    check_written(t, "\xe2\x82", 2, "\"\\ufffd\\ufffd\"");
    check_written(t, "\xc0\x80", 2, "\"\\ufffd\\ufffd\"");
    check_written(t, "\xe0\x80\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");
    check_written(t, "\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");
    check_written(t, "\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    check_written(t, "\xff\xf8", 2, "\"\\ufffd\\ufffd\"");
}

// What the writer nests is JSON, with the values that were given.
static void test_nesting(struct test * t) {
    static const char EXPECTED[] =
            "{ \"a\": [1, [], { \"b\": null }],\n  \"c\\\"d\": [\n    true,\n"
            "    0.1\n  ], \"e\": 0.30000000000000004, \"f\": null }";
    char *             written = NULL;
    size_t             n;
    FILE *             out = open_memstream(&written, &n);
    struct json_writer w = { .out = out };

    json_object(&w, NULL);
    json_array(&w, "a");
    json_int(&w, NULL, 1);
    json_array(&w, NULL);
    json_end(&w);
    json_object(&w, NULL);
    json_string(&w, "b", NULL);
    json_end(&w);
    json_end(&w);
    json_line(&w, 2);
    json_array(&w, "c\"d");
    json_line(&w, 4);
    json_bool(&w, NULL, true);
    json_line(&w, 4);
    json_exact(&w, NULL, (double) 0.1f, 6, true);
    json_line(&w, 2);
    json_end(&w);
    json_exact(&w, "e", 0.1 + 0.2, 9, false);
    json_number(&w, "f", 1.0 / 0.0);
    json_end(&w);
    fclose(out);
    test_check(t, strcmp(written, EXPECTED) == 0, "wrote %s, expected %s", written, EXPECTED);
    test_check(t, json_read(written, n, NULL, 0, NULL, &(struct json_error) { 0 }) == JSON_OBJECT,
            "not JSON: %s", written);
    free(written);
}

int main(void) {
    struct test t = { 0 };
    test_grammar(&t);
    test_paths(&t);
    test_arrays(&t);
    test_random(&t);
    test_writing(&t);
    test_nesting(&t);
    return test_end(&t, "test-json");
}
