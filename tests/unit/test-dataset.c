// Tests of data sets. Equal records give equal texts and fingerprints in every container; the
// expected fingerprint was computed by Python. A truncated or damaged file is an error, never a
// shorter data set. Malformed records are counted and named. Also: presets, templates, filters,
// folders, shuffling.
//
//     test-dataset               runs all tests
//     test-dataset DIRECTORY     writes the seeds of fuzz-dataset
//     test-dataset same FILE...  checks that the texts of each file are those of data/dataset

#include "lrnn.h"
#include "eval/data/dataset.h"
#include "kit/check.h"
#include "kit/files.h"

#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// of data/dataset, by tools/make-dataset-tests.py
static const char FINGERPRINT[] =
        "5702c6ad4aa6eed6db25b2dbf073675724346077d0aa420b8ee743aed89edca7";

//
// Files
//

static char folder[1024]; // temporary

static const char * path_of(const char * name) {
    static char paths[8][1200];
    static int  next;
    char *      path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static const char * data_path(const char * name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", LRNN_DATASET_DATA, name);
    return path;
}

static const char * write_text(const char * name, const char * text) {
    const char * path = path_of(name);
    test_write_file(path, text, strlen(text));
    return path;
}

static int remove_entry(const char * path, const struct stat * info, int kind, struct FTW * at) {
    (void) info;
    (void) kind;
    (void) at;
    return remove(path);
}

//
// Reading
//

// The result of a stream: its texts as "[text]", and its end.
struct reading {
    char              texts[16384]; // truncated
    char              sources[512]; // separated by ','
    int64_t           lines[16];
    bool              failed;
    struct lrnn_error err;
    char              complaints[2048]; // one per line
    char template[256];
    struct dataset_counts counts;
    char                  hex[65];
};

static struct reading read_with(const struct dataset_params * params) {
    struct reading   r = { 0 };
    struct dataset * ds = dataset_open(params, &r.err);
    if (ds == NULL) {
        r.failed = true;
        return r;
    }
    struct document     doc;
    enum dataset_status status;
    size_t              n = 0;
    while ((status = dataset_next(ds, &doc, &r.err)) == DATASET_DOCUMENT) {
        if (n + doc.size + 3 < sizeof(r.texts)) {
            r.texts[n++] = '[';
            if (doc.size > 0) {
                memcpy(r.texts + n, doc.text, doc.size);
            }
            n += doc.size;
            r.texts[n++] = ']';
        }
        snprintf(r.sources + strlen(r.sources), sizeof(r.sources) - strlen(r.sources), "%s,",
                doc.source);
        if (doc.index < 16) {
            r.lines[doc.index] = doc.line;
        }
    }
    r.failed = status == DATASET_ERROR;
    if (r.failed) { // the error persists
        struct lrnn_error again;
        r.failed = dataset_next(ds, &doc, &again) == DATASET_ERROR &&
                   strcmp(again.text, r.err.text) == 0;
    }
    for (int i = 0; dataset_complaint(ds, i) != NULL; ++i) {
        const size_t used = strlen(r.complaints);
        snprintf(
                r.complaints + used, sizeof(r.complaints) - used, "%s\n", dataset_complaint(ds, i));
    }
    r.counts = dataset_get_counts(ds);
    snprintf(r.template, sizeof(r.template), "%s", r.counts.template);
    r.counts.template = NULL;
    dataset_fingerprint(ds, r.hex);
    dataset_free(ds);
    return r;
}

static struct reading read_one(const char * preset, const char * path) {
    return read_with(&(struct dataset_params) { .paths = &path, .n_paths = 1, .preset = preset });
}

// Checks the texts of a file with this content.
static void check_texts(
        struct test * t, const char * preset, const char * content, const char * texts) {
    const struct reading r = read_one(preset, write_text("texts", content));
    test_check(t, !r.failed && strcmp(r.texts, texts) == 0, "%s: %s%s, expected %s", content,
            r.texts, r.err.text, texts);
}

// Checks that a file with this content gives an error that contains `says`.
static void check_error(
        struct test * t, const char * preset, const char * content, const char * says) {
    const struct reading r = read_one(preset, write_text("error", content));
    test_check(t, r.failed && strstr(r.err.text, says) != NULL, "%s: '%s', expected '%s'", content,
            r.err.text, says);
}

//
// Containers
//

static const char * const CONTAINERS[] = {
    "lines",
    "lines-bom",
    "array",
    "array-dense",
    "wrapped",
    "values",
#ifdef LRNN_ZLIB
    "gzip",
    "members",
#endif
#ifdef LRNN_ZSTD
    "zstd",
    "frames",
    "window",
#endif
};

enum { N_CONTAINERS = sizeof(CONTAINERS) / sizeof(CONTAINERS[0]) };

// the first eight texts of data/dataset; the ninth is long
static const char TEXTS[] = "[plain]"
                            "[a\xe2\x80\xa8"
                            "b\xe2\x80\xa9"
                            "c\xc2\x85"
                            "d\x7f"
                            "e]"
                            "[A/\b\f\n\r\t\"\\]"
                            "[\xf0\x9f\x98\x80 = \xf0\x9f\x98\x80, e\xcc\x81, \xef\xbb\xbf]"
                            "[a\0b]"
                            "[]"
                            "[last]"
                            "[yes]"
                            "[0 words of a longer text, 1 words of a longer text, ";

static void check_records(struct test * t, const char * path, bool sources) {
    const struct reading r = read_one("slimpajama", path);
    test_check(t, !r.failed, "%s: %s", path, r.err.text);
    test_check(t, strcmp(r.hex, FINGERPRINT) == 0, "%s: fingerprint %s, expected %s", path, r.hex,
            FINGERPRINT);
    test_check(t, memcmp(r.texts, TEXTS, sizeof(TEXTS) - 1) == 0, "%s: unexpected texts: %s", path,
            r.texts);
    test_check(t,
            r.counts.records == 9 && r.counts.documents == 9 && r.counts.malformed == 0 &&
                    r.counts.bytes == 8349,
            "%s: %lld records, %lld bytes", path, (long long) r.counts.records,
            (long long) r.counts.bytes);
    test_check(t, r.counts.bytes_read == r.counts.bytes_total, "%s: %lld bytes read of %lld", path,
            (long long) r.counts.bytes_read, (long long) r.counts.bytes_total);
    test_check(t,
            !sources || strcmp(r.sources,
                                "RedPajamaC4,RedPajamaBook,RedPajamaC4,RedPajamaC4,RedPajamaC4,"
                                "RedPajamaC4,RedPajamaC4,RedPajamaC4,"
                                "RedPajamaC4,") == 0,
            "%s: sources %s", path, r.sources);
}

static void test_containers(struct test * t) {
    for (int i = 0; i < N_CONTAINERS; ++i) {
        check_records(t, data_path(CONTAINERS[i]), true);
    }
    const struct reading lines = read_one("slimpajama", data_path("lines"));
    const int64_t        at[] = { 1, 2, 4, 5, 7, 8, 9, 10, 11 }; // blank lines count
    test_check(t, memcmp(lines.lines, at, sizeof(at)) == 0, "lines: numbers of lines");

    static const char * const foreign[] = { "parquet", "arrow-file", "arrow-stream" };
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); ++i) {
        const struct reading r = read_one("slimpajama", data_path(foreign[i]));
        test_check(t, r.failed && strstr(r.err.text, "lrnn-convert data") != NULL, "%s: %s",
                foreign[i], r.err.text);
    }
    // a format that this build cannot decompress: the error suggests a pipe
