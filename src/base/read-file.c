#include "base/read-file.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool read_file(const char * path, char ** data, size_t * size, struct lrnn_error * err) {
    const bool   is_stdin = strcmp(path, "-") == 0;
    const char * name = is_stdin ? "stdin" : path;
    FILE *       file = is_stdin ? stdin : fopen(path, "rb");
    size_t       room = 0;
    bool         ok = true;

    *data = NULL;
    *size = 0;
    if (file == NULL) {
        return error_system(err, "%s cannot be opened", name);
    }
    // feof: after its end a terminal could be read again
    for (size_t n = 1; ok && n > 0 && !feof(file); *size += n) {
        if (*size == room && !array_grow(data, &room, room + (1 << 16), 1)) {
            ok = error_no_memory(err, "%s", name);
            break;
        }
        n = fread(*data + *size, 1, room - *size, file);
        if (ferror(file)) {
            ok = error_system(err, "%s cannot be read", name);
        }
    }
    if (!is_stdin) {
        fclose(file);
    }
    if (!ok) {
        free(*data);
        *data = NULL;
    }
    return ok;
}
