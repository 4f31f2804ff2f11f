#include "base/json-read.h"

#include "base/slice.h"
#include "base/unicode.h"

#include <string.h>

struct reader {
    const char *             begin;
    const char *             p;
    const char *             end;
    const struct json_path * paths;
    struct json_value *      values;
    struct json_error        error;
};

const char * json_kind_name(enum json_kind kind) {
    switch (kind) {
        case JSON_OBJECT: return "an object";
        case JSON_ARRAY: return "an array";
        case JSON_STRING: return "a string";
        case JSON_NUMBER: return "a number";
        case JSON_TRUE: return "true";
        case JSON_FALSE: return "false";
        case JSON_NULL: return "null";
        default: return "missing";
    }
}

bool json_path_parse(const char * text, size_t size, struct json_path * path) {
    const char * end = text + size;
    for (path->n_parts = 0; path->n_parts < JSON_MAX_PARTS;) {
        const char * dot = memchr(text, '.', (size_t) (end - text));
        const char * stop = dot != NULL ? dot : end;
        if (stop == text) {
            return false;
        }
        path->part[path->n_parts] = text;
        path->size[path->n_parts++] = (size_t) (stop - text);
        if (dot == NULL) {
            return true;
        }
        text = dot + 1;
    }
    return false;
}

// ---- Strings ------------------------------------------------------------------------------------

// Returns the number after "\u", or −1.
static int32_t hex4(const char * p, const char * end) {
    if (end - p < 4) {
        return -1;
    }
    int32_t x = 0;
    for (int i = 0; i < 4; ++i) {
        const int digit = hex_digit(p[i]);
        if (digit < 0) {
            return -1;
        }
        x = x << 4 | digit;
    }
    return x;
}

// Returns the character of the escape at *p, in text that was checked, and advances p past it.
static uint32_t unescape(const char ** p, const char * end, int64_t * n_lone) {
    const char c = (*p)[1];
    *p += 2;
    switch (c) {
        case 'b': return '\b';
        case 'f': return '\f';
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        case 'u': break;
        default: return (uint8_t) c; // " \ /
    }
    const uint32_t x = (uint32_t) hex4(*p, end);
    *p += 4;
    if (x < 0xD800 || x > 0xDFFF) {
        return x;
    }
    const char *  q = *p;
    const int32_t low =
            x < 0xDC00 && end - q >= 6 && q[0] == '\\' && q[1] == 'u' ? hex4(q + 2, end) : -1;
    if (low < 0xDC00 || low > 0xDFFF) {
        *n_lone += 1;
        return 0xFFFD;
    }
    *p += 6;
    return 0x10000 + ((x - 0xD800) << 10 | ((uint32_t) low - 0xDC00));
}

bool json_read_string(struct json_value string, struct buffer * out, int64_t * n_lone) {
    const char * p = string.data + 1;
    const char * end = string.data + string.size - 1;
    while (p < end) {
        const char * escape = memchr(p, '\\', (size_t) (end - p));
        const char * stop = escape != NULL ? escape : end;
        if (!buffer_append(out, p, (size_t) (stop - p))) {
            return false;
        }
        p = stop;
        if (escape != NULL) {
            char      utf8[4];
            const int n = utf8_encode(unescape(&p, end, n_lone), utf8);
            if (!buffer_append(out, utf8, (size_t) n)) {
                return false;
            }
        }
    }
    return true;
}

bool json_string_is(struct json_value string, const char * text, size_t size) {
    const char * p = string.data + 1;
    const char * end = string.data + string.size - 1;
    int64_t      n_lone;
    while (p < end) {
        char utf8[4];
        int  n = 1;
        if (*p == '\\') {
            n_lone = 0;
            n = utf8_encode(unescape(&p, end, &n_lone), utf8);
        } else {
            utf8[0] = *p++;
        }
        if (size < (size_t) n || memcmp(text, utf8, (size_t) n) != 0) {
            return false;
        }
        text += n;
        size -= (size_t) n;
    }
    return size == 0;
}

// ---- The grammar --------------------------------------------------------------------------------

static bool fail(struct reader * s, const char * what) {
    s->error = (struct json_error) { (size_t) (s->p - s->begin), what };
    return false;
}

// Returns the next byte, or −1 at the end.
static int peek(const struct reader * s) {
    return s->p < s->end ? (uint8_t) *s->p : -1;
}

