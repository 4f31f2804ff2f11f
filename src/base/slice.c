#include "base/slice.h"

#include "base/unicode.h"

#include <string.h>

bool lrnn_text_is(struct lrnn_text text, const char * word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

int lrnn_text_compare(struct lrnn_text a, struct lrnn_text b) {
    const int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

// C0, DEL and C1
static bool is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

bool lrnn_text_is_utf8(struct lrnn_text text, bool * has_control) {
    const char * end = text.data + text.size;
    *has_control     = false;
    for (const char * p = text.data; p < end;) {
        uint32_t  cp;
        int       bad;
        const int n = lrnn_utf8_decode(p, end, &cp, &bad);
        if (n == 0) {
            return false;
        }
        *has_control |= is_control(cp);
        p += n;
    }
    return true;
}

const char * lrnn_text_quote(char * buf, size_t buf_size, struct lrnn_text text) {
    static const char CUT[] = "...'";

    const char * p    = text.data;
    const char * end  = text.data + text.size;
    char *       out  = buf;
    char *       last = buf + buf_size -
                  sizeof(CUT); // where the cut, which includes the terminator, still fits
    *out++ = '\'';
    while (p < end) {
        uint32_t   cp;
        int        n;
        const int  length = lrnn_utf8_decode(p, end, &cp, &n);
        const bool plain  = length > 0 && !is_control(cp);
        if (length > 0) {
            n = length;
        }
        if ((plain ? n : 1) > last - out) {
            break;
        }
        if (plain) {
            memcpy(out, p, (size_t) n);
            out += n;
        } else {
            *out++ = '?';
        }
        p += n;
    }
    strcpy(out, p < end ? CUT : "'");
    return buf;
}
