#include "base/atomic-file.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool atomic_file_open(struct atomic_file * f, const char * path, char * err, size_t err_size) {
    const size_t size = strlen(path) + 32;
    struct stat  st;
    *f = (struct atomic_file) { 0 };
    // renaming would replace /dev/null by a regular file
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return error_set(err, err_size, "%s: found %s, expected a regular file or none", path,
                S_ISDIR(st.st_mode) ? "a directory" : "a device, pipe or socket");
    }
    f->path      = malloc(size);
    f->temporary = malloc(size);
    if (f->path == NULL || f->temporary == NULL) {
        free(f->temporary);
        f->temporary = NULL; // there is no file to delete
        atomic_file_cancel(f);
        return error_set(err, err_size, "%s: out of memory", path);
    }
    snprintf(f->path, size, "%s", path);
    snprintf(f->temporary, size, "%s.%ld.tmp", path, (long) getpid());
    f->file = fopen(f->temporary, "wb");
    if (f->file == NULL) {
        error_set(err, err_size, "%s: cannot be written: %s", path, strerror(errno));
        atomic_file_cancel(f);
        return false;
    }
    return true;
}

bool atomic_file_write(
        struct atomic_file * f, const void * data, size_t size, char * err, size_t err_size) {
    return fwrite(data, 1, size, f->file) == size ||
           error_set(err, err_size, "%s: cannot be written: %s", f->temporary, strerror(errno));
}

bool atomic_file_commit(struct atomic_file * f, char * err, size_t err_size) {
    bool ok = fflush(f->file) == 0 && fsync(fileno(f->file)) == 0;
    ok      = fclose(f->file) == 0 && ok;
    f->file = NULL;
    ok      = ok && rename(f->temporary, f->path) == 0;
    if (ok) {
        free(f->temporary);
        f->temporary = NULL; // nothing is left to delete
    } else {
        error_set(err, err_size, "%s: cannot be written: %s", f->path, strerror(errno));
    }
    atomic_file_cancel(f);
    return ok;
}

void atomic_file_cancel(struct atomic_file * f) {
    if (f->file != NULL) {
        fclose(f->file);
    }
    if (f->temporary != NULL) {
        unlink(f->temporary);
    }
    free(f->path);
    free(f->temporary);
    *f = (struct atomic_file) { 0 };
}
