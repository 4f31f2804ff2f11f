// Tests of score files: what is written is read back; a file torn at any byte is continued to the
// same bytes; any damage is detected; only complete shards give the unsplit run.

#include "lrnn.h"
#include "base/hash.h"
#include "eval/scores/score-file.h"
#include "kit/check.h"
#include "kit/files.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { W = 9, N = W - 1, N_WINDOWS = 11, GROUP = 2, N_SPANS = 2, N_NORMS = 3 };

static struct test t;
static char        folder[256];
static bool        with_norms; // with norms of states

// The size of a record in bytes.
static size_t record_size(void) {
    return 16 + 24 + N_SPANS * 32 + N * 7 + (with_norms ? 8 + N_NORMS * 16 : 0);
}

static struct score_meta sample_meta(void) {
    return (struct score_meta) {
        .tool = "lrnn-perplexity 0.1.0",
        .model = "delta",
        .model_hash = "ab",
        .model_family = "delta_net",
        .eigenvalues = "[-1,1]",
        .quantization = "f32",
        .parameters = INT64_C(340000000000),
        .trained_length = 2048,
        .n_vocab = 32000,
        .tokenizer_hash = "cd",
        .dataset = "text",
        .data_fingerprint = "ef",
        .template = "Problem: {p}\nSolution: \\frac\r{s}",
        .files = "a.jsonl\tb c.jsonl",
        .sources = "web",
        .records = 3,
        .documents = 2,
        .filtered = 1,
        .malformed = 0,
        .lone_surrogates = 4,
        .complaints = "",
        .protocol = "custom",
        .mode = "packed",
        .bos = "doc",
        .eos = "none",
        .reset = "window",
        .window = W,
        .same_targets = "",
        .probe = with_norms ? "state-norm" : "",
        .n_batch = 64,
        .group = GROUP,
        .n_windows = N_WINDOWS,
        .shard = 1,
        .n_shards = 1,
    };
}

// Window i, by a formula, with some NaN and infinity.
struct sample {
    float              nll[N];
    uint16_t           bytes[N];
    uint8_t            flags[N];
    struct window_span spans[N_SPANS];
    struct score_norm  norms[N_NORMS];
};

static struct score_window sample_window(struct sample * s, int64_t index) {
    for (int i = 0; i < N; ++i) {
        s->nll[i] = i == 5 && index == 3   ? NAN
                    : i == 6 && index == 3 ? INFINITY
                                           : (float) (index + 1) / (float) (i + 1);
        s->bytes[i] = (uint16_t) (i * 7919 + (int) index);
        s->flags[i] = (uint8_t) ((i + (int) index) % 4);
    }
    s->spans[0] = (struct window_span) {
        .first = 0, .document = index, .byte = 17 * index, .source = 0, .file = 0
    };
    s->spans[1] = (struct window_span) {
        .first = 4, .document = index + 1, .byte = 0, .source = -1, .file = 1
    };
    for (int i = 0; i < N_NORMS; ++i) {
        s->norms[i] = (struct score_norm) { .at = 2 << i,
            .layer = i,
            .norm = i == 2 && index == 3 ? INFINITY : 0.5f * (float) (index + i) };
    }
    return (struct score_window) {
        .index = index,
        .n_targets = N,
        .nll = s->nll,
        .bytes = s->bytes,
        .flags = s->flags,
        .spans = s->spans,
        .n_spans = N_SPANS,
        .norms = s->norms,
        .n_norms = with_norms ? N_NORMS : 0,
    };
}

static bool same_window(const struct score_window * a, const struct score_window * b) {
    return a->index == b->index && a->n_targets == b->n_targets && a->n_spans == b->n_spans &&
           a->n_norms == b->n_norms &&
           memcmp(a->norms, b->norms, (size_t) a->n_norms * sizeof(*a->norms)) == 0 &&
           memcmp(a->nll, b->nll, (size_t) a->n_targets * sizeof(*a->nll)) == 0 &&
           memcmp(a->bytes, b->bytes, (size_t) a->n_targets * sizeof(*a->bytes)) == 0 &&
           memcmp(a->flags, b->flags, (size_t) a->n_targets) == 0 &&
           memcmp(a->spans, b->spans, (size_t) a->n_spans * sizeof(*a->spans)) == 0;
}

