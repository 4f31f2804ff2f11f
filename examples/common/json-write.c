#include "json-write.h"

#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_write_bytes(FILE * out, const char * text, size_t size) {
    const char * end = text + size;

    putc('"', out);
    for (const char * p = text; p < end;) {
        uint32_t  cp;
        int       bad;
        const int n = utf8_decode(p, end, &cp, &bad);
        if (n == 0) {
            fputs("\\ufffd", out);
        } else if (cp == '"' || cp == '\\') {
            fprintf(out, "\\%c", (char) cp);
        } else if (cp == '\n') {
            fputs("\\n", out);
        } else if (cp < 0x20 || cp == 0x7f) {
            fprintf(out, "\\u%04x", (unsigned) cp);
        } else {
            fwrite(p, 1, (size_t) n, out);
        }
        p += n > 0 ? n : 1;
    }
    putc('"', out);
}

void json_write_string(FILE * out, const char * text) {
    json_write_bytes(out, text, strlen(text));
}

void json_write_number(FILE * out, double x) {
    if (isfinite(x)) {
        fprintf(out, "%.8g", x);
    } else {
        fputs("null", out);
    }
}

//
// Objects and arrays
//

static void new_line(struct json_writer * w) {
    fprintf(w->out, "\n%*s", w->indent, "");
    w->at_line = false;
}

// Writes what comes before a value: a comma, a line break, the key.
static void begin(struct json_writer * w, const char * key) {
    const bool is_first = !w->has_values[w->depth];
    if (!is_first) {
        putc(',', w->out);
    }
    if (w->at_line) {
        new_line(w);
    } else if (w->depth > 0 && (!is_first || !w->is_array[w->depth])) {
        putc(' ', w->out);
    }
    w->has_values[w->depth] = w->depth > 0;
    if (key != NULL) {
        json_write_string(w->out, key);
        fputs(": ", w->out);
    }
}

static void open(struct json_writer * w, const char * key, bool is_array) {
    begin(w, key);
    putc(is_array ? '[' : '{', w->out);
    w->depth += w->depth < JSON_WRITER_DEPTH;
    w->has_values[w->depth] = false;
    w->is_array[w->depth] = is_array;
}

void json_object(struct json_writer * w, const char * key) {
    open(w, key, false);
}

void json_array(struct json_writer * w, const char * key) {
    open(w, key, true);
}

void json_end(struct json_writer * w) {
    if (w->at_line) {
        new_line(w);
    } else if (!w->is_array[w->depth]) {
        putc(' ', w->out);
    }
    putc(w->is_array[w->depth] ? ']' : '}', w->out);
    w->depth--;
}

struct json_writer * json_line(struct json_writer * w, int indent) {
    w->at_line = true;
    w->indent = indent;
    return w;
}

void json_bytes(struct json_writer * w, const char * key, const char * text, size_t size) {
    begin(w, key);
    json_write_bytes(w->out, text, size);
}

void json_verbatim(struct json_writer * w, const char * key, const char * json, size_t size) {
    begin(w, key);
    fwrite(json, 1, size, w->out);
}

void json_null(struct json_writer * w, const char * key) {
    json_verbatim(w, key, "null", 4);
}

void json_string(struct json_writer * w, const char * key, const char * text) {
    if (text != NULL) {
        json_bytes(w, key, text, strlen(text));
    } else {
        json_null(w, key);
    }
}

void json_int(struct json_writer * w, const char * key, int64_t x) {
    begin(w, key);
    fprintf(w->out, "%" PRId64, x);
}

void json_number(struct json_writer * w, const char * key, double x) {
    begin(w, key);
    json_write_number(w->out, x);
}

void json_bool(struct json_writer * w, const char * key, bool x) {
    begin(w, key);
    fputs(x ? "true" : "false", w->out);
}

void json_exact(struct json_writer * w, const char * key, double x, int digits, bool is_float) {
    const bool short_enough = is_float && (double) (float) x == x;
    char       text[40] = "null";
    for (; digits <= 17 && isfinite(x); ++digits) {
        snprintf(text, sizeof(text), "%.*g", digits, x);
        if (short_enough ? strtof(text, NULL) == (float) x : strtod(text, NULL) == x) {
            break;
        }
    }
    begin(w, key);
    fputs(text, w->out);
}
