#include "eval/data/record-form.h"

#include <string.h>

bool record_is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

size_t record_skip_space(const char * p, size_t n, size_t i) {
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
#define PIPE(command) "; use a pipe: " command " -dc FILE | lrnn-perplexity run ... --data -"

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

const char * record_form_foreign(const char * p, size_t n) {
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
        const size_t key   = i;
        i                  = skip_string(p, n, i);
        const bool is_data = i - key == 6 && memcmp(p + key, "\"Data\"", 6) == 0;
        i                  = record_skip_space(p, n, i);
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

enum record_form record_form_of(const char * p, size_t n, size_t * start) {
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