static const char * in_folder(char * path, const char * name) {
    snprintf(path, 512, "%s/%s", folder, name);
    return path;
}

// Appends the missing windows and closes the file.
static void write_rest(struct score_writer * w, const struct score_meta * meta, int64_t n_done) {
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    int64_t           first, end;
    score_shard_range(meta, &first, &end);
    bool ok = w != NULL;
    for (int64_t i = first + n_done; i < end && ok; ++i) {
        struct sample             s;
        const struct score_window window = sample_window(&s, i);
        ok = score_writer_append(w, &window, &err) && (i != 3 || score_writer_sync(w, &err));
    }
    ok = score_writer_close(w, &err) && ok;
    test_check(&t, ok, "windows were not written: %s", err.text);
}

static void write_file(const char * path, const struct score_meta * meta) {
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    struct score_writer * w = score_writer_open(path, meta, NULL, &err);
    test_check(&t, w != NULL, "%s", err.text);
    write_rest(w, meta, 0);
}

static void test_roundtrip(const char * path) {
    const struct score_meta meta = sample_meta();
    struct scores           scores;
    struct lrnn_error       err = { LRNN_ERROR_NONE, "" };

    write_file(path, &meta);
    const char * paths[] = { path };
    if (!test_check(&t, scores_read(paths, 1, false, &scores, &err), "%s", err.text)) {
        return;
    }
    const struct score_meta * m = &scores.meta;
    test_check(&t,
            strcmp(m->template, meta.template) == 0 && strcmp(m->files, meta.files) == 0 &&
                    strcmp(m->tool, meta.tool) == 0,
            "texts of the header");
    test_check(&t,
            m->parameters == meta.parameters && m->lone_surrogates == 4 && !m->skip_special &&
                    m->n_windows == N_WINDOWS,
            "numbers of the header");
    test_check(&t, scores.n_windows == N_WINDOWS, "%" PRId64 " windows", scores.n_windows);
    for (int64_t i = 0; i < scores.n_windows; ++i) {
        struct sample             s;
        const struct score_window expected = sample_window(&s, i);
        test_check(&t, same_window(&scores.windows[i], &expected),
                "window %" PRId64 " differs from what was written", i);
    }
    scores_free(&scores);
}

// Reads the layout by hand: other programs rely on it.
static void test_layout(const char * path) {
    size_t    size;
    uint8_t * data = test_read_file(path, &size);
    uint32_t  version, n_text, magic, n_body;
    memcpy(&version, data + 8, 4);
    memcpy(&n_text, data + 12, 4);
    test_check(&t, memcmp(data, "LRNN-NLL", 8) == 0 && version == 1 && n_text % 8 == 0, "prefix");
    test_check(&t, memcmp(data + 16, "tool lrnn-perplexity 0.1.0\nmodel delta\n", 38) == 0,
            "first lines");
    data[size] = 0;
    test_check(&t,
            strstr((char *) data + 16, "\ntemplate Problem: {p}\\nSolution: \\\\frac\\r{s}\n") !=
                    NULL,
            "escapes");
    test_check(&t,
            strstr((char *) data + 16, "\nwindow 9\n") != NULL &&
                    strstr((char *) data + 16, "\nshard 1\n") != NULL,
            "numbers");
    test_check(&t, strstr((char *) data + 16, "\nprobe ") == NULL,
            "a run without a probe has a line for it");
    const uint8_t * record = data + 16 + n_text + 32;
    memcpy(&magic, record, 4);
    memcpy(&n_body, record + 4, 4);
    test_check(&t, memcmp(record, "NLL1", 4) == 0 && n_body == 24 + 2 * 32 + N * 7,
            "record of %" PRIu32 " bytes", n_body);
    float nll;
    memcpy(&nll, record + 8 + 24 + 2 * 32 + 4 * 3, 4);
    test_check(&t, nll == 1.0f / 4.0f, "nll of the first window, fourth target: %f", (double) nll);
    uint64_t       stored;
    const uint64_t sum = hash_add(HASH_START, record + 8, n_body);
    memcpy(&stored, record + 8 + n_body, 8);
    test_check(&t, sum == stored, "checksum");
    test_check(
            &t, size == 16 + n_text + 32 + N_WINDOWS * (16 + (size_t) n_body), "%zu bytes", size);
    free(data);
}

