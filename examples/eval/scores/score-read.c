#include "eval/scores/score-file.h"

#include "base/error.h"
#include "base/hash.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

//
// Records
//

static const uint32_t RECORD_MAGIC = 0x314c4c4e; // "NLL1"

enum { RECORD_PREFIX = 8, BODY_PREFIX = 24, CHECKSUM = 8 };

_Static_assert(sizeof(struct window_span) == 32, "a span has no padding");
_Static_assert(sizeof(struct score_norm) == 16, "a norm has no padding");
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "score files are little-endian and are written without conversion"
#endif

bool score_has_norms(const struct score_meta * meta) {
    return meta->probe != NULL && *meta->probe != '\0';
}

// The size of a body in bytes, a multiple of 8.
// - n_norms: −1: the body has no norms
static size_t body_size(int64_t n_targets, int64_t n_spans, int64_t n_norms) {
    const size_t n =
            BODY_PREFIX + (size_t) n_spans * sizeof(struct window_span) +
            (size_t) n_targets * (sizeof(float) + sizeof(uint16_t) + 1) +
            (n_norms >= 0 ? sizeof(int64_t) + (size_t) n_norms * sizeof(struct score_norm) : 0);
    return (n + 7) / 8 * 8;
}

uint8_t * score_record_new(const struct score_window * window, bool has_norms, size_t * size) {
    const int64_t  n_norms = window->n_norms;
    const size_t   n_body = body_size(window->n_targets, window->n_spans, has_norms ? n_norms : -1);
    const size_t   n = (size_t) window->n_targets;
    const uint32_t n32 = (uint32_t) n_body;
    const int64_t  n_spans = window->n_spans;

    *size = RECORD_PREFIX + n_body + CHECKSUM;
    uint8_t * record = program_alloc(*size, 1);
    uint8_t * body = record + RECORD_PREFIX;
    memcpy(record, &RECORD_MAGIC, 4);
    memcpy(record + 4, &n32, 4);
    memcpy(body, &window->index, 8);
    memcpy(body + 8, &window->n_targets, 8);
    memcpy(body + 16, &n_spans, 8);
    uint8_t * p = body + BODY_PREFIX;
    if (has_norms) {
        memcpy(p, &n_norms, sizeof(n_norms));
        p += sizeof(n_norms);
    }
    memcpy(p, window->spans, (size_t) n_spans * sizeof(*window->spans));
    p += (size_t) n_spans * sizeof(*window->spans);
    if (has_norms && n_norms > 0) {
        memcpy(p, window->norms, (size_t) n_norms * sizeof(*window->norms));
        p += (size_t) n_norms * sizeof(*window->norms);
    }
    memcpy(p, window->nll, n * sizeof(*window->nll));
    p += n * sizeof(*window->nll);
    memcpy(p, window->bytes, n * sizeof(*window->bytes));
    p += n * sizeof(*window->bytes);
    memcpy(p, window->flags, n);

    const uint64_t sum = hash_add(HASH_START, body, n_body);
    memcpy(body + n_body, &sum, sizeof(sum));
    return record;
}

static int64_t count_names(const char * names) {
    int64_t n = *names != '\0';
    for (; *names != '\0'; ++names) {
        n += *names == '\t';
    }
    return n;
}

// Checks everything that readers of a window rely on.
static bool check_window(
        const struct score_window * w, const struct score_meta * meta, struct lrnn_error * err) {
    const bool fixed = strcmp(meta->mode, "document") != 0 && *meta->same_targets == '\0';
    if (w->index < 0 || w->index >= meta->n_windows) {
        return error_bad_file(err, "its window is %" PRId64 "; the run has %" PRId64 " windows",
                w->index, meta->n_windows);
    }
    if (fixed && w->n_targets != meta->window - 1) {
        return error_bad_file(err, "window %" PRId64 " has %" PRId64 " targets; expected %" PRId64,
                w->index, w->n_targets, meta->window - 1);
    }
    const int64_t n_files = count_names(meta->files);
    const int64_t n_sources = count_names(meta->sources);
    int64_t       before = -1;
    for (int32_t i = 0; i < w->n_spans; ++i) {
        const struct window_span * s = &w->spans[i];
        if (s->first <= before || (i == 0 && s->first != 0) || s->first > w->n_targets ||
                s->document < 0 || s->byte < 0 || s->file < 0 || s->file >= n_files ||
                s->source < -1 || s->source >= n_sources) {
            return error_bad_file(err,
                    "span %d of window %" PRId64 " (token %" PRId64 ", document %" PRId64
                    ", file %d, source %d) is out of order or out of range",
                    i, w->index, s->first, s->document, s->file, s->source);
        }
        before = s->first;
    }
    before = 0;
    for (int32_t i = 0; i < w->n_norms; ++i) {
        const struct score_norm * n = &w->norms[i];
        if (n->at <= before || n->at > w->n_targets + 1 || n->layer < 0 || n->norm < 0.0f) {
            return error_bad_file(err,
                    "norm %d of window %" PRId64 " (%g of layer %d after %" PRId64
                    " tokens) is out of order or out of range",
                    i, w->index, (double) n->norm, n->layer, n->at);
        }
        before = n->at;
    }
    for (int64_t i = 0; i < w->n_targets; ++i) {
        if ((w->flags[i] & ~(SCORE_COUNTED | SCORE_TOP1)) != 0) {
            return error_bad_file(err,
                    "target %" PRId64 " of window %" PRId64 " has flags %u; expected 0 to 3", i + 1,
                    w->index, w->flags[i]);
        }
    }
    return true;
}

