#pragma once

// What the fuzz targets share.

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

// Ends the process, which the fuzzer notices, if a promise is broken.
static inline void require_of(bool ok, const char * what, const char * detail) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, detail);
        abort();
    }
}
static inline void require(bool ok, const char * what) {
    require_of(ok, what, "");
}

// A refusal is one line without control characters, and names the file it refuses.
static inline void require_reason(const char * text, const char * path) {
    require_of(strncmp(text, path, strlen(path)) == 0 && strchr(text, '\n') == NULL &&
                       strchr(text, '\x1b') == NULL && text[0] != '\0',
            "rejected without a proper message", text);
}

// The path of a file of this process, in memory if possible.
static inline void make_path(char path[64], const char * name) {
    snprintf(path, 64, "%s/fuzz-%ld-%s", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
            (long) getpid(), name);
}
