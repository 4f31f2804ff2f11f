#include "eval/data/records.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/json-read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//
// Forms
//

static bool record_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// The offset of the first byte from i on that is not white space, or n.
static size_t record_skip_space(const char * p, size_t n, size_t i) {
    while (i < n && record_is_space(p[i])) {
        i++;
    }
    return i;
}

// Skips the string whose opening quote is at i. Returns n if it does not end.
static size_t skip_string(const char * p, size_t n, size_t i) {
    for (i++; i < n && p[i] != '"'; ++i) {
        i += p[i] == '\\';
    }
    return i < n ? i + 1 : n;
}

#define CONVERT       "; convert it to JSON lines: lrnn-convert data FILE -o OUT.jsonl"
#define PIPE(command) "; read the data from a pipe: " command " -dc FILE"

// Formats that cannot be read.
static const struct {
    size_t       at, size;
    const char * magic;
    const char * what;
} FOREIGN[] = {
    { 0, 5, "PAR1\x15", "Parquet" CONVERT },
    { 0, 6, "ARROW1", "an Arrow file" CONVERT },
    { 0, 4, "\xff\xff\xff\xff", "an Arrow stream" CONVERT },
    { 0, 2, "\x1f\x8b", "compressed twice; decompress it once" },
    { 0, 4, "\x28\xb5\x2f\xfd", "compressed twice; decompress it once" },
    { 0, 6, "\xfd\x37zXZ\0", "compressed with xz" PIPE("xz") },
    { 4, 6, "1AY&SY", "compressed with bzip2" PIPE("bzip2") },
    { 0, 4, "\x04\x22\x4d\x18", "compressed with lz4" PIPE("lz4") },
    { 0, 4, "PK\3\4", "a ZIP archive; unpack it and pass the folder" },
    { 257, 5, "ustar", "a tar archive; unpack it and pass the folder" },
    { 0, 2, "\xff\xfe", "UTF-16; convert it: iconv -f UTF-16 -t UTF-8" },
    { 0, 2, "\xfe\xff", "UTF-16; convert it: iconv -f UTF-16 -t UTF-8" },
};

// Describes a known format that cannot be read (Parquet, Arrow, archives, UTF-16) and what to do
// about it; NULL: none of them.
static const char * record_form_foreign(const char * p, size_t n) {
    for (size_t i = 0; i < sizeof(FOREIGN) / sizeof(FOREIGN[0]); ++i) {
        if (n >= FOREIGN[i].at + FOREIGN[i].size &&
                memcmp(p + FOREIGN[i].at, FOREIGN[i].magic, FOREIGN[i].size) == 0) {
            return FOREIGN[i].what;
        }
    }
    return NULL;
}

// If the object at i begins like { "key": scalar, … "Data": [, returns the offset after the
// bracket; otherwise 0.
static size_t wrapped_at(const char * p, size_t n, size_t i) {
    do {
        i = record_skip_space(p, n, i + 1);
        if (i == n || p[i] != '"') {
            return 0;
        }
        const size_t key = i;
        i = skip_string(p, n, i);
        const bool is_data = i - key == 6 && memcmp(p + key, "\"Data\"", 6) == 0;
        i = record_skip_space(p, n, i);
        if (i == n || p[i] != ':') {
            return 0;
        }
        i = record_skip_space(p, n, i + 1);
        if (i == n) {
            return 0;
        }
        if (is_data) {
            return p[i] == '[' ? i + 1 : 0;
        }
        if (p[i] == '"') {
            i = record_skip_space(p, n, skip_string(p, n, i));
        } else {
            while (i < n && strchr(",}[]{\"", p[i]) == NULL) {
                i++;
            }
        }
    } while (i < n && p[i] == ',');
    return 0;
}

// True if the value at i is alone on its line, as far as the bytes go. Records are then lines, and
// a bad line is one bad record. A line break inside a string is not JSON, so it is also a bad line.
static bool is_a_line(const char * p, size_t n, size_t i) {
    int depth = 0;
    for (; i < n; ++i) {
        switch (p[i]) {
            case '{':
            case '[': depth++; break;
            case '}':
            case ']':
                if (--depth == 0) {
                    for (i++; i < n && p[i] != '\n'; ++i) {
                        if (!record_is_space(p[i])) {
                            return false;
                        }
                    }
                    return true;
                }
                break;
            case '\n': return false;
            case '"':
                for (i++; i < n && p[i] != '"'; ++i) {
                    if (p[i] == '\n') {
                        return true;
                    }
                    i += p[i] == '\\';
                }
                break;
            default: break;
        }
    }
    return true;
}

