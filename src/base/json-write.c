#include "base/json-write.h"

#include "base/unicode.h"

#include <math.h>
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
