#include "eval/data/records.h"

#include "base/error.h"
#include "base/slice.h"

#include <stdio.h>
#include <string.h>

void record_text_init(struct record_text * t) {
    *t = (struct record_text) { .where = -1, .source = -1 };
}

// Returns the index of the path, which is added if it is new; −1: error.
static int add_path(
        struct record_text * t, const char * text, size_t size, struct lrnn_error * err) {
    char             quote[128];
    struct json_path path;
    if (!json_path_parse(text, size, &path)) {
        error_bad_input(err, "%s is not a field name; expected 1 to %d keys separated by '.'",
                slice_quote(quote, sizeof(quote), (struct slice) { text, size }), JSON_MAX_PARTS);
        return -1;
    }
    for (int i = 0; i < t->n_paths; ++i) {
        const struct json_path * p = &t->paths[i];
        const size_t             p_size =
                (size_t) (p->part[p->n_parts - 1] + p->size[p->n_parts - 1] - p->part[0]);
        if (p_size == size && memcmp(p->part[0], text, size) == 0) {
            return i;
        }
    }
    if (t->n_paths == JSON_MAX_PATHS) {
        error_bad_input(err, "more than %d different fields", JSON_MAX_PATHS);
        return -1;
    }
    t->paths[t->n_paths] = path;
    return t->n_paths++;
}

static bool add_part(struct record_text * t, const char * literal, size_t size, int path,
        struct lrnn_error * err) {
    if (literal != NULL && size == 0) {
        return true;
    }
    if (t->n_parts == RECORD_TEXT_MAX_PARTS) {
        return error_bad_input(err, "the templates have more than %d parts", RECORD_TEXT_MAX_PARTS);
    }
    t->parts[t->n_parts].literal = literal;
    t->parts[t->n_parts].size = size;
    t->parts[t->n_parts].path = path;
    t->n_parts++;
    return true;
}

bool record_text_add_template(
        struct record_text * t, const char * text, size_t size, struct lrnn_error * err) {
    if (t->n_templates == RECORD_TEXT_MAX_TEMPLATES) {
        return error_bad_input(err, "more than %d templates", RECORD_TEXT_MAX_TEMPLATES);
    }
    const int    begin = t->n_parts;
    bool         has_path = false;
    const char * literal = text;
    const char * end = text + size;
    const char * p = text;
    while (p < end) {
        if (*p != '{' && *p != '}') {
            p++;
        } else if (end - p > 1 && p[1] == *p) { // a brace: the first of the two is literal
            if (!add_part(t, literal, (size_t) (p + 1 - literal), -1, err)) {
                return false;
            }
            literal = p += 2;
        } else {
            const char * close = *p == '{' ? memchr(p, '}', (size_t) (end - p)) : NULL;
            if (close == NULL) {
                char quote[256];
                return error_bad_input(err, "template %s: unmatched '%c' (%c%c is a literal brace)",
                        slice_quote(quote, sizeof(quote), (struct slice) { text, size }), *p, *p,
                        *p);
            }
            const int path = add_path(t, p + 1, (size_t) (close - p - 1), err);
            if (path < 0 || !add_part(t, literal, (size_t) (p - literal), -1, err) ||
                    !add_part(t, NULL, 0, path, err)) {
                return false;
            }
            has_path = true;
            literal = p = close + 1;
        }
    }
    if (!add_part(t, literal, (size_t) (end - literal), -1, err)) {
        return false;
    }
    if (!has_path) {
        char quote[256];
        return error_bad_input(err, "template %s has no field in braces",
                slice_quote(quote, sizeof(quote), (struct slice) { text, size }));
    }
    t->templates[t->n_templates].parts_begin = begin;
    t->templates[t->n_templates].parts_end = t->n_parts;
    t->n_templates++;
    return true;
}

bool record_text_set_where(struct record_text * t, const char * where, struct lrnn_error * err) {
    const char * equal = strchr(where, '=');
    const char * field = where;
    if (equal == NULL || equal == where) {
        char quote[256];
        return error_bad_input(err, "filter %s: expected field=value or field!=value",
                slice_quote(quote, sizeof(quote), (struct slice) { where, strlen(where) }));
    }
    t->where_not = equal[-1] == '!';
    t->where_value = equal + 1;
    t->where = add_path(t, field, (size_t) (equal - field) - t->where_not, err);
    return t->where >= 0;
}