#ifndef LRNN_ZLIB
    const struct reading gz = read_one("text", data_path("gzip"));
    test_check(t,
            gz.failed && strstr(gz.err.text, "gzip -dc ") != NULL &&
                    strstr(gz.err.text, "from a pipe") != NULL,
            "gzip: %s", gz.err.text);
#endif
#ifndef LRNN_ZSTD
    const struct reading zst = read_one("text", data_path("zstd"));
    test_check(t,
            zst.failed && strstr(zst.err.text, "zstd -dc ") != NULL &&
                    strstr(zst.err.text, "from a pipe") != NULL,
            "zstd: %s", zst.err.text);
#endif
}

//
// Standard input
//

// Reads the output of a child process from a pipe: `begin`, whose first byte is written alone,
// `piece` n_pieces times, `end`.
static struct reading read_piped(const struct dataset_params * params, const char * begin,
        const char * piece, int n_pieces, const char * end) {
    int       ends[2];
    const int saved = dup(STDIN_FILENO);
    fflush(stdout);
    if (saved < 0 || pipe(ends) != 0) {
        exit(1);
    }
    const pid_t child = fork();
    if (child == 0) {
        bool ok =
                write(ends[1], begin, 1) == 1 && write(ends[1], begin + 1, strlen(begin) - 1) >= 0;
        for (int i = 0; i < n_pieces && ok; ++i) {
            ok = write(ends[1], piece, strlen(piece)) >= 0;
        }
        _exit(ok && write(ends[1], end, strlen(end)) >= 0 ? 0 : 1);
    }
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    struct dataset_params p = *params;
    p.paths = (const char * const[]) { "-" };
    p.n_paths = 1;
    const struct reading r = read_with(&p);
    dup2(saved, STDIN_FILENO);
    close(saved);
    waitpid(child, NULL, 0);
    return r;
}

