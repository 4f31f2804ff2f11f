#include "eval/scores/score-format.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
        error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be read: %s", s->path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        error_set(err, LRNN_ERROR_BAD_FILE, "%s: %s; expected a score file", s->path,
                S_ISREG(st.st_mode) ? "is empty" : "is not a regular file");
    } else {
        s->size = (size_t) st.st_size;
        s->data = mmap(NULL, s->size, PROT_READ, MAP_SHARED, fd, 0);
        ok      = s->data != MAP_FAILED;
        if (!ok) {
            error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot be mapped: %s", s->path, strerror(errno));
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
    s->text             = malloc(n_text + 1);
    if (s->text == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "%s: out of memory for its header", path);
    }
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
            return error_set(err, LRNN_ERROR_BAD_FILE,
                    "%s and %s are not of one run: %s is '%s' in one and '%s' in the other",
                    shards[0].path, shards[i].path, key, a, b);
        }
        if (shards[i].meta.shard == shards[i - 1].meta.shard) {
            return error_set(err, LRNN_ERROR_BAD_FILE,
                    "%s and %s overlap: both are shard %" PRId64 " of %" PRId64, shards[i - 1].path,
                    shards[i].path, shards[i].meta.shard, first->n_shards);
        }
    }
    for (int i = 0; i < n && !partial; ++i) {
        const int64_t missing = i + 1;
        if (shards[i].meta.shard != missing || (i == n - 1 && missing != first->n_shards)) {
            return error_set(err, LRNN_ERROR_BAD_FILE,
                    "%s is shard %" PRId64 " of %" PRId64 "; shard %" PRId64 " is missing",
                    shards[i].path, shards[i].meta.shard, first->n_shards,
                    shards[i].meta.shard != missing ? missing : missing + 1);
        }
    }
    return true;
}

// Appends the windows of a shard.
static bool read_windows(struct shard * s, bool partial, struct score_window ** windows,
        int64_t * n, int64_t * capacity, struct lrnn_error * err) {
    int64_t first, end;
    score_shard_range(&s->meta, &first, &end);
    for (size_t at = s->start;;) {
        struct score_window window;
        switch (score_record_read(s->path, s->data, s->size, &at, &s->meta, &window, err)) {
            case SCORE_RECORD_BAD: return false;
            case SCORE_RECORD_END:
            case SCORE_RECORD_TORN:
                if (first + s->n_read < end && !partial) {
                    return error_set(err, LRNN_ERROR_BAD_FILE,
                            "%s is unfinished: it has %" PRId64 " of %" PRId64
                            " windows; use run --resume to continue it",
                            s->path, s->n_read, end - first);
                }
                return true;
            case SCORE_RECORD_OK: break;
        }
        if (window.index != first + s->n_read || window.index >= end) {
            return error_set(err, LRNN_ERROR_BAD_FILE,
                    "%s: found window %" PRId64 "; expected %" PRId64
                    " (the shard ends with %" PRId64 ")",
                    s->path, window.index, first + s->n_read, end - 1);
        }
        if (*n == *capacity) {
            const int64_t         more  = *capacity > 0 ? *capacity * 2 : 64;
            struct score_window * grown = realloc(*windows, (size_t) more * sizeof(**windows));
            if (grown == NULL) {
                return error_set(err, LRNN_ERROR_NO_MEMORY,
                        "%s: out of memory for %" PRId64 " windows", s->path, more);
            }
            *windows  = grown;
            *capacity = more;
        }
        (*windows)[(*n)++] = window;
        s->n_read++;
    }
}

static bool open_all(
        const char * const * paths, int n_paths, struct scores * scores, struct lrnn_error * err) {
    struct memory * m = calloc(1, sizeof(*m));
    *scores           = (struct scores) { .memory = m };
    if (m != NULL) {
        m->shards = calloc((size_t) n_paths + 1, sizeof(*m->shards));
    }
    if (m == NULL || m->shards == NULL) {
        return error_set(err, LRNN_ERROR_NO_MEMORY, "out of memory for %d score files", n_paths);
    }
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
    int64_t capacity = 0;
    bool    ok       = n_paths > 0;
    *scores          = (struct scores) { 0 };
    if (!ok) {
        return error_set(err, LRNN_ERROR_BAD_FILE, "no score files");
    }
    ok                = open_all(paths, n_paths, scores, err);
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
    scores->windows       = m->windows;
    scores->meta          = m->shards[0].meta;
    scores->meta.shard    = 1;
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
    for (int i = 0; m != NULL && i < m->n_shards; ++i) {
        shard_free(&m->shards[i]);
    }
    if (m != NULL) {
        free(m->shards);
        free(m->windows);
    }
    free(m);
    *scores = (struct scores) { 0 };
}