static void skip_space(struct reader * s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) {
        s->p++;
    }
}

// Returns true if one of eight bytes is outside 0x20 to 0x7F, or is " or \. A subtraction borrows
// from the next byte only if its own byte is such a byte; then the result is true anyway.
static bool has_special(uint64_t x) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t quote = x ^ ones * '"';
    const uint64_t slash = x ^ ones * '\\';
    return ((x | (x - ones * 0x20) | (quote - ones) | (slash - ones)) & ones * 0x80) != 0;
}

// Advances from the opening quote at p past the closing quote.
static bool read_string(struct reader * s) {
    s->p++;
    for (;;) {
        for (uint64_t x; s->end - s->p >= 8; s->p += 8) {
            memcpy(&x, s->p, 8);
            if (has_special(x)) {
                break;
            }
        }
        const int c = peek(s);
        if (c == '"') {
            s->p++;
            return true;
        }
        if (c == '\\') {
            const char e = s->end - s->p > 1 ? s->p[1] : '\0';
            if (e == 'u' ? hex4(s->p + 2, s->end) < 0
                         : e == '\0' || strchr("\"\\/bfnrt", e) == NULL) {
                return fail(s, "invalid escape");
            }
            s->p += e == 'u' ? 6 : 2;
        } else if (c >= 0x80) {
            uint32_t  cp;
            int       bad;
            const int n = utf8_decode(s->p, s->end, &cp, &bad);
            if (n == 0) {
                return fail(s, "not UTF-8");
            }
            s->p += n;
        } else if (c >= 0x20) {
            s->p++;
        } else {
            return fail(s, c < 0 ? "unterminated string" : "control character in a string");
        }
    }
}

static bool read_digits(struct reader * s) {
    const char * begin = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        s->p++;
    }
    return s->p > begin;
}