static void test_stdin(struct test * t) {
    size_t               size;
    uint8_t *            data = test_read_file(data_path("lines"), &size);
    const struct reading r = read_piped(
            &(struct dataset_params) { .preset = "slimpajama" }, (const char *) data, "", 0, "\n");
    test_check(t, strcmp(r.hex, FINGERPRINT) == 0 && r.counts.bytes_total == -1,
            "standard input: %s %s", r.hex, r.err.text);
    free(data);
    const struct reading text =
            read_piped(&(struct dataset_params) { 0 }, "one\n", "more\n", 2, "end");
    test_check(t, strcmp(text.texts, "[one\nmore\nmore\nend]") == 0,
            "standard input is one text: %s %s", text.texts, text.err.text);
}

// Memory depends neither on the size of a record beyond the limit (64 MB, limit 100 kB) nor on the
// number of records.
static void test_memory(struct test * t) {
    static char piece[65537], many[65537];
    memset(piece, 'x', sizeof(piece) - 1);
    static const char record[] = "{\"text\":\"a document of many\"}\n";
    for (char * p = many; p + sizeof(record) < many + sizeof(many); p += sizeof(record) - 1) {
        memcpy(p, record, sizeof(record));
    }
    const struct dataset_params params = { .max_record = 100000 };
    struct rusage               before, after;
    getrusage(RUSAGE_SELF, &before);
    struct reading r = read_piped(
            &params, "{\"text\":\"a\"}\n{\"text\":\"", piece, 1000, "\"}\n{\"text\":\"b\"}");
    test_check(t, strcmp(r.texts, "[a][b]") == 0 && r.counts.malformed == 1, "a long line: %s %s",
            r.texts, r.err.text);
    r = read_piped(&params, "[{\"text\":\"a\"},{\"text\":\"", piece, 1000, "\"},{\"text\":\"b\"}]");
    test_check(t, strcmp(r.texts, "[a][b]") == 0 && r.counts.malformed == 1,
            "a long record of an array: %s %s", r.texts, r.err.text);
    r = read_piped(&params, "{\"text\":\"a\"}\n", many, 300, "");
    test_check(t, !r.failed && r.counts.malformed == 0 && r.counts.documents > 300000,
            "many records: %lld %s", (long long) r.counts.documents, r.err.text);
    getrusage(RUSAGE_SELF, &after);
    test_check(t, after.ru_maxrss - before.ru_maxrss < 16 * 1024,
            "150 MB were read with %ld kB of memory", after.ru_maxrss - before.ru_maxrss);
}

#if defined(LRNN_ZLIB) || defined(LRNN_ZSTD)

// Every truncation is an error that names the byte. Every flipped bit is an error or is in a field
// that does not matter, such as a date or a name.
static void test_damage(struct test * t, const char * name, size_t magic) {
    size_t       size;
    uint8_t *    data = test_read_file(data_path(name), &size);
    const char * path = path_of("damaged");
    int          n_errors = 0, n_same = 0;
    for (size_t n = magic; n < size; ++n) {
        char says[64];
        test_write_file(path, data, n);
        const struct reading r = read_one("slimpajama", path);
        snprintf(says, sizeof(says), "ends at byte %zu", n);
        test_check(t, r.failed && strstr(r.err.text, says) != NULL,
                "%s truncated at byte %zu: '%s'", name, n, r.err.text);
    }
    for (size_t bit = 0; bit < 8 * size; bit += 5) {
        data[bit / 8] ^= (uint8_t) (1u << bit % 8);
        test_write_file(path, data, size);
        const struct reading r = read_one("slimpajama", path);
        data[bit / 8] ^= (uint8_t) (1u << bit % 8);
        test_check(t, r.failed || strcmp(r.hex, FINGERPRINT) == 0,
                "%s: flipped bit %zu was not detected", name, bit);
        n_errors += r.failed;
        n_same += !r.failed;
    }
    // trailing garbage
    data[size] = 'x';
    test_write_file(path, data, size + 1);
    const struct reading r = read_one("slimpajama", path);
    test_check(t, r.failed, "%s: a byte after the end was not detected", name);
    printf("%s: %zu truncations and %d of %d flipped bits detected; %d in unimportant fields\n",
            name, size - magic, n_errors, n_errors + n_same, n_same);
    free(data);
}

#endif

//
// Records
//

