#include "eval/report/report-read.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/json-read.h"
#include "base/read-file.h"
#include "eval/report/report-columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// The report being read, and where to put an error.
struct reader {
    const char *        path;
    struct arena *      arena;
    struct lrnn_error * err;
};

static bool no_memory(const struct reader * r) {
    return error_set(r->err, LRNN_ERROR_NO_MEMORY, "%s: out of memory", r->path);
}

//
// Values
//

// The values of n keys of an object; of kind JSON_MISSING where there is none.
static bool look_up(const struct reader * r, struct json_value object, const char * const * keys,
        int n, struct json_value * values) {
    struct json_path  paths[JSON_MAX_PATHS];
    struct json_error error;
    for (int i = 0; i < n; ++i) {
        json_path_parse(keys[i], strlen(keys[i]), &paths[i]);
    }
    return json_read(object.data, object.size, paths, n, values, &error) != JSON_MISSING ||
           error_set(
                   r->err, LRNN_ERROR_BAD_FILE, "%s: byte %zu: %s", r->path, error.at, error.what);
}

// The same for keys that must be there.
static bool find(const struct reader * r, struct json_value object, const char * const * keys,
        int n, struct json_value * values) {
    bool ok = look_up(r, object, keys, n, values);
    for (int i = 0; i < n && ok; ++i) {
        ok = values[i].kind != JSON_MISSING ||
             error_set(r->err, LRNN_ERROR_BAD_FILE,
                     "%s: key '%s' is missing; expected a report of lrnn-perplexity", r->path,
                     keys[i]);
    }
    return ok;
}

static int64_t count(struct json_value array) {
    struct json_value item;
    int64_t           n = 0;
    while (json_array_next(&array, &item)) {
        n++;
    }
    return n;
}

// A comma or bracket follows every number of a report, and ends it for strtod.
static double number_of(struct json_value v) {
    return v.kind == JSON_NUMBER ? strtod(v.data, NULL) : 0.0;
}

static int64_t int_of(struct json_value v) {
    return v.kind == JSON_NUMBER ? strtoll(v.data, NULL, 10) : 0;
}

// NULL: out of memory.
static const char * text_of(const struct reader * r, struct json_value v) {
    struct buffer buffer = { 0 };
    int64_t       n_lone = 0;
    char *        copy   = NULL;
    if (v.kind != JSON_STRING) {
        return "";
    }
    if (json_read_string(v, &buffer, &n_lone)) {
        copy = arena_alloc(r->arena, buffer.n + 1);
        if (copy != NULL && buffer.n > 0) {
            memcpy(copy, buffer.data, buffer.n);
        }
    }
    buffer_free(&buffer);
    return copy;
}

//
// Runs
//

// Fills the members of a run that the table of facts describes; lists stay empty.
static bool read_facts(const struct reader * r, struct json_value object, struct report_run * run) {
    const char *               name = "";
    struct json_value          section, v;
    const struct report_fact * f;
    for (int i = 0; (f = report_fact_at(i)) != NULL; ++i) {
        char *       member = (char *) run + f->offset;
        const char * text   = "";
        if (f->key != NULL && strcmp(name, f->section) != 0) {
            name = f->section;
            if (!find(r, object, &name, 1, &section)) {
                return false;
            }
        }
        v.kind = JSON_MISSING;
        if (f->key != NULL && strcmp(f->key, "trained_length") != 0 && // train_length in schema 1
                !find(r, section, &f->key, 1, &v)) {
            return false;
        }
        switch (f->type) {
            case FACT_INT: *(int64_t *) member = int_of(v); break;
            case FACT_BOOL: *(bool *) member = v.kind == JSON_TRUE; break;
            case FACT_TEXT: text = text_of(r, v); // fall through
            case FACT_LIST: *(const char **) member = text; break;
        }
        if (text == NULL) {
            return no_memory(r);
        }
    }
    run->summary.meta.model      = run->name;
    run->summary.meta.probe      = "";
    run->summary.meta.cache_type = "";
    return true;
}

// Sums of one window: [[nll, tokens, bytes, hits] or null, …]
static bool read_cells(struct json_value array, int n, struct score_cell * cells) {
    struct json_value item, number;
    int               i = 0;
    for (; i < n && json_array_next(&array, &item); ++i) {
        int64_t counts[3] = { 0, 0, 0 };
        cells[i]          = (struct score_cell) { .diverged = item.kind == JSON_NULL };
        cells[i].nll      = json_array_next(&item, &number) ? number_of(number) : 0.0;
        for (int k = 0; k < 3 && json_array_next(&item, &number); ++k) {
            counts[k] = int_of(number);
        }
        cells[i].tokens = counts[0];
        cells[i].bytes  = counts[1];
        cells[i].hits   = counts[2];
    }
    return i == n;
}

