#include "base/unicode.h"

#include "base/unicode-tables.inc"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

// ---- UTF-8 --------------------------------------------------------------------------------------

// Table 3-7 of the Unicode standard: the number of bytes after the first (−1: invalid) and the
// range of the second. The ranges exclude overlong forms (E0, F0), surrogates (ED) and code points
// beyond U+10FFFF (F4).
static int utf8_follow(uint8_t first, uint8_t * lo, uint8_t * hi) {
    *lo = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *hi = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80) {
        return 0;
    }
    if (first < 0xC2 || first > 0xF4) {
        return -1;
    }
    return first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
}

int utf8_decode(const char * p, const char * end, uint32_t * cp, int * bad) {
    const uint8_t first = (uint8_t) *p;

    uint8_t   lo, hi;
    const int n = utf8_follow(first, &lo, &hi);
    if (n <= 0) {
        *cp = first;
        *bad = 1;
        return n + 1;
    }
    uint32_t c = first & (0x3Fu >> n);
    for (int i = 1; i <= n; ++i) {
        const uint8_t b = p + i < end ? (uint8_t) p[i] : 0;
        if (b < lo || b > hi) {
            *bad = i;
            return 0;
        }
        c = c << 6 | (b & 0x3F);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = c;
    return n + 1;
}

uint32_t utf8_next(const char ** p) {
    const uint8_t first = (uint8_t) *(*p)++;
    if (first < 0x80) {
        return first;
    }
    const int n = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3; // bytes that follow
    uint32_t  c = first & (0x3Fu >> n);
    for (int i = 0; i < n; ++i) {
        c = c << 6 | ((uint8_t) *(*p)++ & 0x3Fu);
    }
    return c;
}

int utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char) cp;
        return 1;
    }
    const int n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; --i) {
        out[i] = (char) (0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char) ((0xF00 >> n & 0xFF) | cp);
    return n;
}

size_t utf8_valid(const char * text, size_t len) {
    if (len == 0) {
        return 0; // text may be NULL
    }
    const char * p = text;
    const char * end = text + len;
    while (p < end) {
        uint32_t  cp;
        int       bad;
        const int n = utf8_decode(p, end, &cp, &bad);
        if (n == 0) {
            break;
        }
        p += n;
    }
    return (size_t) (p - text);
}

size_t utf8_complete(const char * text, size_t len) {
    // the first byte of an unfinished character is one of the last three
    for (size_t back = 1; back <= 3 && back <= len; ++back) {
        const char * p = text + len - back;
        if (((uint8_t) *p & 0xC0) == 0x80) {
            continue;
        }
        uint8_t   lo, hi;
        const int n = utf8_follow((uint8_t) *p, &lo, &hi);
        uint32_t  cp;
        int       bad = 0;
        if (n >= (int) back && utf8_decode(p, text + len, &cp, &bad) == 0 && bad == (int) back) {
            return len - back;
        }
        break;
    }
    return len;
}

bool utf8_replace(const char * text, size_t len, bool each_byte, struct buffer * out) {
    if (len == 0) {
        return true;
    }
    const char * p = text;
    const char * end = text + len;
    while (p < end) {
        const size_t n = utf8_valid(p, (size_t) (end - p));
        if (!buffer_append(out, p, n)) {
            return false;
        }
        p += n;
        if (p < end) {
            uint32_t cp;
            int      bad;
            utf8_decode(p, end, &cp, &bad);
            if (!buffer_append(out, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN)) {
                return false;
            }
            p += each_byte ? 1 : bad;
        }
    }
    return true;
}

// ---- Classes ------------------------------------------------------------------------------------