// -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
static bool read_number(struct reader * s) {
    if (*s->p == '-') {
        s->p++;
    }
    if (peek(s) == '0') {
        s->p++;
    } else if (!read_digits(s)) {
        return fail(s, "expected a digit");
    }
    if (peek(s) == '.') {
        s->p++;
        if (!read_digits(s)) {
            return fail(s, "expected a digit");
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->p++;
        if (peek(s) == '+' || peek(s) == '-') {
            s->p++;
        }
        if (!read_digits(s)) {
            return fail(s, "expected a digit");
        }
    }
    return true;
}

static bool read_word(struct reader * s, const char * word) {
    const size_t size = strlen(word);
    if ((size_t) (s->end - s->p) < size || memcmp(s->p, word, size) != 0) {
        return fail(s, "expected a value");
    }
    s->p += size;
    return true;
}

// After an item of an array or object: a comma, or the end, which sets *is_end.
static bool read_separator(struct reader * s, char close, bool * is_end) {
    skip_space(s);
    const int c = peek(s);
    if (c != ',' && c != close) {
        return fail(s, close == ']' ? "expected ',' or ']'" : "expected ',' or '}'");
    }
    s->p++;
    *is_end = c == close;
    if (!*is_end) { // white space after the end is no part of the value
        skip_space(s);
    }
    return true;
}

static enum json_kind read_value(struct reader * s, uint32_t active, int depth);

static bool read_array(struct reader * s, int depth) {
    s->p++;
    skip_space(s);
    if (peek(s) == ']') {
        s->p++;
        return true;
    }
    for (bool is_end = false; !is_end;) { // paths do not enter arrays
        if (read_value(s, 0, depth + 1) == JSON_MISSING || !read_separator(s, ']', &is_end)) {
            return false;
        }
    }
    return true;
}

// active: bit i is set if the first `depth` parts of path i lead to this object.
static bool read_object(struct reader * s, uint32_t active, int depth) {
    s->p++;
    skip_space(s);
    if (peek(s) == '}') {
        s->p++;
        return true;
    }
    for (bool is_end = false; !is_end;) {
        struct json_value key = { JSON_STRING, s->p, 0 };
        if (peek(s) != '"') {
            return fail(s, "expected a key in quotes");
        }
        if (!read_string(s)) {
            return false;
        }
        key.size = (size_t) (s->p - key.data);

        uint32_t here = 0;
        for (int i = 0; i < JSON_MAX_PATHS && active >> i != 0; ++i) {
            const struct json_path * path = &s->paths[i];
            if ((active >> i & 1) != 0 && path->n_parts > depth &&
                    json_string_is(key, path->part[depth], path->size[depth])) {
                here |= UINT32_C(1) << i;
                s->values[i] = (struct json_value) { 0 }; // drop an earlier value of the same key
            }
        }

        skip_space(s);
        if (peek(s) != ':') {
            return fail(s, "expected ':'");
        }
        s->p++;
        skip_space(s);
        const char *         begin = s->p;
        const enum json_kind kind = read_value(s, here, depth + 1);
        if (kind == JSON_MISSING) {
            return false;
        }
        for (int i = 0; i < JSON_MAX_PATHS && here >> i != 0; ++i) {
            if ((here >> i & 1) != 0 && s->paths[i].n_parts == depth + 1) {
                s->values[i] = (struct json_value) { kind, begin, (size_t) (s->p - begin) };
            }
        }

        if (!read_separator(s, '}', &is_end)) {
            return false;
        }
    }
    return true;
}

static enum json_kind read_value(struct reader * s, uint32_t active, int depth) {
    const int c = peek(s);
    if ((c == '{' || c == '[') && depth >= JSON_MAX_DEPTH) {
        fail(s, "arrays and objects are nested deeper than 256");
        return JSON_MISSING;
    }
    switch (c) {
        case '{': return read_object(s, active, depth) ? JSON_OBJECT : JSON_MISSING;
        case '[': return read_array(s, depth) ? JSON_ARRAY : JSON_MISSING;
        case '"': return read_string(s) ? JSON_STRING : JSON_MISSING;
        case 't': return read_word(s, "true") ? JSON_TRUE : JSON_MISSING;
        case 'f': return read_word(s, "false") ? JSON_FALSE : JSON_MISSING;
        case 'n': return read_word(s, "null") ? JSON_NULL : JSON_MISSING;
        default: break;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return read_number(s) ? JSON_NUMBER : JSON_MISSING;
    }
    fail(s, "expected a value");
    return JSON_MISSING;
}

enum json_kind json_read(const char * text, size_t size, const struct json_path * paths,
        int n_paths, struct json_value * values, struct json_error * error) {
    struct reader s = {
        .begin = text, .p = text, .end = text + size, .paths = paths, .values = values
    };
    for (int i = 0; i < n_paths; ++i) {
        values[i] = (struct json_value) { 0 };
    }
    skip_space(&s);
    const uint32_t active = n_paths >= JSON_MAX_PATHS ? UINT32_MAX : (UINT32_C(1) << n_paths) - 1;
    enum json_kind kind = read_value(&s, active, 0);
    if (kind != JSON_MISSING) {
        skip_space(&s);
        if (s.p < s.end) {
            fail(&s, "text after the value");
            kind = JSON_MISSING;
        }
    }
    *error = s.error;
    return kind;
}

// Reads the value at s->p, removes it and the separator before it from the list, an array or an
// object of checked JSON.
static bool take_item(
        struct reader * s, struct json_value * list, char close, struct json_value * item) {
    item->data = s->p;
    item->kind = peek(s) == close ? JSON_MISSING : read_value(s, 0, 0);
    item->size = (size_t) (s->p - item->data);
    if (item->kind == JSON_MISSING) {
        *list = (struct json_value) { 0 };
        return false;
    }
    skip_space(s);
    list->data = s->p; // at ',' or the end
    list->size = (size_t) (s->end - s->p);
    return true;
}

bool json_array_next(struct json_value * array, struct json_value * item) {
    struct reader s = { .begin = array->data, .end = array->data + array->size };
    if (array->kind != JSON_ARRAY) {
        return false;
    }
    s.p = s.begin + 1; // past '[' or ','
    skip_space(&s);
    return take_item(&s, array, ']', item);
}

bool json_object_next(
        struct json_value * object, struct json_value * key, struct json_value * item) {
    struct reader s = { .begin = object->data, .end = object->data + object->size };
    if (object->kind != JSON_OBJECT) {
        return false;
    }
    s.p = s.begin + 1; // past '{' or ','
    skip_space(&s);
    *key = (struct json_value) { JSON_STRING, s.p, 0 };
    if (peek(&s) == '"' && read_string(&s)) {
        key->size = (size_t) (s.p - key->data);
        skip_space(&s);
        s.p++; // ':'
        skip_space(&s);
    }
    return take_item(&s, object, '}', item);
}
