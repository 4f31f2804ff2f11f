#include "eval/report-read.h"

#include "base/arena.h"
#include "base/json-read.h"
#include "base/read-file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

//
// Values of checked JSON
//

static const char * skip_blanks(const char * p, const char * end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
        p++;
    }
    return p;
}

// Where the value at p ends.
static const char * value_end(const char * p, const char * end) {
    int  depth     = 0;
    bool in_string = false;
    for (; p < end; ++p) {
        if (in_string && *p == '\\') {
            p++; // whatever it stands for, it does not end the string
        } else if (in_string) {
            in_string = *p != '"';
            if (!in_string && depth == 0) {
                return p + 1;
            }
        } else if (*p == '"') {
            in_string = true;
        } else if (*p == '[' || *p == '{') {
            depth++;
        } else if (depth == 0 && (*p == ',' || *p == ']' || *p == '}')) {
            return p;
        } else if (*p == ']' || *p == '}') {
            depth--;
            if (depth == 0) {
                return p + 1;
            }
        }
    }
    return end;
}

// An array, item by item.
struct items {
    const char *p, *end;
};

static struct items items_of(struct json_value array) {
    return array.kind == JSON_ARRAY ? (struct items) { array.data + 1, array.data + array.size - 1 }
                                    : (struct items) { NULL, NULL };
}

static bool items_next(struct items * it, struct json_value * item) {
    it->p = skip_blanks(it->p, it->end);
    if (it->p == it->end) {
        return false;
    }
    const char * to = value_end(it->p, it->end);
    item->data      = it->p;
    item->size      = (size_t) (to - it->p);
    item->kind      = *it->p == '['   ? JSON_ARRAY
                      : *it->p == '{' ? JSON_OBJECT
                      : *it->p == '"' ? JSON_STRING
                      : *it->p == 'n' ? JSON_NULL
                                      : JSON_NUMBER;
    it->p           = skip_blanks(to, it->end);
    it->p += it->p < it->end; // the comma
    return true;
}

static int64_t count_items(struct json_value array) {
    struct items      it = items_of(array);
    struct json_value item;
    int64_t           n = 0;
    while (items_next(&it, &item)) {
        n++;
    }
    return n;
}

// The number behind which something else stands, so that strtod stops there.
static double number_of(struct json_value v) {
    return v.kind == JSON_NUMBER ? strtod(v.data, NULL) : 0.0;
}

static int64_t integer_of(struct json_value v) {
    return v.kind == JSON_NUMBER ? strtoll(v.data, NULL, 10) : 0;
}

static const char * text_of(struct arena * arena, struct json_value v) {
    struct buffer buffer = { 0 };
    int64_t       n_lone = 0;
    char *        copy   = NULL;
    if (v.kind == JSON_STRING && json_read_string(v, &buffer, &n_lone)) {
        copy = arena_alloc(arena, buffer.n + 1);
        if (copy != NULL && buffer.n > 0) {
            memcpy(copy, buffer.data, buffer.n);
        }
    }
    buffer_free(&buffer);
    return copy;
}

// Finds the values at n paths, every one of which must be there.
static bool find_all(const char * file, struct json_value object, const char * const * names, int n,
        struct json_value * values, char * err, size_t err_size) {
    struct json_path  paths[JSON_MAX_PATHS] = { 0 };
    struct json_error error;
    for (int i = 0; i < n; ++i) {
        json_path_parse(names[i], strlen(names[i]), &paths[i]);
    }
    if (json_read(object.data, object.size, paths, n, values, &error) == JSON_MISSING) {
        snprintf(err, err_size, "%s: byte %zu: %s", file, error.at, error.what);
        return false;
    }
    for (int i = 0; i < n; ++i) {
        if (values[i].kind == JSON_MISSING) {
            snprintf(err, err_size,
                    "%s: there is no '%s' in it; expected a report of lrnn-perplexity", file,
                    names[i]);
            return false;
        }
    }
    return true;
}

//
// A run
//

// Sums of one window: [[nll, tokens, bytes, hits] or null, …]
static bool read_cells(struct json_value array, int n, struct score_cell * cells) {
    struct items      it = items_of(array);
    struct json_value item, number;
    int               i = 0;
    for (; i < n && items_next(&it, &item); ++i) {
        struct items in = items_of(item);
        cells[i]        = (struct score_cell) { .diverged = item.kind == JSON_NULL };
        if (item.kind == JSON_ARRAY) {
            int64_t counts[3] = { 0, 0, 0 };
            cells[i].nll      = items_next(&in, &number) ? number_of(number) : 0.0;
            for (int k = 0; k < 3 && items_next(&in, &number); ++k) {
                counts[k] = integer_of(number);
            }
            cells[i].tokens = counts[0];
            cells[i].bytes  = counts[1];
            cells[i].hits   = counts[2];
        }
    }
    return i == n;
}

