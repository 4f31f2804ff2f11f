#include "npy.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A file is the magic, major and minor version, the size of the dictionary, the dictionary, data.
static const char MAGIC[] = "\x93NUMPY";

enum { MAGIC_SIZE = sizeof(MAGIC) - 1, DICTIONARY_MAX = 4096 };

bool npy_is(const char * data, size_t size) {
    return size >= MAGIC_SIZE && memcmp(data, MAGIC, MAGIC_SIZE) == 0;
}

// The value of a key in a Python dictionary {'key': value, …}; NULL if there is no such key.
static const char * value_of(const char * dictionary, const char * key) {
    const char * p = strstr(dictionary, key);
    if (p == NULL) {
        return NULL;
    }
    p += strlen(key);
    p += strspn(p, " ");
    if (*p != ':') {
        return NULL;
    }
    p++;
    return p + strspn(p, " ");
}

// Reads "(n,)".
static bool parse_shape(const char * p, int64_t * n) {
    if (*p++ != '(') {
        return false;
    }
    const size_t digits = strspn(p, "0123456789");
    if (digits == 0 || digits > 15) {
        return false;
    }
    *n = strtoll(p, NULL, 10);
    return strncmp(p + digits, ",)", 2) == 0;
}

bool npy_read_int32(
        const char * data, size_t size, int32_t ** values, int64_t * n, struct lrnn_error * err) {
    const uint8_t * bytes = (const uint8_t *) data;
    const size_t    wide = size > MAGIC_SIZE && bytes[MAGIC_SIZE] > 1 ? 4 : 2; // of the size field
    const size_t    begin = MAGIC_SIZE + 2 + wide;

    *values = NULL;
    if (!npy_is(data, size) || size < begin || bytes[MAGIC_SIZE] < 1 || bytes[MAGIC_SIZE] > 3) {
        return error_bad_input(err, "not a .npy file of version 1, 2 or 3");
    }
    size_t length = 0;
    for (size_t i = 0; i < wide; ++i) {
        length |= (size_t) bytes[MAGIC_SIZE + 2 + i] << 8 * i;
    }
    if (length >= DICTIONARY_MAX || length > size - begin) {
        return error_bad_input(err,
                "the header of the .npy file has %zu bytes; expected at most %d, in a file of %zu",
                length, DICTIONARY_MAX - 1, size);
    }

    char dictionary[DICTIONARY_MAX];
    memcpy(dictionary, data + begin, length);
    dictionary[length] = '\0';

    const char * type = value_of(dictionary, "'descr'");
    const char * shape = value_of(dictionary, "'shape'");
    if (type == NULL || shape == NULL || strncmp(type, "'<i4'", 5) != 0 || !parse_shape(shape, n)) {
        return error_bad_input(err,
                "the .npy file contains %.*s %.*s; expected '<i4' (n,): int32, one dimension",
                type != NULL ? (int) strcspn(type, ", }") : 1, type != NULL ? type : "?",
                shape != NULL ? (int) strcspn(shape, ")}") + 1 : 1, shape != NULL ? shape : "?");
    }
    const size_t there = (size - begin - length) / sizeof(int32_t);
    if ((uint64_t) *n > there) {
        return error_bad_input(err,
                "the .npy file is truncated: it has %zu numbers; expected %" PRId64, there, *n);
    }
    *values = malloc((size_t) *n * sizeof(int32_t) + 1); // + 1: not NULL for n = 0
    if (*values == NULL) {
        return error_no_memory(err, "%" PRId64 " token ids", *n);
    }
    memcpy(*values, data + begin + length, (size_t) *n * sizeof(int32_t));
    return true;
}

void npy_header(const char * type, const int64_t * shape, int n_dims, char * header, size_t size) {
    const size_t begin = MAGIC_SIZE + 4;
    char         dictionary[NPY_HEADER_MAX + 1];
    int          n = snprintf(dictionary, sizeof(dictionary),
                     "{'descr': %s, 'fortran_order': False, 'shape': (", type);
    for (int i = 0; i < n_dims; ++i) {
        n += snprintf(dictionary + n, sizeof(dictionary) - (size_t) n, "%s%" PRId64,
                i > 0 ? " " : "", shape[i]);
        n += snprintf(dictionary + n, sizeof(dictionary) - (size_t) n, "%s",
                i == 0 || i + 1 < n_dims ? "," : "");
    }
    n += snprintf(dictionary + n, sizeof(dictionary) - (size_t) n, "), }");
    memcpy(header, MAGIC, MAGIC_SIZE);
    header[MAGIC_SIZE + 0] = 1; // version 1.0
    header[MAGIC_SIZE + 1] = 0;
    header[MAGIC_SIZE + 2] = (char) (size - begin);
    header[MAGIC_SIZE + 3] = (char) ((size - begin) >> 8);
    memset(header + begin, ' ', size - begin);
    memcpy(header + begin, dictionary, (size_t) n);
    header[size - 1] = '\n';
}
