#include "base/json-write.h"

#include <math.h>
#include <stdint.h>

// Bytes of the UTF-8 character at p, of which `size` bytes are there; 0 if there is none: a stray
// or missing continuation, an overlong form, a surrogate, a number beyond U+10FFFF (Unicode
// standard, table 3-7).
static size_t utf8_length(const uint8_t * p, size_t size) {
    const uint8_t c = p[0];
    size_t        n;
    uint8_t       low  = 0x80; // of the second byte
    uint8_t       high = 0xbf;

    if (c < 0x80) {
        return 1;
    } else if (c >= 0xc2 && c <= 0xdf) {
        n = 2;
    } else if (c >= 0xe0 && c <= 0xef) {
        n    = 3;
        low  = c == 0xe0 ? 0xa0 : 0x80;
        high = c == 0xed ? 0x9f : 0xbf;
    } else if (c >= 0xf0 && c <= 0xf4) {
        n    = 4;
        low  = c == 0xf0 ? 0x90 : 0x80;
        high = c == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (size < n || p[1] < low || p[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < n; ++i) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}

void json_string(FILE * out, const char * text, size_t size) {
    const uint8_t * p = (const uint8_t *) text;

    putc('"', out);
    for (size_t i = 0; i < size;) {
        const size_t n = utf8_length(p + i, size - i);
        if (n == 0) {
            fputs("\\ufffd", out);
            i++;
            continue;
        }
        if (n > 1) {
            fwrite(p + i, 1, n, out);
        } else if (p[i] == '"' || p[i] == '\\') {
            fprintf(out, "\\%c", p[i]);
        } else if (p[i] == '\n') {
            fputs("\\n", out);
        } else if (p[i] < 0x20 || p[i] == 0x7f) {
            fprintf(out, "\\u%04x", p[i]);
        } else {
            putc(p[i], out);
        }
        i += n;
    }
    putc('"', out);
}

void json_number(FILE * out, double x) {
    if (isfinite(x)) {
        fprintf(out, "%.8g", x);
    } else {
        fputs("null", out);
    }
}
