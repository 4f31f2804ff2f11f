#include "kit/files.h"

#include "lrnn.h"
#include "base/read-file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint8_t * test_read_file(const char * path, size_t * size) {
    char *            data;
    struct lrnn_error err;
    if (!read_file(path, &data, size, &err)) {
        printf("FAILED: %s\n", err.text);
        exit(1);
    }
    uint8_t * copy = calloc(*size + 1, 1);
    memcpy(copy, data, *size);
    free(data);
    return copy;
}

void test_write_file(const char * path, const void * data, size_t size) {
    remove(path); // some file systems flush a file that is truncated and written again: slow
    FILE * file = fopen(path, "wb");
    bool   ok = file != NULL && (size == 0 || fwrite(data, 1, size, file) == size);
    if (file != NULL) {
        ok = fclose(file) == 0 && ok;
    }
    if (!ok) {
        printf("FAILED: %s cannot be written: %s\n", path, strerror(errno));
        exit(1);
    }
}

const char * test_own_path(char * path, size_t size, const char * name) {
    const char * dot = strrchr(name, '.');
    const int    n =
            snprintf(path, size, "%.*s-%ld%s", (int) (dot - name), name, (long) getpid(), dot);
    if (n < 0 || (size_t) n >= size) {
        printf("FAILED: no room for the path of %s\n", name);
        exit(1);
    }
    return path;
}

bool test_same_files(const char * a, const char * b) {
    size_t     size_a, size_b;
    uint8_t *  data_a = test_read_file(a, &size_a);
    uint8_t *  data_b = test_read_file(b, &size_b);
    const bool same = size_a == size_b && memcmp(data_a, data_b, size_a) == 0;
    free(data_a);
    free(data_b);
    return same;
}
