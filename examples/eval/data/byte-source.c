#include "eval/data/records.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LRNN_ZLIB
#    include <zlib.h>
#endif
#ifdef LRNN_ZSTD
#    include <zstd.h>
#endif

enum { INPUT_SIZE = 1 << 17 };

enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD };

struct byte_source {
    char *           path;
    int              fd;
    bool             at_end; // of the file
    int64_t          n_read; // from the file
    enum compression compression;
    bool             inside;       // of a member or frame
    char             failure[512]; // reported after the bytes before it
    size_t           begin, end;   // unused part of input
    uint8_t          input[INPUT_SIZE];
#ifdef LRNN_ZLIB
    z_stream gzip;
    bool     gzip_ready;
#endif
#ifdef LRNN_ZSTD
    ZSTD_DStream * zstd;
#endif
};

// Appends one read() to the input; sets at_end at the end of the file.
static bool read_more(struct byte_source * s) {
    ssize_t n;
    do {
        n = read(s->fd, s->input + s->end, INPUT_SIZE - s->end);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        snprintf(s->failure, sizeof(s->failure), "%s: cannot be read at byte %lld: %s", s->path,
                (long long) s->n_read, strerror(errno));
        return false;
    }
    s->at_end = n == 0;
    s->end += (size_t) n;
    s->n_read += n;
    return true;
}

// Makes sure that there is input, unless the file has ended.
static bool fill(struct byte_source * s) {
    if (s->begin < s->end || s->at_end) {
        return true;
    }
    s->begin = s->end = 0;
    return read_more(s);
}

int64_t byte_source_position(const struct byte_source * s) {
    return s->n_read - (int64_t) (s->end - s->begin);
}

// True if all input of the file is used.
static bool is_used_up(const struct byte_source * s) {
    return s->at_end && s->begin == s->end;
}

#if defined(LRNN_ZLIB) || defined(LRNN_ZSTD)

static bool fail_at(struct byte_source * s, const char * what) {
    snprintf(s->failure, sizeof(s->failure), "%s: byte %lld: %s", s->path,
            (long long) byte_source_position(s), what);
    return false;
}

#endif

//
// gzip
//

#ifdef LRNN_ZLIB

static bool gzip_begin(struct byte_source * s) {
    // 15: the largest window; 16: a gzip header
    s->gzip_ready = inflateInit2(&s->gzip, 15 + 16) == Z_OK;
    return s->gzip_ready;
}

// Between two members. Some writers pad the file with zeros.
static bool gzip_next_member(struct byte_source * s) {
    if (s->input[s->begin] == 0) {
        while (s->begin < s->end && s->input[s->begin] == 0) {
            s->begin++;
        }
        return true;
    }
    if (s->input[s->begin] != 0x1f) {
        return fail_at(s, "expected a gzip member or the end of the file");
    }
    s->inside = inflateReset(&s->gzip) == Z_OK;
    return s->inside || fail_at(s, "zlib failed");
}

// Decompresses some input and appends to out.
static bool gzip_step(struct byte_source * s, uint8_t * out, size_t size, size_t * n) {
    if (!s->inside) {
        return gzip_next_member(s);
    }
    s->gzip.next_in = s->input + s->begin;
    s->gzip.avail_in = (uInt) (s->end - s->begin);
    s->gzip.next_out = out + *n;
    s->gzip.avail_out = (uInt) (size - *n);
    const int status = inflate(&s->gzip, Z_NO_FLUSH);
    s->begin = s->end - s->gzip.avail_in;
    *n = size - s->gzip.avail_out;
    if (status == Z_STREAM_END) {
        s->inside = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
        return fail_at(s, s->gzip.msg != NULL ? s->gzip.msg : "damaged gzip data");
    }
    return true;
}

#endif

//
// zstd
//

#ifdef LRNN_ZSTD

static bool zstd_begin(struct byte_source * s) {
    s->zstd = ZSTD_createDStream();
    // allow zstd --long=31; a frame takes only as much memory as its window needs
    return s->zstd != NULL && !ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax,
                                      ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound));
}

static bool zstd_step(struct byte_source * s, uint8_t * out, size_t size, size_t * n) {
    ZSTD_inBuffer  from = { s->input, s->end, s->begin };
    ZSTD_outBuffer to = { out, size, *n };
    const size_t   status = ZSTD_decompressStream(s->zstd, &to, &from);
    s->begin = from.pos;
    *n = to.pos;
    if (ZSTD_isError(status)) {
        return fail_at(s, ZSTD_getErrorName(status));
    }
    s->inside = status != 0;
    return true;
}