bool record_text_set_source(struct record_text * t, const char * field, struct lrnn_error * err) {
    t->source = add_path(t, field, strlen(field), err);
    return t->source >= 0;
}

static bool passes(const struct record_text * t, const struct json_value * values) {
    if (t->where < 0) {
        return true;
    }
    const struct json_value v = values[t->where];
    const size_t            size = strlen(t->where_value);
    if (v.kind == JSON_STRING) {
        return json_string_is(v, t->where_value, size) != t->where_not;
    }
    const bool equal =
            v.kind != JSON_MISSING && v.size == size && memcmp(v.data, t->where_value, size) == 0;
    return equal != t->where_not;
}

// The first field of the template that the record lacks; −1: none.
static int missing_field(const struct record_text * t, int i, const struct json_value * values) {
    for (int k = t->templates[i].parts_begin; k < t->templates[i].parts_end; ++k) {
        const int path = t->parts[k].literal == NULL ? t->parts[k].path : -1;
        if (path >= 0 && values[path].kind == JSON_MISSING) {
            return path;
        }
    }
    return -1;
}

static const char * quote_path(char * buf, size_t buf_size, const struct json_path * p) {
    const size_t size = (size_t) (p->part[p->n_parts - 1] + p->size[p->n_parts - 1] - p->part[0]);
    return slice_quote(buf, buf_size, (struct slice) { p->part[0], size });
}

enum record_text_status record_text_make(const struct record_text * t, const char * json,
        size_t size, struct buffer * text, struct buffer * source, int * used, int64_t * n_lone,
        struct lrnn_error * err) {
    char              quote[128];
    struct json_value values[JSON_MAX_PATHS];
    struct json_error error;
    text->n = 0;
    source->n = 0;
    *n_lone = 0;
    const enum json_kind kind = json_read(json, size, t->paths, t->n_paths, values, &error);
    if (kind == JSON_MISSING) {
        error_bad_file(err, "not JSON at byte %zu of the record: %s", error.at, error.what);
        return RECORD_TEXT_MALFORMED;
    }
    if (kind != JSON_OBJECT) {
        error_bad_file(err, "the record is %s, expected an object", json_kind_name(kind));
        return RECORD_TEXT_MALFORMED;
    }
    if (!passes(t, values)) {
        return RECORD_TEXT_FILTERED;
    }
    int i = 0;
    while (i < t->n_templates && missing_field(t, i, values) >= 0) {
        i++;
    }
    if (i == t->n_templates) {
        error_bad_file(err, "no field %s%s",
                quote_path(quote, sizeof(quote), &t->paths[missing_field(t, 0, values)]),
                t->n_templates > 1 ? ", and none of the other templates fits"
                                   : "; --template '{FIELD}' names another");
        return RECORD_TEXT_MALFORMED;
    }
    *used = i;
    for (int k = t->templates[i].parts_begin; k < t->templates[i].parts_end; ++k) {
        if (t->parts[k].literal != NULL) {
            if (!buffer_append(text, t->parts[k].literal, t->parts[k].size)) {
                return RECORD_TEXT_NO_MEMORY;
            }
            continue;
        }
        const struct json_value v = values[t->parts[k].path];
        if (v.kind != JSON_STRING) {
            error_bad_file(err, "field %s is %s, expected a string",
                    quote_path(quote, sizeof(quote), &t->paths[t->parts[k].path]),
                    json_kind_name(v.kind));
            return RECORD_TEXT_MALFORMED;
        }
        if (!json_read_string(v, text, n_lone)) {
            return RECORD_TEXT_NO_MEMORY;
        }
    }
    int64_t n_lone_source = 0;
    if (t->source >= 0 && values[t->source].kind == JSON_STRING &&
            !json_read_string(values[t->source], source, &n_lone_source)) {
        return RECORD_TEXT_NO_MEMORY;
    }
    return RECORD_TEXT_TAKEN;
}