static bool read_run(const struct reader * r, struct json_value object, struct summary * summary) {
    static const char * const ARRAYS[]  = { "buckets", "units" };
    static const char * const RANGE[]   = { "from", "to" };
    static const char * const UNIT[]    = { "index", "buckets" };
    static const char * const TRAINED[] = { "extrapolation.trained_length",
        "extrapolation.train_length" }; // the latter in schema 1
    struct report_run         run       = { 0 };
    struct json_value         arrays[2], trained[2], item, pair[2];

    if (!read_facts(r, object, &run) || !find(r, object, ARRAYS, 2, arrays) ||
            !look_up(r, object, TRAINED, 2, trained)) {
        return false;
    }
    const int               n       = (int) count(arrays[0]);
    const int64_t           n_units = count(arrays[1]);
    struct position_range * ranges  = arena_alloc(r->arena, ((size_t) n + 1) * sizeof(*ranges));
    int64_t *               unit    = arena_alloc(r->arena, ((size_t) n_units + 1) * sizeof(*unit));
    struct score_cell *     cells =
            arena_alloc(r->arena, ((size_t) n_units * (size_t) n + 1) * sizeof(*cells));
    if (ranges == NULL || unit == NULL || cells == NULL) {
        return no_memory(r);
    }
    for (int i = 0; json_array_next(&arrays[0], &item); ++i) {
        if (!find(r, item, RANGE, 2, pair)) {
            return false;
        }
        ranges[i] = (struct position_range) { int_of(pair[0]), int_of(pair[1]) };
    }
    for (int64_t u = 0; json_array_next(&arrays[1], &item); ++u) {
        if (!find(r, item, UNIT, 2, pair)) {
            return false;
        }
        unit[u] = int_of(pair[0]);
        if (!read_cells(pair[1], n, cells + u * n) || (u > 0 && unit[u] <= unit[u - 1])) {
            return error_set(r->err, LRNN_ERROR_BAD_FILE,
                    "%s: units[%" PRId64 "] is out of order or lacks some of %d buckets", r->path,
                    u, n);
        }
    }
    const int64_t trained_length = int_of(trained[trained[0].kind == JSON_MISSING]);
    return summary_from_cells(
            &run.summary.meta, trained_length, n_units, unit, n, ranges, cells, summary, r->err);
}

static bool read_runs(
        const struct reader * r, const char * data, size_t size, struct report_file * file) {
    static const char * const TOP[] = { "schema", "runs" };
    struct json_value         v[2], item;
    if (!find(r, (struct json_value) { JSON_OBJECT, data, size }, TOP, 2, v)) {
        return false;
    }
    if (!json_string_is(v[0], "lrnn-perplexity/1", 17) &&
            !json_string_is(v[0], "lrnn-perplexity/2", 17)) {
        return error_set(r->err, LRNN_ERROR_BAD_FILE,
                "%s: schema is %.*s; expected \"lrnn-perplexity/1\" or \"lrnn-perplexity/2\"",
                r->path, (int) (v[0].size < 64 ? v[0].size : 64), v[0].data);
    }
    file->runs = arena_alloc(r->arena, ((size_t) count(v[1]) + 1) * sizeof(*file->runs));
    if (file->runs == NULL) {
        return no_memory(r);
    }
    while (json_array_next(&v[1], &item)) {
        if (!read_run(r, item, &file->runs[file->n_runs])) {
            return false;
        }
        file->n_runs++;
    }
    return file->n_runs > 0 ||
           error_set(r->err, LRNN_ERROR_BAD_FILE, "%s: it has no runs", r->path);
}

bool report_file_read(const char * path, struct report_file * file, struct lrnn_error * err) {
    char * data = NULL;
    size_t size = 0;
    *file       = (struct report_file) { 0 };
    if (!read_file(path, &data, &size, err)) {
        return false;
    }
    file->arena            = arena_new();
    const struct reader r  = { path, file->arena, err };
    const bool          ok = file->arena != NULL ? read_runs(&r, data, size, file) : no_memory(&r);
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
