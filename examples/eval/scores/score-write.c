#include "eval/scores/score-file.h"

#include "base/error.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct score_writer {
    char *  path;
    int     fd;
    int64_t next, end; // next window; end of the shard
    int64_t max_targets;
    bool    has_norms;
    bool    dirty; // written since the last sync
};

static bool fail(const struct score_writer * w, const char * what, struct lrnn_error * err) {
    return error_set(err, LRNN_ERROR_SYSTEM, "%s: %s: %s", w->path, what, strerror(errno));
}

static bool write_all(
        struct score_writer * w, const void * data, size_t size, struct lrnn_error * err) {
    const char * p = data;
    w->dirty = w->dirty || size > 0;
    while (size > 0) {
        const ssize_t n = write(w->fd, p, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail(w, "cannot be written", err);
        }
        p += n;
        size -= (size_t) n;
    }
    return true;
}

// Truncates the file to `size` bytes and appends the data.
static bool start_at(struct score_writer * w, size_t size, const void * data, size_t n_data,
        struct lrnn_error * err) {
    if (ftruncate(w->fd, (off_t) size) != 0 || lseek(w->fd, (off_t) size, SEEK_SET) < 0) {
        return fail(w, "cannot be truncated", err);
    }
    return write_all(w, data, n_data, err);
}

// Explains why a file with another header cannot be continued.
static void explain(const char * path, const uint8_t * data, size_t size,
        const struct score_meta * meta, struct lrnn_error * err) {
    const size_t start = score_header_check(path, data, size, err);
    if (start == 0) {
        return;
    }
    const size_t n_text = start - SCORE_PREFIX_SIZE - SCORE_DIGEST_SIZE;
    char *       text = program_alloc(n_text + 1, 1);
    memcpy(text, data + SCORE_PREFIX_SIZE, n_text);
    struct score_meta old;
    if (score_meta_parse(path, text, n_text, &old, err)) {
        char         a[64], b[64];
        const char * key = score_meta_difference(&old, meta, true, a, b);
        error_bad_file(err, "%s belongs to another run: its %s is '%s', here it is '%s'", path,
                key != NULL ? key : "header", a, b);
    }
    free(text);
}

// Reads all complete windows and sets *good to their end.
static bool count_windows(struct score_writer * w, const uint8_t * data, size_t size,
        const struct score_meta * meta, size_t * good, struct lrnn_error * err) {
    for (;;) {
        struct score_window window;
        switch (score_record_read(w->path, data, size, good, meta, &window, err)) {
            case SCORE_RECORD_BAD: return false;
            case SCORE_RECORD_END:
            case SCORE_RECORD_TORN: return true;
            case SCORE_RECORD_OK: break;
        }
        if (window.index != w->next || window.index >= w->end) {
            return error_bad_file(err,
                    "%s: found window %" PRId64 "; expected %" PRId64
                    " (the shard ends with %" PRId64 ")",
                    w->path, window.index, w->next, w->end - 1);
        }
        w->next++;
    }
}

static bool resume(struct score_writer * w, const struct score_meta * meta, const char * header,
        size_t n_header, struct lrnn_error * err) {
    struct stat st;
    if (fstat(w->fd, &st) != 0) {
        return fail(w, "cannot be read", err);
    }
    const size_t size = (size_t) st.st_size;
    if (size == 0) {
        return start_at(w, 0, header, n_header, err);
    }
    uint8_t * data = mmap(NULL, size, PROT_READ, MAP_SHARED, w->fd, 0);
    if (data == MAP_FAILED) {
        return fail(w, "cannot be mapped", err);
    }
    bool   ok = true;
    size_t good = 0;
    if (memcmp(data, header, size < n_header ? size : n_header) != 0) {
        explain(w->path, data, size, meta, err);
        ok = false;
    } else if (size >= n_header) {
        good = n_header;
        ok = count_windows(w, data, size, meta, &good, err);
    }
    munmap(data, size);
    // a torn header is written again
    return ok && start_at(w, good, header, good == 0 ? n_header : 0, err);
}

struct score_writer * score_writer_open(const char * path, const struct score_meta * meta,
        int64_t * n_done, struct lrnn_error * err) {
    struct score_writer * w = program_alloc(1, sizeof(*w));
    bool                  ok = false;
    w->path = strcpy(program_alloc(strlen(path) + 1, 1), path);
    w->max_targets = meta->window - 1;
    w->has_norms = score_has_norms(meta);
    score_shard_range(meta, &w->next, &w->end);
    const int64_t first = w->next;
    w->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        fail(w, "cannot be opened for writing", err);
    } else if (lockf(w->fd, F_TLOCK, 0) != 0 && (errno == EAGAIN || errno == EACCES)) {
        // other errors mean that the file system has no locks
        error_bad_file(err, "%s: another process is writing to it", path);
    } else {
        size_t size;
        char * header = score_header_new(meta, &size);
        ok = n_done != NULL ? resume(w, meta, header, size, err)
                            : start_at(w, 0, header, size, err);
        free(header);
    }
    if (!ok) {
        score_writer_close(w, NULL);
        return NULL;
    }
    if (n_done != NULL) {
        *n_done = w->next - first;
    }
    return w;
}

bool score_writer_append(
        struct score_writer * w, const struct score_window * window, struct lrnn_error * err) {
    if (window->index != w->next || window->index >= w->end || window->n_targets < 1 ||
            window->n_targets > w->max_targets || window->n_spans < 1) {
        return error_bad_file(err,
                "%s: window %" PRId64 " with %" PRId64 " targets; expected window %" PRId64
                " of %" PRId64 " with 1 to %" PRId64,
                w->path, window->index, window->n_targets, w->next, w->end, w->max_targets);
    }
    size_t     size;
    uint8_t *  record = score_record_new(window, w->has_norms, &size);
    const bool ok = write_all(w, record, size, err);
    free(record);
    w->next += ok;
    return ok;
}

bool score_writer_sync(struct score_writer * w, struct lrnn_error * err) {
    if (w->dirty && fsync(w->fd) != 0) {
        return fail(w, "cannot be written", err);
    }
    w->dirty = false;
    return true;
}

bool score_writer_close(struct score_writer * w, struct lrnn_error * err) {
    if (w == NULL) {
        return true;
    }
    bool ok = w->fd < 0 || score_writer_sync(w, err);
    if (w->fd >= 0 && close(w->fd) != 0 && ok) {
        ok = fail(w, "cannot be written", err);
    }
    free(w->path);
    free(w);
    return ok;
}
