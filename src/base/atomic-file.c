#include "base/atomic-file.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool atomic_file_may_replace(
        const char * path, const char * magic, const char * kind, char * err, size_t err_size) {
    struct stat st;
    char        found[16] = "";

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        return true; // atomic_file_open has a better message than ours
    }
    FILE * file = fopen(path, "rb");
    if (file != NULL) {
        const size_t n = fread(found, 1, strlen(magic), file);
        found[n]       = '\0';
        fclose(file);
    }
    return strcmp(found, magic) == 0 ||
           error_set(err, err_size, "%s: not %s; expected %s or a new file name", path, kind, kind);
}

bool atomic_file_open(struct atomic_file * f, const char * path, char * err, size_t err_size) {
    const size_t size = strlen(path) + 32;
    struct stat  st;
    *f = (struct atomic_file) { 0 };
    if (path[0] == '\0') {
        return error_set(err, err_size, "the name of the output file is empty");
    }
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
    bool ok = !ferror(f->file) && fflush(f->file) == 0 && fsync(fileno(f->file)) == 0;
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
