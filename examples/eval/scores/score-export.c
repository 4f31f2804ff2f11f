#include "eval/scores/score-export.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct row {
    int64_t token, position, document, byte; // byte −1: unknown
    float   loss;
};

enum { NPY_HEADER_SIZE = 256, NPY_PREFIX_SIZE = 10, ROW_SIZE = 4 * 8 + 4 };

static const char NPY_TYPE[] = "[('token', '<i8'), ('position', '<i8'), ('document', '<i8'), "
                               "('byte', '<i8'), ('loss', '<f4')]";

static int64_t count_rows(const struct scores * s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_windows; ++i) {
        for (int64_t t = 0; t < s->windows[i].n_targets; ++t) {
            n += (s->windows[i].flags[t] & SCORE_COUNTED) != 0;
        }
    }
    return n;
}

static void write_header(int64_t n_rows, enum score_export_format format, FILE * out) {
    char header[NPY_HEADER_SIZE + 1];
    if (format == SCORE_EXPORT_CSV) {
        fputs("token,position,document,byte,loss\n", out);
        return;
    }
    const int rest = NPY_HEADER_SIZE - NPY_PREFIX_SIZE;
    memcpy(header, "\x93NUMPY\x01", 8); // version 1.0
    header[8] = (char) (rest & 0xff);
    header[9] = (char) (rest >> 8);
    memset(header + NPY_PREFIX_SIZE, ' ', (size_t) rest);
    int n = NPY_PREFIX_SIZE;
    n += snprintf(header + n, (size_t) rest,
            "{'descr': %s, 'fortran_order': False, 'shape': (%" PRId64 ",), }", NPY_TYPE, n_rows);
    header[n]                   = ' ';
    header[NPY_HEADER_SIZE - 1] = '\n';
    fwrite(header, 1, NPY_HEADER_SIZE, out);
}

static void put_integer(uint64_t v, int n_bytes, uint8_t * at) {
    for (int i = 0; i < n_bytes; ++i) {
        at[i] = (uint8_t) (v >> 8 * i);
    }
}

static void write_npy(const struct row * r, FILE * out) {
    uint8_t  bytes[ROW_SIZE];
    uint32_t loss;
    memcpy(&loss, &r->loss, sizeof(loss));
    put_integer((uint64_t) r->token, 8, bytes);
    put_integer((uint64_t) r->position, 8, bytes + 8);
    put_integer((uint64_t) r->document, 8, bytes + 16);
    put_integer((uint64_t) r->byte, 8, bytes + 24);
    put_integer(loss, 4, bytes + 32);
    fwrite(bytes, 1, sizeof(bytes), out);
}

static void write_csv(const struct row * r, FILE * out) {
    fprintf(out, "%" PRId64 ",%" PRId64 ",%" PRId64 ",", r->token, r->position, r->document);
    if (r->byte >= 0) {
        fprintf(out, "%" PRId64, r->byte);
    }
    if (isnan(r->loss)) { // printf may write a sign
        fputs(",nan\n", out);
    } else {
        fprintf(out, ",%.9g\n", (double) r->loss);
    }
}

static void write_window(
        const struct scores * s, int64_t number, enum score_export_format format, FILE * out) {
    const struct score_window * w     = &s->windows[number];
    const int64_t               start = w->index * s->meta.window;
    int64_t                     byte  = 0; // of the next token; −1: unknown
    int32_t                     span  = 0;
    // contexts of the same targets overlap, and in llama mode the bos replaces a token of the text
    const bool in_order = s->meta.same_targets[0] == '\0' && strcmp(s->meta.mode, "llama") != 0;
    if (!in_order || !score_first_token_bytes(s, number, &byte)) {
        byte = -1;
    } else {
        byte += w->n_spans > 0 ? w->spans[0].byte : 0;
    }
    for (int64_t t = 1; t <= w->n_targets; ++t) {
        if (span + 1 < w->n_spans && w->spans[span + 1].first == t) {
            byte = w->spans[++span].byte;
        }
        const struct row row = {
            .token    = start + t,
            .position = strcmp(s->meta.reset, "never") == 0 ? start + t : t,
            .document = w->n_spans > 0 ? w->spans[span].document : -1,
            .byte     = byte,
            .loss     = w->nll[t - 1],
        };
        if (w->flags[t - 1] & SCORE_COUNTED) {
            if (format == SCORE_EXPORT_NPY) {
                write_npy(&row, out);
            } else {
                write_csv(&row, out);
            }
        }
        byte = byte < 0 ? -1 : byte + w->bytes[t - 1];
    }
}

void score_export(const struct scores * s, enum score_export_format format, FILE * out) {
    write_header(count_rows(s), format, out);
    for (int64_t i = 0; i < s->n_windows && !ferror(out); ++i) {
        write_window(s, i, format, out);
    }
}