static bool read_run(const char * file, struct json_value object, struct arena * arena,
        struct summary * summary, char * err, size_t err_size) {
    enum {
        MODEL,
        QUANTIZATION,
        N_VOCAB,
        TOKENIZER,
        DATASET,
        FINGERPRINT,
        MODE,
        BOS,
        EOS,
        RESET,
        SAME_TARGETS,
        WINDOW,
        MIN_DOC,
        SKIP,
        TRAIN,
        BUCKETS,
        UNITS,
        N
    };
    static const char * const NAMES[N] = { "model.shown", "model.quantization", "tokenizer.n_vocab",
        "tokenizer.sha256", "data.dataset", "data.fingerprint", "protocol.mode", "protocol.bos",
        "protocol.eos", "protocol.reset", "protocol.same_targets", "protocol.window",
        "protocol.min_doc_tokens", "protocol.skip_special", "extrapolation.train_length", "buckets",
        "units" };
    static const char * const RANGE[2] = { "from", "to" };
    static const char * const UNIT[2]  = { "index", "buckets" };
    struct json_value         v[N], item, pair[2];
    const char *              text[N] = { NULL };

    if (!find_all(file, object, NAMES, N, v, err, err_size)) {
        return false;
    }
    for (int i = 0; i < N; ++i) {
        text[i] = v[i].kind == JSON_STRING ? text_of(arena, v[i]) : "";
        if (text[i] == NULL) {
            snprintf(err, err_size, "%s: out of memory", file);
            return false;
        }
    }
    const struct score_meta meta = {
        .tool             = "",
        .model            = text[MODEL],
        .model_hash       = "",
        .model_family     = "",
        .eigenvalues      = "",
        .quantization     = text[QUANTIZATION],
        .n_vocab          = integer_of(v[N_VOCAB]),
        .tokenizer_hash   = text[TOKENIZER],
        .dataset          = text[DATASET],
        .data_fingerprint = text[FINGERPRINT],
        .template         = "",
        .files            = "",
        .sources          = "",
        .complaints       = "",
        .protocol         = "",
        .mode             = text[MODE],
        .bos              = text[BOS],
        .eos              = text[EOS],
        .reset            = text[RESET],
        .same_targets     = text[SAME_TARGETS],
        .window           = integer_of(v[WINDOW]),
        .min_doc_tokens   = integer_of(v[MIN_DOC]),
        .skip_special     = v[SKIP].kind == JSON_TRUE,
    };
    const int               n       = (int) count_items(v[BUCKETS]);
    const int64_t           n_units = count_items(v[UNITS]);
    struct position_range * ranges  = arena_alloc(arena, ((size_t) n + 1) * sizeof(*ranges));
    int64_t *               unit    = arena_alloc(arena, ((size_t) n_units + 1) * sizeof(*unit));
    struct score_cell *     cells =
            arena_alloc(arena, ((size_t) n_units * (size_t) n + 1) * sizeof(*cells));
    if (ranges == NULL || unit == NULL || cells == NULL) {
        snprintf(err, err_size, "%s: out of memory", file);
        return false;
    }
    struct items it = items_of(v[BUCKETS]);
    for (int i = 0; items_next(&it, &item); ++i) {
        if (!find_all(file, item, RANGE, 2, pair, err, err_size)) {
            return false;
        }
        ranges[i] = (struct position_range) { integer_of(pair[0]), integer_of(pair[1]) };
    }
    it = items_of(v[UNITS]);
    for (int64_t u = 0; items_next(&it, &item); ++u) {
        if (!find_all(file, item, UNIT, 2, pair, err, err_size)) {
            return false;
        }
        unit[u] = integer_of(pair[0]);
        if (!read_cells(pair[1], n, cells + u * n) || (u > 0 && unit[u] <= unit[u - 1])) {
            snprintf(err, err_size,
                    "%s: units: number %" PRId64
                    " does not have the sums of %d buckets, or is out of order",
                    file, u, n);
            return false;
        }
    }
    return summary_from_cells(
            &meta, integer_of(v[TRAIN]), n_units, unit, n, ranges, cells, summary, err, err_size);
}

bool report_file_read(const char * path, struct report_file * file, char * err, size_t err_size) {
    static const char * const TOP[2] = { "schema", "runs" };
    struct json_value         v[2], item;
    char *                    data = NULL;
    size_t                    size = 0;

    *file = (struct report_file) { 0 };
    if (!read_file(path, &data, &size, err, err_size)) {
        return false;
    }
    bool ok = find_all(
            path, (struct json_value) { JSON_OBJECT, data, size }, TOP, 2, v, err, err_size);
    if (ok && !json_string_is(v[0], "lrnn-perplexity/1", strlen("lrnn-perplexity/1"))) {
        snprintf(err, err_size, "%s: its schema is %.*s; expected \"lrnn-perplexity/1\"", path,
                (int) (v[0].size < 64 ? v[0].size : 64), v[0].data);
        ok = false;
    }
    if (ok) {
        const int64_t n = count_items(v[1]);
        file->arena     = arena_new();
        file->runs      = file->arena != NULL
                                  ? arena_alloc(file->arena, ((size_t) n + 1) * sizeof(*file->runs))
                                  : NULL;
        ok              = file->runs != NULL;
        if (!ok) {
            snprintf(err, err_size, "%s: out of memory", path);
        }
        struct items it = items_of(v[1]);
        while (ok && items_next(&it, &item)) {
            ok = read_run(path, item, file->arena, &file->runs[file->n_runs], err, err_size);
            file->n_runs += ok;
        }
        if (ok && file->n_runs == 0) {
            snprintf(err, err_size, "%s: there is no run in it", path);
            ok = false;
        }
    }
    free(data);
    if (!ok) {
        report_file_free(file);
    }
    return ok;
}

void report_file_free(struct report_file * file) {
    for (int i = 0; i < file->n_runs; ++i) {
        summary_free(&file->runs[i]);
    }
    arena_free(file->arena);
    *file = (struct report_file) { 0 };
}