static void test_forms(struct test * t) {
    check_texts(t, "text", "plain\r\ntext\n", "[plain\r\ntext\n]");
    check_texts(t, "text", "\xef\xbb\xbfplain", "[plain]");
    check_texts(t, "text", " \n", "[ \n]");
    check_texts(t, "text", "{braces}", "[{braces}]");
    check_texts(t, "text", "[1] a note", "[[1] a note]");
    check_texts(t, "text", "{\"text\":\"a\"}", "[a]");
    check_texts(t, "text", "{\"text\":\"a\"}\n{\"text\":\"b\"}", "[a][b]");
    check_texts(t, "text", "{\"text\":\"a\"}\r\n\r\n{\"text\":\"b\"}\r\n", "[a][b]");
    check_texts(t, "text", "\n\n  {\"text\":\"a\"}\n", "[a]");
    check_texts(t, "text", "{\n \"text\": \"a\"\n}\n", "[a]");
    check_texts(t, "text", "{\n \"text\": \"a\"\n} {\"text\":\"b\"}{\"text\":\"c\"}", "[a][b][c]");
    check_texts(t, "text", "{\"text\":\"a\"}{\"text\":\"b\"}", "[a][b]");
    check_texts(t, "text", "[{\"text\":\"a ] } \\\" \\\\\"}\n , {\"text\":\"b\"} ]\n",
            "[a ] } \" \\][b]");
    check_texts(t, "text", "{\"Data\":[{\"text\":\"a\"},{\"text\":\"b\"}]}", "[a][b]");
    check_texts(t, "text",
            "{\"a\":\"\\\"Data\\\":[\",\"b\" : 1.5, \"c\":null , \"Data\" : [ {\"text\":\"a\"} ] "
            ", \"d\":[]}",
            "[a]");
    check_texts(t, "text", "{\"Data\":\"no array\",\"text\":\"a\"}", "[a]");
    check_texts(t, "text", "{\"data\":[{\"text\":\"no\"}],\"text\":\"a\"}", "[a]");

    // an empty data set is an error with counts of records
    check_error(t, "text", "", "no document");
    check_error(t, "codeparrot", "\n\n", "no document");
    check_error(t, "text", " [ ] ", "1 files, 0 records");
    check_error(t, "codeparrot", "{\"text\":1}\n",
            "no field 'content'; --template '{FIELD}' names another");
    check_error(t, "math-hard", "{\"level\":\"Level 4\"}\n", "1 excluded by level=Level 5");

    // errors in the structure
    check_error(t, "text", "[{\"text\":\"a\"}", "ends inside the array");
    check_error(t, "text", "[{\"text\":\"a\"},", "ends inside the array");
    check_error(t, "text", "[{\"text\":\"a\"", "ends inside the record");
    check_error(t, "text", "[{\"text\":\"a\"},]", "expected a record, found ']'");
    check_error(t, "text", "[{\"text\":\"a\"},,{}]", "expected a record, found ','");
    check_error(t, "text", "[{\"text\":\"a\"} {\"text\":\"b\"}]", "expected ',' or ']'");
    check_error(t, "text", "[\n{\"text\":\"a\"}\n]\n[]", "line 4: text after the end of the array");
    check_error(t, "text", "{\"Data\":[{\"text\":\"a\"}]", "around the array Data");
    check_error(t, "text", "{\"Data\":[{\"text\":\"a\"}]}}", "around the array Data");
    check_error(t, "text", "{\"a\":nul,\"Data\":[{\"text\":\"a\"}]}", "around the array Data");
    check_error(t, "text", "{\n\"text\":\"a\"", "ends inside the record of line 1");

    // for foreign formats, the error says what to do
    check_error(t, "text", "PAR1\x15", "lrnn-convert data");
    check_error(t, "text", "ARROW1", "lrnn-convert data");
    check_error(t, "text", "\xff\xff\xff\xff", "lrnn-convert data");
    check_error(t, "text", "BZh91AY&SY", "bzip2 -dc");
    check_error(t, "text", "PK\3\4", "ZIP");
    check_error(t, "text", "\xff\xfeh", "iconv");
}

