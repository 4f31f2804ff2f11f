#include "chart/markup.h"

#include "base/unicode.h"

#include <string.h>

// The characters that XML 1.0 allows.
static bool is_xml(uint32_t cp) {
    return cp == '\t' || cp == '\n' || cp == '\r' || (cp >= 0x20 && cp <= 0xd7ff) ||
           (cp >= 0xe000 && cp <= 0xfffd) || cp >= 0x10000;
}

void markup_text(FILE * out, const char * text) {
    const char * end = text + strlen(text);
    for (const char * p = text; p < end;) {
        uint32_t  cp = 0;
        int       bad = 1;
        const int n = utf8_decode(p, end, &cp, &bad);
        if (n == 0 || !is_xml(cp)) {
            fputs(UTF8_REPLACEMENT, out);
        } else if (cp == '&') {
            fputs("&amp;", out);
        } else if (cp == '<') {
            fputs("&lt;", out);
        } else if (cp == '>') {
            fputs("&gt;", out);
        } else if (cp == '"') {
            fputs("&quot;", out);
        } else {
            fwrite(p, 1, (size_t) n, out);
        }
        p += n > 0 ? n : bad;
    }
}