// A file truncated anywhere (in the header, in a record, between records) is continued to the same
// bytes.
static void test_torn(const char * whole) {
    const struct score_meta meta = sample_meta();
    char                    path[512];
    size_t                  size;
    uint8_t *               data = test_read_file(whole, &size);
    const size_t            n_record = record_size();
    const size_t            n_header = size - N_WINDOWS * n_record;
    test_check(&t, n_record % 61 != 0, "truncations hit the same bytes of each record");
    in_folder(path, "torn.nll");
    for (size_t cut = 0; cut <= size; cut += cut < n_header ? 203 : 61) {
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        int64_t           n_done = -1;
        size_t            n;
        test_write_file(path, data, cut);
        struct score_writer * w = score_writer_open(path, &meta, &n_done, &err);
        if (!test_check(&t, w != NULL, "truncated at byte %zu: %s", cut, err.text)) {
            continue;
        }
        write_rest(w, &meta, n_done);
        uint8_t * again = test_read_file(path, &n);
        test_check(&t, n == size && memcmp(again, data, size) == 0,
                "truncated at byte %zu and continued, the file has other bytes", cut);
        free(again);
    }
    // the last block was allocated but never written
    memset(data + size - n_record, 0, n_record);
    test_write_file(path, data, size);
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    int64_t               n_done = -1;
    struct score_writer * w = score_writer_open(path, &meta, &n_done, &err);
    test_check(&t, w != NULL && n_done == N_WINDOWS - 1, "zeros at the end: %s", err.text);
    score_writer_close(w, &err);
    free(data);
}

// A change of any byte is detected: as damage, or as an unfinished run if it hits the last record.
static void test_damage(const char * whole) {
    char         path[512];
    size_t       size;
    uint8_t *    data = test_read_file(whole, &size);
    const char * paths[] = { in_folder(path, "damaged.nll") };
    test_write_file(path, data, size);
    FILE * f =
            fopen(path, "r+b"); // changes bytes in place, which is faster than rewriting the file
    for (size_t at = 0; at < size && f != NULL; ++at) {
        struct scores     scores;
        struct lrnn_error err = { LRNN_ERROR_NONE, "" };
        const uint8_t     other = data[at] ^ (uint8_t) (1 + at % 255);
        const off_t       offset = (off_t) at;
        if (pwrite(fileno(f), &other, 1, offset) != 1) {
            break;
        }
        const bool read = scores_read(paths, 1, false, &scores, &err);
        test_check(&t, !read && strstr(err.text, "damaged.nll") != NULL, "byte %zu was changed: %s",
                at, read ? "accepted" : err.text);
        if (read) {
            scores_free(&scores);
        }
        if (pwrite(fileno(f), &data[at], 1, offset) != 1) {
            break;
        }
    }
    struct scores     scores;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    if (test_check(&t, scores_read(paths, 1, false, &scores, &err), "not all bytes were tried: %s",
                err.text)) {
        scores_free(&scores);
    }
    fclose(f);
    free(data);
}

// Changes bytes of record `r` and corrects its checksum, so that the values themselves are checked.
static void refuse_field(const char * whole, int r, size_t offset, const void * value,
        size_t n_value, const char * word) {
    char      path[512];
    size_t    size;
    uint8_t * data = test_read_file(whole, &size);
    uint32_t  n_text, n_body;
    memcpy(&n_text, data + 12, 4);
    uint8_t * record = data + 16 + n_text + 32;
    memcpy(&n_body, record + 4, 4);
    record += (size_t) r * (16 + n_body);
    memcpy(record + 8 + offset, value, n_value);
    const uint64_t sum = hash_add(HASH_START, record + 8, n_body);
    memcpy(record + 8 + n_body, &sum, 8);
    const char *      paths[] = { in_folder(path, "wrong.nll") };
    struct scores     scores;
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    test_write_file(path, data, size);
    const bool read = scores_read(paths, 1, true, &scores, &err);
    test_check(&t, !read && strstr(err.text, word) != NULL, "%s: %s", word,
            read ? "accepted" : err.text);
    if (read) {
        scores_free(&scores);
    }
    free(data);
}