static void test_malformed(struct test * t) {
    // each is counted and named with its line; the others are read
    static const char    content[] = "{\"text\":\"a\"}\n"
                                     "not JSON\n"
                                     "{\"text\":\"b\"\n"
                                     "{\"text\":1}\n"
                                     "{\"other\":\"x\"}\n"
                                     "{\"text\":\"\xff\"}\n"
                                     "\n"
                                     "[{\"text\":\"x\"}]\n"
                                     "{\"text\":\"x\",}\n"
                                     "{\"text\":\"\\ud800|\\uD83D\\uDE00\"}\n"
                                     "{\"text\":null}";
    const struct reading r = read_one("text", write_text("malformed", content));
    test_check(t, !r.failed && strcmp(r.texts, "[a][\xef\xbf\xbd|\xf0\x9f\x98\x80]") == 0,
            "texts %s %s", r.texts, r.err.text);
    test_check(t,
            r.counts.records == 10 && r.counts.documents == 2 && r.counts.malformed == 8 &&
                    r.counts.lone_surrogates == 1,
            "%lld records, %lld malformed, %lld lone surrogates", (long long) r.counts.records,
            (long long) r.counts.malformed, (long long) r.counts.lone_surrogates);
    static const char * const said[] = {
        "malformed:2: not JSON at byte 0 of the record: expected a value\n",
        "malformed:3: not JSON at byte 11 of the record: expected ',' or '}'\n",
        "malformed:4: field 'text' is a number, expected a string\n",
        "malformed:5: no field 'text'; --template '{FIELD}' names another\n",
        "malformed:6: not JSON at byte 9 of the record: not UTF-8\n",
        "malformed:8: the record is an array, expected an object\n",
        "malformed:9: not JSON at byte 12 of the record: expected a key in quotes\n",
        "malformed:11: field 'text' is null, expected a string\n",
    };
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); ++i) {
        test_check(t, strstr(r.complaints, said[i]) != NULL, "%s is missing in: %s", said[i],
                r.complaints);
    }
    // also in an array, as long as brackets and quotes match
    check_texts(t, "text",
            "[{\"text\":\"a\"}, 1, \"x\", {\"text\":tru}, {\"text\":\"\\q\"}, "
            "[{\"text\":\"no\"}], null, {\"text\":\"b\"}]",
            "[a][b]");

    // more than the allowed fraction is an error at once: 11 of 1,100 is 1 %, 11 of 1,099 is more
    for (int n_bad = 11; n_bad <= 12; ++n_bad) {
        const char * path = path_of("share");
        FILE *       file = fopen(path, "wb");
        for (int i = 0; i < 1100; ++i) {
            fputs(i < 1100 - n_bad ? "{\"text\":\"a\"}\n" : "{}\n", file);
        }
        fclose(file);
        const struct reading share = read_one("text", path);
        test_check(
                t, share.failed == (n_bad > 11), "%d of 1100 malformed: %s", n_bad, share.err.text);
        const bool says = strstr(share.err.text, "11 of 1099 records") != NULL &&
                          strstr(share.err.text, "share:1089: no field 'text'") != NULL;
        test_check(t, says == (n_bad > 11), "%s", share.err.text);
        test_check(t, share.counts.malformed == 11, "%lld malformed",
                (long long) share.counts.malformed);
        const struct reading more = read_with(
                &(struct dataset_params) { .paths = &path, .n_paths = 1, .max_bad_share = 0.02 });
        test_check(t, !more.failed, "%d of 1100 malformed, limit 0.02: %s", n_bad, more.err.text);
    }

    // text that is not UTF-8
    check_error(t, "text", "good\xc3(bad", "not UTF-8 at byte 4");
}

// A record beyond the size limit is malformed; the following records are read.
static void test_long_records(struct test * t) {
    static char content[400000];
    for (int form = 0; form < 4; ++form) {
        for (size_t n = 99980; n <= 300000; n += n < 100020 ? 1 : 100000) {
            static const char * const begin[] = { "", "[", "{\"Data\":[", "\n" };
            static const char * const comma[] = { "\n", ",", ",", " " };
            static const char * const end[] = { "", "]", "]}", "" };
            char *                    p = content;
            p += sprintf(p, "%s{%s\"text\":\"a\"}%s{\"text\":\"", begin[form],
                    form == 3 ? "\n" : "", comma[form]);
            memset(p, 'x', n - 11);
            p += n - 11; // the record has n bytes
            sprintf(p, "\"}%s{\"text\":\"b\"}%s", comma[form], end[form]);
            const char *         path = write_text("long", content);
            const struct reading r = read_with(&(struct dataset_params) {
                    .paths = &path, .n_paths = 1, .max_record = 100000 });
            const bool           fits = n <= 100000;
            test_check(t,
                    !r.failed && r.counts.malformed == !fits && r.counts.documents == 2 + fits,
                    "form %d, a record of %zu bytes: %s %lld malformed", form, n, r.err.text,
                    (long long) r.counts.malformed);
            test_check(t,
                    fits || strstr(r.complaints, form == 0 ? "long:2: longer than 100000"
                                                           : "longer than 100000") != NULL,
                    "%s", r.complaints);
        }
    }
    memset(content, 'x', 100001);
    content[100001] = '\0';
    const char *         path = write_text("long", content);
    const struct reading r = read_with(
            &(struct dataset_params) { .paths = &path, .n_paths = 1, .max_record = 100000 });
    test_check(t, r.failed && strstr(r.err.text, "longer than 100000") != NULL,
            "a text of 100001 bytes: %s", r.err.text);
}

//
// Presets, templates, filters
//

static void check_template(struct test * t, const char * preset, const char * template,
        const char * where, const char * content, const char * texts) {
    const char *                path = write_text("template", content);
    const struct dataset_params p = {
        .paths = &path, .n_paths = 1, .preset = preset, .template = template, .where = where
    };
    const struct reading r = read_with(&p);
    test_check(t,
            strcmp(r.failed ? r.err.text : r.texts, texts) == 0 ||
                    (r.failed && strstr(r.err.text, texts) != NULL),
            "%s, %s: %s%s, expected %s", template, where, r.texts, r.err.text, texts);
}