// - p, n: the first bytes of the file
// - start: receives the offset at which the first record may begin
static enum record_form record_form_of(const char * p, size_t n, size_t * start) {
    *start = 0;
    if (n == 0) {
        return RECORD_FORM_EMPTY;
    }
    const size_t i = record_skip_space(p, n, 0);
    const size_t k = i < n ? record_skip_space(p, n, i + 1) : n; // after the bracket
    if (k == n || (p[i] == '{' ? p[k] != '"' && p[k] != '}'
                               : p[i] != '[' || (p[k] != '{' && p[k] != ']'))) {
        return RECORD_FORM_TEXT;
    }
    if (p[i] == '[') {
        *start = i + 1;
        return RECORD_FORM_ARRAY;
    }
    *start = wrapped_at(p, n, i);
    return *start > 0           ? RECORD_FORM_WRAPPED
           : is_a_line(p, n, i) ? RECORD_FORM_LINES
                                : RECORD_FORM_VALUES;
}

enum {
    READ_SIZE = 1 << 17,
    HEAD_SIZE = 1 << 16, // bytes that decide the form
};

//
// The buffer
//

static const char * data_of(const struct record_reader * r) {
    return r->buffer.data + r->begin;
}

static size_t left_of(const struct record_reader * r) {
    return r->buffer.n - r->begin;
}

// Discards the bytes before `begin` and reads more from the source; sets at_end at its end.
static bool read_more(struct record_reader * r, struct lrnn_error * err) {
    struct buffer * b = &r->buffer;
    if (r->begin > 0) {
        memmove(b->data, b->data + r->begin, b->n - r->begin);
        b->n -= r->begin;
        r->begin = 0;
    }
    if (!array_grow(&b->data, &b->capacity, b->n + READ_SIZE, 1)) {
        return error_no_memory(err, "a record of more than %zu bytes of %s", b->n, r->name);
    }
    size_t n;
    if (!byte_source_read(r->source, b->data + b->n, READ_SIZE, &n, err)) {
        return false;
    }
    b->n += n;
    r->at_end = n == 0;
    return true;
}

// Advances by n bytes and counts their lines.
static void use(struct record_reader * r, size_t n) {
    const char * p = data_of(r);
    const char * end = p + n;
    while (n > 0 && (p = memchr(p, '\n', (size_t) (end - p))) != NULL) {
        r->line++;
        p++;
    }
    r->begin += n;
}

//
// Opening
//

// Checks the JSON around the array of a wrapped file: its front with array and object closed, or
// its rest after an object with an empty array.
static bool check_wrapping(struct record_reader * r, const char * front, size_t n_front,
        const char * rest, size_t n_rest, struct lrnn_error * err) {
    struct buffer     b = { 0 };
    struct json_error error = { 0, "out of memory" };
    bool              ok = buffer_append(&b, front, n_front) && buffer_append(&b, rest, n_rest);
    ok = ok && json_read(b.data, b.n, NULL, 0, NULL, &error) == JSON_OBJECT;
    if (!ok) {
        error_bad_file(err, "%s: line %lld: not JSON around the array Data: %s", r->name,
                (long long) r->line, error.what);
    }
    buffer_free(&b);
    return ok;
}

bool record_reader_open(struct record_reader * r, const char * path, struct lrnn_error * err) {
    const size_t length = strlen(path);
    const size_t room = sizeof(r->name) - 1;
    if (strcmp(path, "-") == 0) {
        snprintf(r->name, sizeof(r->name), "standard input");
    } else if (length > room) {
        snprintf(r->name, sizeof(r->name), "...%s", path + length - (room - 3));
    } else {
        snprintf(r->name, sizeof(r->name), "%s", path);
    }
    r->buffer.n = 0;
    r->begin = 0;
    r->at_end = false;
    r->line = 1;
    r->needs_comma = false;
    r->is_over = false;
    r->source = byte_source_open(path, err);
    if (r->source == NULL) {
        return false;
    }
    while (left_of(r) < HEAD_SIZE && !r->at_end) {
        if (!read_more(r, err)) {
            return false;
        }
    }
    const char * what = record_form_foreign(data_of(r), left_of(r));
    if (what != NULL) {
        return error_bad_file(err, "%s is %s", r->name, what);
    }
    if (left_of(r) >= 3 && memcmp(data_of(r), "\xef\xbb\xbf", 3) == 0) {
        r->begin = 3; // a byte order mark
    }
    size_t start;
    r->form = record_form_of(data_of(r), left_of(r), &start);
    if (r->form == RECORD_FORM_WRAPPED && !check_wrapping(r, data_of(r), start, "]}", 2, err)) {
        return false;
    }
    use(r, start);
    return true;
}

