#include "base/read-file.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool read_file(const char * path, char ** data, size_t * size, struct lrnn_error * err) {
    const bool   is_stdin = strcmp(path, "-") == 0;
    const char * name     = is_stdin ? "stdin" : path;
    FILE *       file     = is_stdin ? stdin : fopen(path, "rb");
    size_t       room     = 0;
    bool         ok       = true;

    *data = NULL;
    *size = 0;
    if (file == NULL) {
        return error_set(err, errno == ENOENT ? LRNN_ERROR_NOT_FOUND : LRNN_ERROR_BAD_FILE,
                "%s cannot be opened: %s", name, strerror(errno));
    }
    // feof: after its end a terminal could be read again
    for (size_t n = 1; ok && n > 0 && !feof(file); *size += n) {
        if (*size == room) {
            room          = 2 * room + (1 << 16);
            char * larger = realloc(*data, room);
            if (larger == NULL) {
                ok = error_set(err, LRNN_ERROR_NO_MEMORY, "%s does not fit into memory", name);
                break;
            }
            *data = larger;
        }
        n = fread(*data + *size, 1, room - *size, file);
        if (ferror(file)) {
            ok = error_set(
                    err, LRNN_ERROR_BAD_FILE, "%s cannot be read: %s", name, strerror(errno));
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