static void test_templates(struct test * t) {
    static const char abc[] = "{\"a\":\"1\",\"b\":{\"c\":\"2\",\"d\":3},\"e\":true}\n"
                              "{\"a\":\"4\",\"b\":{\"c\":\"5\"},\"e\":false}";
    check_template(t, NULL, "{a}-{b.c}", NULL, abc, "[1-2][4-5]");
    check_template(t, NULL, "{{{a}}}{{}}{a}", NULL, abc, "[{1}{}1][{4}{}4]");
    check_template(t, NULL, "x\ny{a}", NULL, abc, "[x\ny1][x\ny4]");
    check_template(t, NULL, "{a}", "a=4", abc, "[4]");
    check_template(t, NULL, "{a}", "a!=4", abc, "[1]");
    check_template(t, NULL, "{a}", "e=true", abc, "[1]");
    check_template(t, NULL, "{a}", "b.d=3", abc, "[1]");
    check_template(t, NULL, "{a}", "b.d!=3", abc, "[4]");
    check_template(t, NULL, "{a}", "b.c=5", abc, "[4]");
    check_template(t, NULL, "{a}", "x=", abc, "no document");
    check_template(t, NULL, "{a", NULL, abc, "unmatched '{'");
    check_template(t, NULL, "a}", NULL, abc, "unmatched '}'");
    check_template(t, NULL, "{}", NULL, abc, "is not a field name");
    check_template(t, NULL, "{a..b}", NULL, abc, "is not a field name");
    check_template(t, NULL, "abc", NULL, abc, "no field in braces");
    check_template(t, NULL, "{a}", "a", abc, "expected field=value");
    check_template(t, NULL, "{a}", "=a", abc, "expected field=value");
    check_template(t, "nothing", NULL, NULL, abc,
            "expected one of codeparrot, math-hard, triviaqa, slimpajama, openthoughts, gsm8k, "
            "text");

    // presets, on records in the form in which they are distributed
    check_template(t, "codeparrot", NULL, NULL,
            "{\"repo_name\":\"a/b\",\"path\":\"c.py\",\"copies\":\"1\",\"size\":\"9\","
            "\"content\":\"import os\",\"license\":\"mit\","
            "\"hash\":-1,\"line_mean\":9.0,\"autogenerated\":false}",
            "[import os]");
    check_template(t, "math-hard", NULL, NULL,
            "{\"problem\":\"P\",\"level\":\"Level 5\",\"type\":\"Algebra\",\"solution\":\"S\"}\n"
            "{\"problem\":\"Q\",\"level\":\"Level 4\","
            "\"type\":\"Algebra\",\"solution\":\"S\"}",
            "[Problem: P, Solution: S]");
    check_template(t, "math-hard", NULL, "",
            "{\"problem\":\"Q\",\"level\":\"Level 4\",\"solution\":\"S\"}",
            "[Problem: Q, Solution: S]");
    check_template(t, "gsm8k", NULL, NULL, "{\"question\":\"Q\",\"answer\":\"A #### 1\"}",
            "[Problem: Q, Solution: A #### 1]");
    check_template(t, "openthoughts", NULL, NULL,
            "{\"problem\":\"P\",\"solution\":\"S\",\"correct\":true}", "[Problem: P, Solution: S]");
    check_template(t, "slimpajama", NULL, NULL,
            "{\"text\":\"T\",\"meta\":{\"redpajama_set_name\":\"RedPajamaC4\"}}", "[T]");
    check_template(t, "triviaqa", NULL, NULL, "{\"query\":\"Q\",\"answer\":\"A\"}",
            "[Question: Q, Answer: A]");
    check_template(t, "triviaqa", NULL, NULL,
            "{\"question\":\"Q\",\"answer\":{\"value\":\"V\",\"aliases\":[\"A\"]}}",
            "[Question: Q, Answer: V]");
    check_template(t, "triviaqa", NULL, NULL,
            "{\n \"Data\": [\n {\"Answer\":{\"Aliases\":[],\"Value\":\"V\"},\"Question\":\"Q\"} "
            "],\n \"Domain\": \"Web\" }",
            "[Question: Q, Answer: V]");

    // the templates used
    const char *   path = write_text("used",
              "{\"query\":\"Q\",\"answer\":\"A\"}\n"
                "{\"Question\":\"Q\",\"Answer\":{\"Value\":\"V\"}}\n{\"answer\":\"A\"}");
    struct reading r = read_one("triviaqa", path);
    test_check(t,
            strcmp(r.template,
                    "Question: {query}, Answer: {answer} | Question: {Question}, Answer: "
                    "{Answer.Value}") == 0,
            "used: %s", r.template);
    test_check(t,
            strstr(r.complaints,
                    "used:3: no field 'query', and none of the other templates fits\n") != NULL,
            "%s", r.complaints);
    r = read_one("text", write_text("used", "x"));
    test_check(t, strcmp(r.template, "(whole file)") == 0, "used: %s", r.template);
    r = read_with(&(struct dataset_params) { .paths = &path, .n_paths = 1, .text_field = "query" });
    test_check(t, r.failed && strstr(r.err.text, "malformed") != NULL,
            "plain text, although a field is required: %s", r.err.text);
    path = write_text("used", "{\"a\":{\"b\":\"x\"}}");
    r = read_with(&(struct dataset_params) { .paths = &path, .n_paths = 1, .text_field = "a.b" });
    test_check(t, strcmp(r.texts, "[x]") == 0 && strcmp(r.template, "{a.b}") == 0,
            "text_field: %s %s %s", r.texts, r.template, r.err.text);
    r = read_with(&(struct dataset_params) {
            .paths = &path, .n_paths = 1, .text_field = "a.b", .template = "{a.b}" });
    test_check(t, r.failed, "a template and a text field");
    r = read_with(&(struct dataset_params) { .paths = &path, .n_paths = 0 });
    test_check(t, r.failed, "no paths");
}