static void test_fields(const char * whole) {
    const int64_t minus = -1, huge = INT64_MAX, many = INT64_C(1) << 33, last = N_WINDOWS,
                  again = 1, none = 0;
    const int32_t file = 2, source = 1;
    const uint8_t flags = 4;
    refuse_field(whole, 2, 0, &last, 8, "its window is 11; the run has 11 windows");
    refuse_field(whole, 2, 0, &minus, 8, "its window is -1");
    refuse_field(whole, 2, 0, &again, 8, "found window 1; expected 2");
    refuse_field(whole, 2, 8, &huge, 8, "targets");
    refuse_field(whole, 2, 8, &many, 8, "targets");
    refuse_field(whole, 2, 8, &none, 8, "targets");
    refuse_field(whole, 2, 8, &minus, 8, "targets");
    refuse_field(whole, 2, 16, &huge, 8, "spans");
    refuse_field(whole, 2, 16, &none, 8, "spans");
    refuse_field(whole, 2, 24, &again, 8, "span 0");     // begins at token 1
    refuse_field(whole, 2, 24 + 32, &none, 8, "span 1"); // does not ascend
    refuse_field(whole, 2, 24 + 32, &huge, 8, "span 1"); // beyond the window
    refuse_field(whole, 2, 24 + 8, &minus, 8, "span 0"); // document
    refuse_field(whole, 2, 24 + 28, &file, 4, "file 2");
    refuse_field(whole, 2, 24 + 24, &source, 4, "source 1");
    refuse_field(whole, 2, 24 + 2 * 32 + 6 * N + 3, &flags, 1, "target 4 of window 2 has flags 4");
}

static void refuse_resume(const char * whole, struct score_meta meta, const char * word) {
    struct lrnn_error     err = { LRNN_ERROR_NONE, "" };
    int64_t               n_done;
    struct score_writer * w = score_writer_open(whole, &meta, &n_done, &err);
    test_check(&t, w == NULL && strstr(err.text, word) != NULL, "resuming with another %s: %s",
            word, w != NULL ? "accepted" : err.text);
    score_writer_close(w, &err);
}

// The same for norms, which follow their number and the spans.
static void test_norm_fields(const char * whole) {
    const size_t  at = 24 + 8 + N_SPANS * 32;
    const int64_t minus = -1, huge = INT64_MAX, fewer = N_NORMS - 1, two = 2, beyond = W + 1;
    const int32_t layer = -1;
    const float   norm = -1.0f;
    refuse_field(whole, 2, 24, &minus, 8, "norms");
    refuse_field(whole, 2, 24, &huge, 8, "norms");
    refuse_field(whole, 2, 24, &fewer, 8, "norms");
    refuse_field(whole, 2, at + 16, &two, 8, "norm 1");    // does not ascend
    refuse_field(whole, 2, at + 32, &beyond, 8, "norm 2"); // beyond the window
    refuse_field(whole, 2, at + 8, &layer, 4, "of layer -1");
    refuse_field(whole, 2, at + 12, &norm, 4, "norm 0");

    struct score_meta meta = sample_meta();
    meta.probe = "";
    refuse_resume(whole, meta, "probe is 'state-norm', here it is ''");
    meta.probe = "something";
    char              path[512];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    const char *      paths[] = { in_folder(path, "wrong.nll") };
    struct scores     scores;
    write_file(path, &meta);
    test_check(&t,
            !scores_read(paths, 1, false, &scores, &err) &&
                    strstr(err.text, "expected state-norm") != NULL,
            "probe: %s", err.text);
}