static bool is_zero(const uint8_t * p, size_t size) {
    size_t i = 0;
    while (i < size && p[i] == 0) {
        i++;
    }
    return i == size;
}

enum score_record score_record_read(const char * file, const uint8_t * data, size_t size,
        size_t * at, const struct score_meta * meta, struct score_window * window,
        struct lrnn_error * err) {
    const size_t    left = size - *at;
    const uint8_t * record = data + *at;
    const uint8_t * body = record + RECORD_PREFIX;
    const bool      has_norms = score_has_norms(meta);
    uint32_t        magic, n_body;
    int64_t         n_spans, n_norms = -1;

    if (left == 0) {
        return SCORE_RECORD_END;
    }
    if (left < RECORD_PREFIX + BODY_PREFIX + (has_norms ? sizeof(n_norms) : 0)) {
        return SCORE_RECORD_TORN;
    }
    memcpy(&magic, record, 4);
    memcpy(&n_body, record + 4, 4);
    memcpy(&window->index, body, 8);
    memcpy(&window->n_targets, body + 8, 8);
    memcpy(&n_spans, body + 16, 8);
    if (has_norms) {
        memcpy(&n_norms, body + BODY_PREFIX, sizeof(n_norms));
    }
    if (magic != RECORD_MAGIC) {
        // a crash may leave blocks that were allocated but not written
        if (is_zero(record, left)) {
            return SCORE_RECORD_TORN;
        }
        error_bad_file(err, "%s: expected a record at byte %zu", file, *at);
        return SCORE_RECORD_BAD;
    }
    if (window->n_targets < 1 || window->n_targets >= meta->window || n_spans < 1 ||
            n_spans > window->n_targets + 1 ||
            (has_norms && (n_norms < 0 || n_norms > window->n_targets + 1)) ||
            n_body != body_size(window->n_targets, n_spans, n_norms)) {
        error_bad_file(err,
                "%s: the record at byte %zu has %" PRIu32 " bytes for %" PRId64 " targets, %" PRId64
                " spans and %" PRId64 " norms, which do not match; windows have %" PRId64 " tokens",
                file, *at, n_body, window->n_targets, n_spans, has_norms ? n_norms : 0,
                meta->window);
        return SCORE_RECORD_BAD;
    }
    if (left < (size_t) RECORD_PREFIX + n_body + CHECKSUM) {
        return SCORE_RECORD_TORN;
    }
    uint64_t sum;
    memcpy(&sum, body + n_body, sizeof(sum));
    if (sum != hash_add(HASH_START, body, n_body)) {
        if (left == (size_t) RECORD_PREFIX + n_body + CHECKSUM) {
            return SCORE_RECORD_TORN;
        }
        error_bad_file(err, "%s: the record at byte %zu is damaged: wrong checksum", file, *at);
        return SCORE_RECORD_BAD;
    }
    const uint8_t * p = body + BODY_PREFIX + (has_norms ? sizeof(n_norms) : 0);
    window->n_spans = (int32_t) n_spans;
    window->spans = (const void *) p;
    p += (size_t) n_spans * sizeof(struct window_span);
    window->n_norms = has_norms ? (int32_t) n_norms : 0;
    window->norms = (const void *) p;
    p += (size_t) window->n_norms * sizeof(struct score_norm);
    window->nll = (const void *) p;
    p += (size_t) window->n_targets * sizeof(float);
    window->bytes = (const void *) p;
    p += (size_t) window->n_targets * sizeof(uint16_t);
    window->flags = p;

    struct lrnn_error why;
    if (!check_window(window, meta, &why)) {
        error_set(err, why.kind, "%s: the record at byte %zu: %s", file, *at, why.text);
        return SCORE_RECORD_BAD;
    }
    *at += (size_t) RECORD_PREFIX + n_body + CHECKSUM;
    return SCORE_RECORD_OK;
}