//
// Records
//

// Returns the record of n bytes at `begin`.
static enum record_status give(
        struct record_reader * r, struct record * record, size_t n, int64_t line) {
    const bool too_long = n > r->max_record;
    *record = (struct record) { too_long ? NULL : data_of(r), too_long ? 0 : n, line };
    return too_long ? RECORD_TOO_LONG : RECORD_READ;
}

static enum record_status next_line(
        struct record_reader * r, struct record * record, struct lrnn_error * err) {
    bool too_long = false;
    for (size_t seen = 0;;) {
        const char * newline =
                left_of(r) > seen ? memchr(data_of(r) + seen, '\n', left_of(r) - seen) : NULL;
        if (newline == NULL && !r->at_end) {
            if (left_of(r) > r->max_record) {
                too_long = true;
                r->begin = r->buffer.n; // discard the rest of the line
            }
            seen = left_of(r);
            if (!read_more(r, err)) {
                return RECORD_ERROR;
            }
            continue;
        }
        const size_t  n = newline != NULL ? (size_t) (newline - data_of(r)) : left_of(r);
        const size_t  text = record_skip_space(data_of(r), n, 0);
        const int64_t line = r->line;
        if (too_long || text < n) {
            const enum record_status status = give(r, record, too_long ? SIZE_MAX : n, line);
            r->begin += n + (newline != NULL);
            r->line++;
            return status;
        }
        if (newline == NULL) {
            return RECORD_END;
        }
        r->begin += n + 1; // a blank line
        r->line++;
        seen = 0;
    }
}

// Advances to the next byte that is not white space. *c: that byte; −1: end of file.
static bool next_byte(struct record_reader * r, int * c, struct lrnn_error * err) {
    for (;;) {
        const size_t n = record_skip_space(data_of(r), left_of(r), 0);
        use(r, n);
        if (left_of(r) > 0) {
            *c = (uint8_t) *data_of(r);
            return true;
        }
        if (r->at_end) {
            *c = -1;
            return true;
        }
        if (!read_more(r, err)) {
            return false;
        }
    }
}

// The value at `begin`, delimited by brackets and quotes alone. It may not be valid JSON; the next
// value is found in any case.
static enum record_status next_value(
        struct record_reader * r, struct record * record, struct lrnn_error * err) {
    const int64_t line = r->line;
    bool          too_long = false;
    bool          in_string = false;
    bool          escaped = false;
    int           depth = 0;
    for (size_t i = 0;;) {
        const char * p = data_of(r);
        const size_t n = left_of(r);
        bool         done = false;
        for (; i < n && !done; ++i) {
            const char c = p[i];
            if (in_string) {
                if (escaped) {
                    escaped = false;
                } else if (c == '\\') {
                    escaped = true;
                } else if (c == '"') {
                    in_string = false;
                    done = depth == 0;
                }
            } else if (c == '"') {
                in_string = true;
            } else if (c == '{' || c == '[') {
                depth++;
            } else if (c == '}' || c == ']') {
                if (depth == 0) {
                    break; // the end of the array, after a number or word
                }
                done = --depth == 0;
            } else if (depth == 0 && (c == ',' || record_is_space(c))) {
                break;
            }
        }
        if (done || i < n || (r->at_end && depth == 0 && !in_string)) {
            const enum record_status status = give(r, record, too_long ? SIZE_MAX : i, line);
            use(r, i);
            return status;
        }
        if (r->at_end) {
            error_bad_file(err, "%s: the file ends inside the record of line %lld", r->name,
                    (long long) line);
            return RECORD_ERROR;
        }
        if (n > r->max_record) {
            too_long = true;
            use(r, n);
            i = 0;
        }
        if (!read_more(r, err)) {
            return RECORD_ERROR;
        }
    }
}