static void test_other_run(const char * whole) {
    struct score_meta meta;
    meta = sample_meta();
    meta.n_batch = 32;
    refuse_resume(whole, meta, "n_batch is '64', here it is '32'");
    meta = sample_meta();
    meta.model_hash = "ac";
    refuse_resume(whole, meta, "model_hash is 'ab', here it is 'ac'");
    meta = sample_meta();
    meta.sources = "web\tx";
    refuse_resume(whole, meta, "sources");
    meta = sample_meta();
    meta.shard = meta.n_shards = 2;
    refuse_resume(whole, meta, "n_shards");

    size_t      before, after;
    struct stat st;
    uint8_t *   data = test_read_file(whole, &before);
    after = stat(whole, &st) == 0 ? (size_t) st.st_size : 0;
    test_check(&t, before == after, "a refused file has changed");
    free(data);

    // not a score file
    char              path[512];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    struct scores     scores;
    test_write_file(
            in_folder(path, "text.nll"), "this is a text that was put there by mistake", 44);
    const char * paths[] = { path };
    test_check(&t,
            !scores_read(paths, 1, true, &scores, &err) &&
                    strstr(err.text, "not a score file") != NULL,
            "%s", err.text);
    refuse_resume(path, sample_meta(), "not a score file");
}

// Reads shards.
// - word: expected in the error message; NULL: the shards give the run
static void read_shards(
        const char * const * names, int n, bool partial, const char * word, int64_t n_windows) {
    char              path[16][512];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    const char *      paths[16];
    struct scores     scores;
    for (int i = 0; i < n; ++i) {
        paths[i] = in_folder(path[i], names[i]);
    }
    const bool read = scores_read(paths, n, partial, &scores, &err);
    if (word != NULL) {
        test_check(&t, !read && strstr(err.text, word) != NULL, "%s: %s", word,
                read ? "accepted" : err.text);
    } else if (test_check(&t, read, "%s", err.text)) {
        bool same = scores.n_windows == n_windows && scores.meta.n_shards == 1 &&
                    scores.meta.shard == 1;
        for (int64_t i = 0, last = -1; i < scores.n_windows && same; ++i) {
            struct sample             s;
            const struct score_window expected = sample_window(&s, scores.windows[i].index);
            same = same_window(&scores.windows[i], &expected) && scores.windows[i].index > last;
            last = scores.windows[i].index;
        }
        test_check(&t, same, "%d shards differ from the run: %" PRId64 " windows", n,
                scores.n_windows);
    }
    if (read) {
        scores_free(&scores);
    }
}

static void test_shards(void) {
    char              path[512];
    struct lrnn_error err = { LRNN_ERROR_NONE, "" };
    // six groups over four shards: 1, 2, 1, 2 groups
    static const int64_t ends[] = { 2, 6, 8, 11 };
    for (int64_t i = 1; i <= 4; ++i) {
        struct score_meta meta = sample_meta();
        char              name[32];
        int64_t           first, end;
        meta.shard = i;
        meta.n_shards = 4;
        score_shard_range(&meta, &first, &end);
        test_check(&t,
                first == (i > 1 ? ends[i - 2] : 0) && end == ends[i - 1] && first % GROUP == 0,
                "shard %" PRId64 ": %" PRId64 " to %" PRId64, i, first, end);
        snprintf(name, sizeof(name), "s%d.nll", (int) i);
        write_file(in_folder(path, name), &meta);
    }
    struct score_meta other = sample_meta();
    other.n_shards = 4;
    other.shard = 2;
    other.data_fingerprint = "ee";
    write_file(in_folder(path, "other.nll"), &other);
    struct score_meta half = sample_meta();
    half.n_shards = 4;
    half.shard = 2;
    struct score_writer *     w = score_writer_open(in_folder(path, "half.nll"), &half, NULL, &err);
    struct sample             s;
    const struct score_window window = sample_window(&s, 2);
    test_check(&t,
            w != NULL && score_writer_append(w, &window, &err) && score_writer_close(w, &err), "%s",
            err.text);

    read_shards((const char *[]) { "s3.nll", "s1.nll", "s4.nll", "s2.nll" }, 4, false, NULL, 11);
    read_shards(
            (const char *[]) { "s1.nll", "s2.nll", "s3.nll" }, 3, false, "shard 4 is missing", 0);
    read_shards(
            (const char *[]) { "s2.nll", "s3.nll", "s4.nll" }, 3, false, "shard 1 is missing", 0);
    read_shards(
            (const char *[]) { "s1.nll", "s2.nll", "s4.nll" }, 3, false, "shard 3 is missing", 0);
    read_shards((const char *[]) { "s1.nll", "s2.nll", "half.nll", "s3.nll", "s4.nll" }, 5, false,
            "both are shard 2 of 4", 0);
    read_shards((const char *[]) { "s1.nll", "s2.nll", "half.nll" }, 3, true, "overlap", 0);
    read_shards((const char *[]) { "s1.nll", "other.nll", "s3.nll", "s4.nll" }, 4, false,
            "data_fingerprint is 'ef'", 0);
    read_shards((const char *[]) { "s1.nll", "half.nll", "s3.nll", "s4.nll" }, 4, false,
            "half.nll is unfinished: it has 1 of 4", 0);
    read_shards((const char *[]) { "s1.nll", "half.nll", "s4.nll" }, 3, true, NULL, 2 + 1 + 3);
    read_shards((const char *[]) { "s1.nll", "whole.nll" }, 2, false, "n_shards", 0);
    read_shards((const char *[]) { "missing.nll" }, 1, false, "cannot be read", 0);

    // more shards than groups: some are empty
    int64_t n = 0;
    for (int64_t i = 1; i <= 9; ++i) {
        struct score_meta meta = sample_meta();
        int64_t           first, end;
        meta.shard = i;
        meta.n_shards = 9;
        score_shard_range(&meta, &first, &end);
        test_check(&t, first == n && end >= first,
                "shard %" PRId64 " of 9: %" PRId64 " to %" PRId64, i, first, end);
        n = end;
    }
    test_check(&t, n == N_WINDOWS, "nine shards have %" PRId64 " windows", n);
}

