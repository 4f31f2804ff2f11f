#include "eval/scores/hash-cache.h"

#include "base/atomic-file.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/read-file.h"
#include "base/sha256.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef __APPLE__
#    define st_mtim st_mtimespec
#endif

enum { HEX = 64, KEY_MAX = PATH_MAX + 128, FOLDER_MAX = PATH_MAX + 32, FILE_MAX = FOLDER_MAX + 32 };

// What identifies the content of a file without reading it, as one line.
static bool make_key(const char * path, char key[KEY_MAX]) {
    struct stat st;
    char        full[PATH_MAX];
    if (realpath(path, full) == NULL || stat(full, &st) != 0 || !S_ISREG(st.st_mode)) {
        return false;
    }
    snprintf(key, KEY_MAX, " %" PRId64 " %" PRId64 " %" PRId64 ".%09ld %s\n", (int64_t) st.st_size,
            (int64_t) st.st_ino, (int64_t) st.st_mtim.tv_sec, (long) st.st_mtim.tv_nsec, full);
    return true;
}

static bool make_folder(char folder[FOLDER_MAX]) {
    const char * base = getenv("XDG_CACHE_HOME");
    const char * home = getenv("HOME");
    if (base != NULL && base[0] == '/') {
        snprintf(folder, FOLDER_MAX, "%.*s/lrnn/hashes", PATH_MAX, base);
    } else if (home != NULL && home[0] == '/') {
        snprintf(folder, FOLDER_MAX, "%.*s/.cache/lrnn/hashes", PATH_MAX, home);
    } else {
        return false;
    }
    return true;
}

// Creates the folders of a path, without the first one.
static void make_folders(char * folder) {
    for (char * p = strchr(folder + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(folder, 0777);
        *p = '/';
    }
    mkdir(folder, 0777);
}

// The cache file of a key: one line, the hash and the key. One file per path of a model.
static void make_name(const char * folder, const char * key, char name[FILE_MAX]) {
    const char * path = strchr(key, '/');
    snprintf(name, FILE_MAX, "%s/%016" PRIx64, folder, hash_add(HASH_START, path, strlen(path)));
}

static bool cache_read(const char * key, char hex[HEX + 1]) {
    char   folder[FOLDER_MAX], name[FILE_MAX];
    char * line = NULL;
    size_t size = 0;
    if (!make_folder(folder)) {
        return false;
    }
    make_name(folder, key, name);
    const bool found = read_file(name, &line, &size, NULL) && size == HEX + strlen(key) &&
                       memcmp(line + HEX, key, size - HEX) == 0;
    if (found) {
        memcpy(hex, line, HEX);
        hex[HEX] = '\0';
    }
    free(line);
    return found && strspn(hex, "0123456789abcdef") == HEX;
}

static void cache_write(const char * key, const char * hex) {
    char               folder[FOLDER_MAX], name[FILE_MAX];
    struct atomic_file file;
    if (!make_folder(folder)) {
        return;
    }
    make_folders(folder);
    make_name(folder, key, name);
    if (!atomic_file_open(&file, name, NULL)) {
        return;
    }
    if (atomic_file_write(&file, hex, HEX, NULL) &&
            atomic_file_write(&file, key, strlen(key), NULL)) {
        atomic_file_commit(&file, NULL);
    } else {
        atomic_file_cancel(&file);
    }
}

static bool read_and_hash(
        const char * path, bool (*stop)(void), char hex[65], struct lrnn_error * err) {
    enum { SIZE = 1 << 20 };
    errno              = 0;
    FILE *        file = fopen(path, "rb");
    char *        data = malloc(SIZE);
    bool          ok   = file != NULL && data != NULL;
    struct sha256 sha;
    sha256_begin(&sha);
    for (size_t n = 1; ok && n > 0;) {
        n = fread(data, 1, SIZE, file);
        sha256_add(&sha, data, n);
        ok = !ferror(file) && (stop == NULL || !stop());
    }
    if (ok) {
        sha256_hex(&sha, hex);
    } else {
        error_set(err, LRNN_ERROR_SYSTEM, "%s: cannot compute its hash: %s", path,
                errno != 0 ? strerror(errno) : "stopped");
    }
    if (file != NULL) {
        fclose(file);
    }
    free(data);
    return ok;
}

bool hash_of_file(const char * path, bool (*stop)(void), char hex[65], struct lrnn_error * err) {
    char       before[KEY_MAX], after[KEY_MAX];
    const bool has_key = make_key(path, before);
    if (has_key && cache_read(before, hex)) {
        return true;
    }
    if (!read_and_hash(path, stop, hex, err)) {
        return false;
    }
    if (has_key && make_key(path, after) && strcmp(before, after) == 0) { // not written meanwhile
        cache_write(before, hex);
    }
    return true;
}