#endif

//
// All
//

static bool step(struct byte_source * s, uint8_t * out, size_t size, size_t * n) {
    switch (s->compression) {
#ifdef LRNN_ZLIB
        case COMPRESSION_GZIP: return gzip_step(s, out, size, n);
#endif
#ifdef LRNN_ZSTD
        case COMPRESSION_ZSTD: return zstd_step(s, out, size, n);
#endif
        default: break;
    }
    const size_t left = s->end - s->begin;
    const size_t take = left < size - *n ? left : size - *n;
    memcpy(out + *n, s->input + s->begin, take);
    s->begin += take;
    *n += take;
    return true;
}

bool byte_source_read(
        struct byte_source * s, void * out, size_t size, size_t * n, struct lrnn_error * err) {
    *n = 0;
    while (*n < size && s->failure[0] == '\0') {
        const size_t before = *n;
        if (!fill(s) || (is_used_up(s) && !s->inside) || !step(s, out, size, n)) {
            break;
        }
        if (is_used_up(s) && s->inside && *n == before) { // the decoder has no output left
            snprintf(s->failure, sizeof(s->failure),
                    "%s: truncated: the file ends at byte %lld, inside a compressed %s", s->path,
                    (long long) s->n_read, s->compression == COMPRESSION_GZIP ? "member" : "frame");
        }
    }
    if (*n == 0 && s->failure[0] != '\0') {
        return error_bad_file(err, "%s", s->failure);
    }
    return true;
}

// gzip: 1f 8b. zstd: fd2fb528, or 184d2a50 to 184d2a5f for a skippable frame, little-endian.
static enum compression compression_of(const uint8_t * p, size_t n) {
    if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b) {
        return COMPRESSION_GZIP;
    }
    if (n >= 4) {
        const uint32_t magic = (uint32_t) p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 |
                               (uint32_t) p[3] << 24;
        if (magic == UINT32_C(0xfd2fb528) || (magic & ~UINT32_C(15)) == UINT32_C(0x184d2a50)) {
            return COMPRESSION_ZSTD;
        }
    }
    return COMPRESSION_NONE;
}

static bool begin_decoder(struct byte_source * s, struct lrnn_error * err) {
    const char * command = s->compression == COMPRESSION_GZIP ? "gzip" : "zstd";
    switch (s->compression) {
        case COMPRESSION_NONE: return true;
#ifdef LRNN_ZLIB
        case COMPRESSION_GZIP:
            s->inside = gzip_begin(s);
            if (!s->inside) {
                error_no_memory(err, "zlib, for %s", s->path);
            }
            return s->inside;
#endif
#ifdef LRNN_ZSTD
        case COMPRESSION_ZSTD:
            s->inside = zstd_begin(s);
            if (!s->inside) {
                error_no_memory(err, "zstd, for %s", s->path);
            }
            return s->inside;
#endif
        default:
            return error_bad_file(err,
                    "%s is compressed with %s, which this build does not support; read the data "
                    "from a pipe: %s -dc %s",
                    s->path, command, command, s->path);
    }
}

struct byte_source * byte_source_open(const char * path, struct lrnn_error * err) {
    const bool           is_stdin = strcmp(path, "-") == 0;
    struct byte_source * s = calloc(1, sizeof(*s));
    if (s == NULL || (s->path = malloc(strlen(path) + sizeof("standard input"))) == NULL) {
        error_no_memory(err, "reading %s", path);
        free(s);
        return NULL;
    }
    strcpy(s->path, is_stdin ? "standard input" : path);
    s->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) {
        error_system(err, "%s: cannot be opened", path);
        byte_source_free(s);
        return NULL;
    }
    while (s->end < 4 && !s->at_end) { // a pipe may return less
        if (!read_more(s)) {
            error_bad_file(err, "%s", s->failure);
            byte_source_free(s);
            return NULL;
        }
    }
    s->compression = compression_of(s->input, s->end);
    if (!begin_decoder(s, err)) {
        byte_source_free(s);
        return NULL;
    }
    return s;
}

void byte_source_free(struct byte_source * s) {
    if (s == NULL) {
        return;
    }
#ifdef LRNN_ZLIB
    if (s->gzip_ready) {
        inflateEnd(&s->gzip);
    }
#endif
#ifdef LRNN_ZSTD
    ZSTD_freeDStream(s->zstd);
#endif
    if (s->fd > STDIN_FILENO) {
        close(s->fd);
    }
    free(s->path);
    free(s);
}