// Reads the rest of the file into memory. *too_long: it exceeds the limit of a record.
static bool read_rest(struct record_reader * r, bool * too_long, struct lrnn_error * err) {
    *too_long = false;
    while (!r->at_end) {
        if (left_of(r) > r->max_record) {
            *too_long = true;
            return true;
        }
        if (!read_more(r, err)) {
            return false;
        }
    }
    *too_long = left_of(r) > r->max_record;
    return true;
}

static enum record_status next_text(
        struct record_reader * r, struct record * record, struct lrnn_error * err) {
    bool too_long;
    if (!read_rest(r, &too_long, err)) {
        return RECORD_ERROR;
    }
    r->is_over = true;
    return give(r, record, too_long ? SIZE_MAX : left_of(r), 0);
}

// Checks what follows the end of an array.
static enum record_status end_array(struct record_reader * r, struct lrnn_error * err) {
    static const char EMPTY[] = "{\"Data\":[]";

    r->is_over = true;
    if (r->form == RECORD_FORM_WRAPPED) {
        bool too_long;
        if (!read_rest(r, &too_long, err)) {
            return RECORD_ERROR;
        }
        if (too_long) {
            error_bad_file(err, "%s: line %lld: more than %zu bytes after the array Data", r->name,
                    (long long) r->line, r->max_record);
            return RECORD_ERROR;
        }
        return check_wrapping(r, EMPTY, sizeof(EMPTY) - 1, data_of(r), left_of(r), err)
                       ? RECORD_END
                       : RECORD_ERROR;
    }
    int c;
    if (!next_byte(r, &c, err)) {
        return RECORD_ERROR;
    }
    if (c >= 0) {
        error_bad_file(err, "%s: line %lld: text after the end of the array", r->name,
                (long long) r->line);
        return RECORD_ERROR;
    }
    return RECORD_END;
}

static enum record_status next_element(
        struct record_reader * r, struct record * record, struct lrnn_error * err) {
    int c;
    if (!next_byte(r, &c, err)) {
        return RECORD_ERROR;
    }
    if (c == ']') {
        use(r, 1);
        return end_array(r, err);
    }
    if (r->needs_comma) {
        if (c == ',') {
            use(r, 1);
            if (!next_byte(r, &c, err)) {
                return RECORD_ERROR;
            }
        } else if (c >= 0) {
            error_bad_file(err, "%s: line %lld: expected ',' or ']' after a record of the array",
                    r->name, (long long) r->line);
            return RECORD_ERROR;
        }
    }
    if (c < 0) {
        error_bad_file(err, "%s: the file ends inside the array, after line %lld", r->name,
                (long long) r->line);
        return RECORD_ERROR;
    }
    if (c == ',' || c == ']' || c == '}') {
        error_bad_file(err, "%s: line %lld: expected a record, found '%c'", r->name,
                (long long) r->line, c);
        return RECORD_ERROR;
    }
    r->needs_comma = true;
    return next_value(r, record, err);
}

enum record_status record_reader_next(
        struct record_reader * r, struct record * record, struct lrnn_error * err) {
    *record = (struct record) { 0 };
    if (r->is_over) {
        return RECORD_END;
    }
    switch (r->form) {
        case RECORD_FORM_TEXT: return next_text(r, record, err);
        case RECORD_FORM_LINES: return next_line(r, record, err);
        case RECORD_FORM_ARRAY:
        case RECORD_FORM_WRAPPED: return next_element(r, record, err);
        case RECORD_FORM_VALUES: {
            int c;
            if (!next_byte(r, &c, err)) {
                return RECORD_ERROR;
            }
            if (c == '}' || c == ']' || c == ',') {
                error_bad_file(err, "%s: line %lld: expected a record, found '%c'", r->name,
                        (long long) r->line, c);
                return RECORD_ERROR;
            }
            return c < 0 ? RECORD_END : next_value(r, record, err);
        }
        default: return RECORD_END;
    }
}

int64_t record_reader_position(const struct record_reader * r) {
    return r->source != NULL ? byte_source_position(r->source) : 0;
}

void record_reader_close(struct record_reader * r) {
    byte_source_free(r->source);
    r->source = NULL;
}

void record_reader_free(struct record_reader * r) {
    record_reader_close(r);
    buffer_free(&r->buffer);
}