//
// Folders, parts, shuffling
//

static void test_folders(struct test * t) {
    mkdir(path_of("set"), 0777);
    mkdir(path_of("set/b"), 0777);
    mkdir(path_of("set/.git"), 0777);
    mkdir(path_of("none"), 0777);
    write_text("set/a.json", "{\"problem\":\"1\",\"level\":\"Level 5\",\"solution\":\"s\"}");
    write_text("set/b/10.json", "{\n\"problem\":\"2\",\"level\":\"Level 5\",\"solution\":\"s\"}");
    write_text("set/b/9.json", "{\"problem\":\"3\",\"level\":\"Level 5\",\"solution\":\"s\"}");
    write_text("set/c.jsonl", "{\"problem\":\"4\",\"level\":\"Level 5\",\"solution\":\"s\"}\n"
                              "{\"problem\":\"5\",\"level\":\"Level 3\",\"solution\":\"s\"}\n");
    write_text("set/README.md", "# about\n");
    write_text("set/empty", "");
    write_text("set/.git/x", "{\"problem\":\"hidden\",\"level\":\"Level 5\",\"solution\":\"s\"}");
    const char *   path = path_of("set");
    struct reading r = read_with(&(struct dataset_params) {
            .paths = &path, .n_paths = 1, .preset = "math-hard", .template = "{problem}" });
    test_check(t, strcmp(r.texts, "[1][2][3][4]") == 0 && r.counts.filtered == 1, "folder: %s %s",
            r.texts, r.err.text);
    test_check(t,
            r.counts.files == 6 && r.counts.files_left_out == 1 && r.counts.malformed == 0 &&
                    strstr(r.complaints, "README.md: left out") != NULL,
            "folder: %lld files, %s", (long long) r.counts.files, r.complaints);
    test_check(t, r.counts.bytes_read == r.counts.bytes_total, "folder: %lld bytes of %lld",
            (long long) r.counts.bytes_read, (long long) r.counts.bytes_total);

    const char *                several[] = { path_of("set/c.jsonl"), path_of("set/b") };
    const struct dataset_params p = {
        .paths = several, .n_paths = 2, .preset = "math-hard", .template = "{problem}"
    };
    r = read_with(&p);
    test_check(t, strcmp(r.texts, "[4][2][3]") == 0, "files and folders in the order given: %s %s",
            r.texts, r.err.text);

    path = path_of("set/README.md");
    r = read_one("math-hard", path);
    test_check(t, r.failed && strstr(r.err.text, "1 malformed") != NULL,
            "a file given by name is not skipped: %s", r.err.text);
    path = path_of("none");
    r = read_one("text", path);
    test_check(t, r.failed && strstr(r.err.text, "the folder is empty") != NULL, "%s", r.err.text);
    r = read_one("text", path_of("missing"));
    test_check(
            t, r.failed && strstr(r.err.text, "missing: No such file") != NULL, "%s", r.err.text);
    if (symlink("..", path_of("set/b/loop")) == 0) {
        r = read_one("text", path_of("set"));
        test_check(t, r.failed && strstr(r.err.text, "loop of links") != NULL, "%s", r.err.text);
    }
}

static int compare_bytes(const void * a, const void * b) {
    return *(const char *) a - *(const char *) b;
}