// The last entry of a sorted table whose key is at most `key`; that of the first entry must be. The
// key of an entry is (entry >> shift) & mask: in most tables the first code point of a range.
static size_t range_find(const uint32_t * table, size_t n, int shift, uint32_t mask, uint32_t key) {
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((table[mid] >> shift & mask) <= key) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

// Classes of the table that char_class_of does not distinguish
enum { CLASS_MARK = 4, CLASS_UPPER = 5, CLASS_LOWER = 6, CLASS_BITS = 7, CLASS_HAN = 8 };

static uint32_t class_find(uint32_t cp) {
    return unicode_classes[range_find(unicode_classes, COUNT(unicode_classes), 4, UINT32_MAX, cp)] &
           (CLASS_BITS | CLASS_HAN);
}

enum char_class char_class_of(uint32_t cp) {
    if (cp < 0x80) {
        if ((cp | 0x20) - 'a' < 26) {
            return CHAR_CLASS_LETTER;
        }
        if (cp - '0' < 10) {
            return CHAR_CLASS_NUMBER;
        }
        return cp == ' ' || cp - '\t' < 5 ? CHAR_CLASS_SPACE : CHAR_CLASS_OTHER;
    }
    switch (class_find(cp) & CLASS_BITS) {
        case CLASS_UPPER:
        case CLASS_LOWER:
        case CHAR_CLASS_LETTER: return CHAR_CLASS_LETTER;
        case CHAR_CLASS_NUMBER: return CHAR_CLASS_NUMBER;
        case CHAR_CLASS_SPACE: return CHAR_CLASS_SPACE;
        default: return CHAR_CLASS_OTHER;
    }
}

bool char_is_mark(uint32_t cp) {
    return cp >= 0x300 && (class_find(cp) & CLASS_BITS) == CLASS_MARK;
}

bool char_is_han(uint32_t cp) {
    return cp >= 0x2E80 && (class_find(cp) & CLASS_HAN) != 0;
}

int char_word_parts(uint32_t cp) {
    switch (class_find(cp) & CLASS_BITS) {
        case CLASS_UPPER: return CHAR_FRONT;
        case CLASS_LOWER: return CHAR_REST;
        case CHAR_CLASS_LETTER:
        case CLASS_MARK: return CHAR_FRONT | CHAR_REST;
        default: return 0;
    }
}

//
// Normalization form C: decompose, sort the marks after each starter by combining class, compose
// (Unicode standard, section 3.11)
//

// Below this, every character is its own NFC and combines with nothing before it.
#define NFC_FIRST  0x300

// Hangul syllables are computed (section 3.12)
#define HANGUL_S   0xAC00u
#define HANGUL_L   0x1100u
#define HANGUL_V   0x1161u
#define HANGUL_T   0x11A7u
#define HANGUL_N_L 19u
#define HANGUL_N_V 21u
#define HANGUL_N_T 28u

static uint32_t combining_class(uint32_t cp) {
    const size_t at = range_find(unicode_combining, COUNT(unicode_combining), 8, UINT32_MAX, cp);
    return cp < NFC_FIRST ? 0 : unicode_combining[at] & 0xFF;
}

enum { RUN_SHIFT = 12, RUN_INDEX = (1 << RUN_SHIFT) - 1 }; // of unicode_runs

// The decomposition of a character into *first and, unless it is 0, *second
static void decomposition_get(uint32_t index, uint32_t * first, uint32_t * second) {
    *first = unicode_decompositions[index] & 0xFFFFF;
    *second = unicode_seconds[unicode_decompositions[index] >> 20];
}

static bool decomposition_find(uint32_t cp, uint32_t * first, uint32_t * second) {
    const size_t   n = COUNT(unicode_runs);
    const size_t   run = range_find(unicode_runs, n, RUN_SHIFT, UINT32_MAX, cp);
    const uint32_t index = unicode_runs[run] & RUN_INDEX;
    const uint32_t end =
            run + 1 < n ? unicode_runs[run + 1] & RUN_INDEX : COUNT(unicode_decompositions);
    const uint32_t at = cp - (unicode_runs[run] >> RUN_SHIFT); // huge before the first run
    if (at < end - index) {
        decomposition_get(index + at, first, second);
    }
    return at < end - index;
}

static uint32_t composition_find(uint32_t a, uint32_t b) { // 0: none
    if (a - HANGUL_L < HANGUL_N_L && b - HANGUL_V < HANGUL_N_V) {
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_N_V + (b - HANGUL_V)) * HANGUL_N_T;
    }
    if (a - HANGUL_S < HANGUL_N_L * HANGUL_N_V * HANGUL_N_T && (a - HANGUL_S) % HANGUL_N_T == 0 &&
            b - HANGUL_T - 1 < HANGUL_N_T - 1) {
        return a + (b - HANGUL_T);
    }
    size_t lo = 0, hi = COUNT(unicode_compositions);
    while (lo < hi) {
        const size_t   mid = lo + (hi - lo) / 2;
        const uint32_t index = unicode_compositions[mid];
        uint32_t       first, second;
        decomposition_get(index, &first, &second);
        if (first == a && second == b) {
            const uint32_t run = unicode_runs[range_find(
                    unicode_runs, COUNT(unicode_runs), 0, RUN_INDEX, index)];
            return (run >> RUN_SHIFT) + index - (run & RUN_INDEX);
        }
        if (first < a || (first == a && second < b)) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return 0;
}

struct mark { // a character and its combining class
    uint32_t cp;
    uint32_t ccc;
};

// A starter and the marks after it. Sorting and composing never cross into the next segment, except
// for the starters that segment_add composes.
struct segment {
    struct mark * marks;
    struct mark * sorted; // second half of the same memory
    size_t        n;
    size_t        capacity;
};

static bool segment_push(struct segment * s, uint32_t cp, uint32_t ccc) {
    if (!array_grow(&s->marks, &s->capacity, s->n + 1, 2 * sizeof(s->marks[0]))) {
        return false;
    }
    s->sorted = s->marks + s->capacity;
    s->marks[s->n++] = (struct mark) { cp, ccc };
    return true;
}

// A stable counting sort: hostile text may have one letter and a million accents.
static void segment_sort(struct segment * s) {
    bool ordered = true;
    for (size_t i = 1; i < s->n; ++i) {
        ordered = ordered && s->marks[i - 1].ccc <= s->marks[i].ccc;
    }
    if (ordered) {
        return;
    }
    size_t start[257] = { 0 };
    for (size_t i = 0; i < s->n; ++i) {
        start[s->marks[i].ccc + 1]++;
    }
    for (size_t c = 1; c < 257; ++c) {
        start[c] += start[c - 1];
    }
    for (size_t i = 0; i < s->n; ++i) {
        s->sorted[start[s->marks[i].ccc]++] = s->marks[i];
    }
    memcpy(s->marks, s->sorted, s->n * sizeof(s->marks[0]));
}

// Sorts the marks and composes those that combine with the starter.
static void segment_compose(struct segment * s) {
    segment_sort(s);

    size_t   n = 0;    // marks kept
    uint32_t last = 0; // class of the last mark kept; it blocks later marks of the same class
    for (size_t i = 0; i < s->n; ++i) {
        const struct mark m = s->marks[i];
        if (n > 0 && s->marks[0].ccc == 0 && (n == 1 || last < m.ccc)) {
            const uint32_t composed = composition_find(s->marks[0].cp, m.cp);
            if (composed != 0) {
                s->marks[0].cp = composed;
                continue;
            }
        }
        s->marks[n++] = m;
        last = m.ccc;
    }
    s->n = n;
}

static bool segment_write(struct segment * s, struct buffer * out) {
    for (size_t i = 0; i < s->n; ++i) {
        char utf8[4];
        if (!buffer_append(out, utf8, (size_t) utf8_encode(s->marks[i].cp, utf8))) {
            return false;
        }
    }
    s->n = 0;
    return true;
}

static bool segment_add(struct segment * s, uint32_t cp, struct buffer * out) {
    const uint32_t ccc = combining_class(cp);
    if (ccc == 0 && s->n > 0) {
        segment_compose(s);
        // two starters may also compose (Hangul, some Indic vowels) if no mark is left between them
        const uint32_t composed =
                s->n == 1 && s->marks[0].ccc == 0 ? composition_find(s->marks[0].cp, cp) : 0;
        if (composed != 0) {
            s->marks[0].cp = composed;
            return true;
        }
        if (!segment_write(s, out)) {
            return false;
        }
    }
    return segment_push(s, cp, ccc);
}

static bool segment_decompose(struct segment * s, uint32_t cp, struct buffer * out) {
    if (cp - HANGUL_S < HANGUL_N_L * HANGUL_N_V * HANGUL_N_T) {
        const uint32_t i = cp - HANGUL_S;
        const uint32_t t = i % HANGUL_N_T;
        return segment_add(s, HANGUL_L + i / (HANGUL_N_V * HANGUL_N_T), out) &&
               segment_add(s, HANGUL_V + i % (HANGUL_N_V * HANGUL_N_T) / HANGUL_N_T, out) &&
               (t == 0 || segment_add(s, HANGUL_T + t, out));
    }
    // only the first character of a decomposition decomposes further
    uint32_t tail[8];
    int      n_tail = 0;
    while (n_tail < 8 && decomposition_find(cp, &cp, &tail[n_tail])) {
        n_tail += tail[n_tail] != 0;
    }
    bool ok = segment_add(s, cp, out);
    while (ok && n_tail > 0) {
        ok = segment_add(s, tail[--n_tail], out);
    }
    return ok;
}

bool nfc_quick_check(const char * text, size_t len) {
    for (size_t i = 0; i < len; ++i) {
        if ((uint8_t) text[i] >= 0xCC) { // first byte of U+0300 (NFC_FIRST)
            return false;
        }
    }
    return true;
}

bool nfc_normalize(const char * text, size_t len, struct buffer * out) {
    if (len == 0) {
        return true;
    }
    struct segment s = { 0 };
    const char *   end = text + len;
    bool           ok = true;
    while (ok && text < end) {
        ok = segment_decompose(&s, utf8_next(&text), out);
    }
    segment_compose(&s);
    ok = ok && segment_write(&s, out);
    free(s.marks);
    return ok;
}