static void test_order(void) {
    const struct score_meta meta = sample_meta();
    char                    path[512];
    struct lrnn_error       err = { LRNN_ERROR_NONE, "" };
    struct score_writer *   w = score_writer_open(in_folder(path, "order.nll"), &meta, NULL, &err);
    struct sample           s;
    const struct score_window window = sample_window(&s, 1);
    test_check(&t,
            w != NULL && !score_writer_append(w, &window, &err) &&
                    strstr(err.text, "expected window 0") != NULL,
            "%s", err.text);

    // a second process cannot write to it
    const pid_t child = fork();
    if (child == 0) {
        int64_t               n_done;
        struct score_writer * second = score_writer_open(path, &meta, &n_done, &err);
        _exit(second == NULL && strstr(err.text, "another process") != NULL ? 0 : 1);
    }
    int status = -1;
    test_check(&t, waitpid(child, &status, 0) == child && status == 0,
            "two processes write to one file");
    score_writer_close(w, &err);
}

// Writes the files as seeds for fuzz-score-file.
static void write_seeds(const char * seeds) {
    static const char * const names[] = { "whole.nll", "half.nll", "s4.nll", "norms.nll" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        char      path[512], seed[1024];
        size_t    size;
        uint8_t * data = test_read_file(in_folder(path, names[i]), &size);
        snprintf(seed, sizeof(seed), "%s/%s", seeds, names[i]);
        test_write_file(seed, data, size);
        free(data);
    }
}

int main(int argc, char ** argv) {
    snprintf(folder, sizeof(folder), "%s/lrnn-score-file.XXXXXX",
            getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(folder) == NULL) {
        printf("FAILED: cannot create a folder: %s\n", strerror(errno));
        return 1;
    }
    char whole[512];
    in_folder(whole, "whole.nll");
    with_norms = true;
    test_roundtrip(whole);
    test_torn(whole);
    test_damage(whole);
    test_norm_fields(whole);
    test_shards();
    char                    norms[512];
    const struct score_meta meta = sample_meta();
    write_file(in_folder(norms, "norms.nll"), &meta);
    with_norms = false;
    test_roundtrip(whole);
    test_layout(whole);
    test_torn(whole);
    test_damage(whole);
    test_fields(whole);
    test_other_run(whole);
    test_shards();
    test_order();
    if (argc > 1) {
        write_seeds(argv[1]);
    }

    static const char * const made[] = { "whole.nll", "torn.nll", "damaged.nll", "wrong.nll",
        "text.nll", "s1.nll", "s2.nll", "s3.nll", "s4.nll", "other.nll", "half.nll", "order.nll",
        "norms.nll" };
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); ++i) {
        char path[512];
        unlink(in_folder(path, made[i]));
    }
    rmdir(folder);
    return test_end(&t, "score files");
}