static void test_parts(struct test * t) {
    const char *          path = write_text("parts",
                     "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{}\n{\"text\":\"c\"}\n{\"text\":\"d\"}\n"
                              "{\"text\":\"e\"}");
    struct dataset_params p = { .paths = &path, .n_paths = 1, .start_doc = 1, .max_docs = 2 };
    struct reading        r = read_with(&p);
    test_check(t,
            strcmp(r.texts, "[b][c]") == 0 && r.counts.skipped == 1 && r.counts.documents == 2,
            "parts: %s %s", r.texts, r.err.text);

    // the fingerprint covers the returned texts
    const struct reading same =
            read_one("text", write_text("parts-same", "[{\"text\":\"b\"},{\"text\":\"c\"}]"));
    test_check(t, strcmp(r.hex, same.hex) == 0, "parts: fingerprint");
    path = path_of("parts");
    p = (struct dataset_params) { .paths = &path, .n_paths = 1, .start_doc = 5 };
    r = read_with(&p);
    test_check(t, r.failed && strstr(r.err.text, "5 skipped") != NULL, "parts: %s", r.err.text);

    // shuffled: all documents, in an order given by the seed; all orders of five occur
    bool seen[3125] = { false };
    int  n_orders = 0;
    for (uint64_t seed = 0; seed < 1500; ++seed) {
        p = (struct dataset_params) {
            .paths = &path, .n_paths = 1, .shuffle = true, .shuffle_seed = seed
        };
        r = read_with(&p);
        char letters[6] = "";
        int  code = 0;
        for (int i = 0; i < 5; ++i) {
            letters[i] = r.texts[3 * i + 1];
            code = 5 * code + (letters[i] - 'a');
        }
        n_orders += code >= 0 && code < 3125 && !seen[code];
        if (code >= 0 && code < 3125) {
            seen[code] = true;
        }
        qsort(letters, 5, 1, compare_bytes);
        test_check(t,
                strcmp(letters, "abcde") == 0 && strlen(r.texts) == 15 && r.counts.malformed == 1,
                "shuffled: %s %s", r.texts, r.err.text);
        if (seed == 7) {
            test_check(t, strcmp(r.hex, read_with(&p).hex) == 0,
                    "shuffled: the same seed gives another order");
            p.start_doc = 1;
            p.max_docs = 2;
            const struct reading part = read_with(&p);
            test_check(t, strlen(part.texts) == 6 && strncmp(part.texts, r.texts + 3, 6) == 0,
                    "a part of the shuffled documents: %s of %s", part.texts, r.texts);
        }
    }
    test_check(t, n_orders == 120, "shuffled: %d of 120 orders", n_orders);
    p = (struct dataset_params) {
        .paths = &path, .n_paths = 1, .shuffle = true, .max_shuffle_bytes = 100
    };
    r = read_with(&p);
    test_check(t, r.failed && strstr(r.err.text, "the limit of 100 bytes") != NULL, "shuffled: %s",
            r.err.text);
}

//
// Seeds of the fuzz target
//

static int write_seeds(const char * directory) {
    static const char * const texts[] = {
        "{\"text\":\"a\\u00e9\\ud83d\\ude00\\ud800\"}\n\n{\"text\":1}\n[1]\n",
        "[{\"text\":\"a\"}, 1, \"x\", {\"text\":\"b\"}]",
        "{\"v\":1,\"Data\":[{\"text\":\"a\"}],\"w\":{}}",
        "{\n\"text\":\"a\"} {\"text\":\"b\"}",
        "plain text \xc3\xa9",
        "{\"query\":\"q\",\"answer\":\"a\"}\n{\"question\":\"q\",\"answer\":{\"value\":\"v\"}}",
        "{\"problem\":\"p\",\"solution\":\"s\",\"level\":\"Level 5\",\"type\":\"t\"}",
        "\xef\xbb\xbf{\"content\":\"x\"}\r\n",
    };
    char path[4096];
    int  n = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) + N_CONTAINERS; ++i) {
        const size_t n_texts = sizeof(texts) / sizeof(texts[0]);
        uint8_t      data[16384];
        size_t       size = 0;
        // the first byte selects the preset and the limits
        data[size++] = (uint8_t) (i < n_texts ? i : 3);
        if (i < n_texts) {
            memcpy(data + size, texts[i], strlen(texts[i]));
            size += strlen(texts[i]);
        } else {
            size_t    file_size;
            uint8_t * file = test_read_file(data_path(CONTAINERS[i - n_texts]), &file_size);
            memcpy(data + size, file, file_size);
            size += file_size;
            free(file);
        }
        snprintf(path, sizeof(path), "%s/%d", directory, n++);
        test_write_file(path, data, size);
    }
    printf("%d seeds\n", n);
    return 0;
}

int main(int argc, char ** argv) {
    struct test t = { 0 };
    if (argc > 2 && strcmp(argv[1], "same") == 0) {
        for (int i = 2; i < argc; ++i) {
            check_records(&t, argv[i], true);
        }
        return test_end(&t, "test-dataset same");
    }
    if (argc > 1) {
        return write_seeds(argv[1]);
    }
    const char * tmp = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/lrnn-dataset-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    test_containers(&t);
    test_stdin(&t);
    test_memory(&t);
#ifdef LRNN_ZLIB
    test_damage(&t, "gzip", 2);
#endif
#ifdef LRNN_ZSTD
    test_damage(&t, "zstd", 4);
#endif
    test_forms(&t);
    test_malformed(&t);
    test_long_records(&t);
    test_templates(&t);
    test_folders(&t);
    test_parts(&t);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return test_end(&t, "test-dataset");
}
