#include "base/slice.h"

#include "base/unicode.h"

#include <string.h>

struct slice slice_of(const char * text) {
    return (struct slice) { text, strlen(text) };
}

bool slice_is(struct slice text, const char * word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

int slice_compare(struct slice a, struct slice b) {
    const int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

int slice_distance(struct slice a, struct slice b) {
    int d[SLICE_FAR][SLICE_FAR]; // of the first i bytes of a and the first j of b
    if (a.size >= SLICE_FAR || b.size >= SLICE_FAR) {
        return SLICE_FAR;
    }
    for (int i = 0; i <= (int) a.size; ++i) {
        for (int j = 0; j <= (int) b.size; ++j) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int best = d[i - 1][j - 1] + (a.data[i - 1] != b.data[j - 1]);
            if (best > d[i - 1][j] + 1) {
                best = d[i - 1][j] + 1;
            }
            if (best > d[i][j - 1] + 1) {
                best = d[i][j - 1] + 1;
            }
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] &&
                    a.data[i - 2] == b.data[j - 1] && best > d[i - 2][j - 2] + 1) {
                best = d[i - 2][j - 2] + 1;
            }
            d[i][j] = best;
        }
    }
    return d[a.size][b.size];
}

int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// C0, DEL and C1
static bool is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
}

bool slice_is_utf8(struct slice text, bool * has_control) {
    const char * end = text.data + text.size;
    *has_control = false;
    for (const char * p = text.data; p < end;) {
        uint32_t  cp;
        int       bad;
        const int n = utf8_decode(p, end, &cp, &bad);
        if (n == 0) {
            return false;
        }
        *has_control |= is_control(cp);
        p += n;
    }
    return true;
}

const char * slice_quote(char * buf, size_t buf_size, struct slice text) {
    static const char CUT[] = "...'";

    const char * p = text.data;
    const char * end = text.data + text.size;
    char *       out = buf;
    *out++ = '\'';

    const char * last = buf + buf_size - sizeof(CUT); // leaves room for CUT and its terminator
    while (p < end) {
        uint32_t   cp;
        int        n;
        const int  length = utf8_decode(p, end, &cp, &n);
        const bool plain = length > 0 && !is_control(cp);
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