//
// Files
//

// A mapped file. Windows point into it.
struct shard {
    const char *      path;
    uint8_t *         data;
    size_t            size;
    size_t            start; // of the records
    char *            text;  // header; meta points into it
    struct score_meta meta;
    int64_t           n_read; // windows
};

struct memory {
    int                   n_shards;
    struct shard *        shards;
    struct score_window * windows;
};

static void shard_free(struct shard * s) {
    if (s->data != NULL) {
        munmap(s->data, s->size);
    }
    free(s->text);
}

static bool map_file(struct shard * s, struct lrnn_error * err) {
    struct stat st;
    const int   fd = open(s->path, O_RDONLY | O_CLOEXEC);
    bool        ok = false;
    if (fd < 0 || fstat(fd, &st) != 0) {
        error_system(err, "%s: cannot be read", s->path);
    } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        error_bad_file(err, "%s: %s; expected a score file", s->path,
                S_ISREG(st.st_mode) ? "is empty" : "is not a regular file");
    } else {
        s->size = (size_t) st.st_size;
        s->data = mmap(NULL, s->size, PROT_READ, MAP_SHARED, fd, 0);
        ok = s->data != MAP_FAILED;
        if (!ok) {
            error_system(err, "%s: cannot be mapped", s->path);
            s->data = NULL;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

// Maps a file and parses its header.
static bool shard_open(struct shard * s, const char * path, struct lrnn_error * err) {
    s->path = path;
    if (!map_file(s, err)) {
        return false;
    }
    s->start = score_header_check(path, s->data, s->size, err);
    if (s->start == 0) {
        return false;
    }
    const size_t n_text = s->start - SCORE_PREFIX_SIZE - SCORE_DIGEST_SIZE;
    s->text = program_alloc(n_text + 1, 1);
    memcpy(s->text, s->data + SCORE_PREFIX_SIZE, n_text);
    return score_meta_parse(path, s->text, n_text, &s->meta, err);
}

static int compare_shards(const void * a, const void * b) {
    const struct shard * x = a;
    const struct shard * y = b;
    return (x->meta.shard > y->meta.shard) - (x->meta.shard < y->meta.shard);
}

// Checks that all files are of one run, without duplicate or missing shards.
static bool check_shards(
        const struct shard * shards, int n, bool partial, struct lrnn_error * err) {
    const struct score_meta * first = &shards[0].meta;
    for (int i = 1; i < n; ++i) {
        char         a[64], b[64];
        const char * key = score_meta_difference(first, &shards[i].meta, false, a, b);
        if (key != NULL) {
            return error_bad_file(err,
                    "%s and %s are not of one run: %s is '%s' in one and '%s' in the other",
                    shards[0].path, shards[i].path, key, a, b);
        }
        if (shards[i].meta.shard == shards[i - 1].meta.shard) {
            return error_bad_file(err, "%s and %s overlap: both are shard %" PRId64 " of %" PRId64,
                    shards[i - 1].path, shards[i].path, shards[i].meta.shard, first->n_shards);
        }
    }
    for (int i = 0; i < n && !partial; ++i) {
        const int64_t missing = i + 1;
        if (shards[i].meta.shard != missing || (i == n - 1 && missing != first->n_shards)) {
            return error_bad_file(err,
                    "%s is shard %" PRId64 " of %" PRId64 "; shard %" PRId64 " is missing",
                    shards[i].path, shards[i].meta.shard, first->n_shards,
                    shards[i].meta.shard != missing ? missing : missing + 1);
        }
    }
    return true;
}

// Appends the windows of a shard.
static bool read_windows(struct shard * s, bool partial, struct score_window ** windows,
        int64_t * n, size_t * capacity, struct lrnn_error * err) {
    int64_t first, end;
    score_shard_range(&s->meta, &first, &end);
    for (size_t at = s->start;;) {
        struct score_window window;
        switch (score_record_read(s->path, s->data, s->size, &at, &s->meta, &window, err)) {
            case SCORE_RECORD_BAD: return false;
            case SCORE_RECORD_END:
            case SCORE_RECORD_TORN:
                if (first + s->n_read < end && !partial) {
                    return error_bad_file(err,
                            "%s is unfinished: it has %" PRId64 " of %" PRId64
                            " windows; the run can be resumed",
                            s->path, s->n_read, end - first);
                }
                return true;
            case SCORE_RECORD_OK: break;
        }
        if (window.index != first + s->n_read || window.index >= end) {
            return error_bad_file(err,
                    "%s: found window %" PRId64 "; expected %" PRId64
                    " (the shard ends with %" PRId64 ")",
                    s->path, window.index, first + s->n_read, end - 1);
        }
        program_grow(windows, capacity, (size_t) *n + 1, sizeof(**windows));
        (*windows)[(*n)++] = window;
        s->n_read++;
    }
}

static bool open_all(
        const char * const * paths, int n_paths, struct scores * scores, struct lrnn_error * err) {
    struct memory * m = program_alloc(1, sizeof(*m));
    *scores = (struct scores) { .memory = m };
    m->shards = program_alloc((size_t) n_paths, sizeof(*m->shards));
    for (int i = 0; i < n_paths; ++i) {
        m->n_shards = i + 1;
        if (!shard_open(&m->shards[i], paths[i], err)) {
            return false;
        }
    }
    return true;
}

bool scores_read(const char * const * paths, int n_paths, bool partial, struct scores * scores,
        struct lrnn_error * err) {
    size_t capacity = 0;
    *scores = (struct scores) { 0 };
    if (n_paths < 1) {
        return error_bad_input(err, "no score files");
    }
    bool            ok = open_all(paths, n_paths, scores, err);
    struct memory * m = scores->memory;
    if (ok) {
        qsort(m->shards, (size_t) n_paths, sizeof(*m->shards), compare_shards);
        ok = check_shards(m->shards, n_paths, partial, err);
    }
    for (int i = 0; i < n_paths && ok; ++i) {
        ok = read_windows(&m->shards[i], partial, &m->windows, &scores->n_windows, &capacity, err);
    }
    if (!ok) {
        scores_free(scores);
        return false;
    }
    scores->windows = m->windows;
    scores->meta = m->shards[0].meta;
    scores->meta.shard = 1;
    scores->meta.n_shards = 1;
    return true;
}

bool scores_read_meta(const char * path, struct scores * scores, struct lrnn_error * err) {
    if (!open_all(&path, 1, scores, err)) {
        scores_free(scores);
        return false;
    }
    scores->meta = ((struct memory *) scores->memory)->shards[0].meta;
    return true;
}

void scores_free(struct scores * scores) {
    struct memory * m = scores->memory;
    if (m != NULL) {
        for (int i = 0; i < m->n_shards; ++i) {
            shard_free(&m->shards[i]);
        }
        free(m->shards);
        free(m->windows);
        free(m);
    }
    *scores = (struct scores) { 0 };
}

//
// Where the tokens of a window are in the text
//

// True if x_0 of a window begins a document.
static bool begins_document(const struct scores * s, int64_t window) {
    const struct score_window * w = &s->windows[window];
    if (w->spans[0].byte != 0 || w->index == 0) {
        return w->spans[0].byte == 0;
    }
    // the last token of the window before may have been the bos
    const struct score_window * before = window > 0 ? w - 1 : NULL;
    return before != NULL && before->index == w->index - 1 && before->n_spans > 0 &&
           before->spans[before->n_spans - 1].document != w->spans[0].document;
}

bool score_first_token_bytes(const struct scores * s, int64_t window, int64_t * n) {
    const struct score_window * w = &s->windows[window];
    const struct score_window * next = window + 1 < s->n_windows ? w + 1 : NULL;
    *n = 0;
    if (strcmp(s->meta.bos, "window") == 0 ||
            (strcmp(s->meta.bos, "doc") == 0 && begins_document(s, window))) {
        return true;
    }
    if (w->n_spans > 1 || next == NULL || next->index != w->index + 1 || next->n_spans < 1 ||
            next->spans[0].document != w->spans[0].document) {
        return false;
    }
    *n = next->spans[0].byte - w->spans[0].byte;
    for (int64_t t = 1; t <= w->n_targets; ++t) {
        *n -= w->bytes[t - 1];
    }
    return *n >= 0;
}
