// Replaces libFuzzer if the compiler has none: runs the target on every file of a folder, then on
// mutations of these files.
//
//     fuzz-<target> DIRECTORY MUTATIONS

#include "base/random.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size);

enum { MAX_SEEDS = 512, MAX_SIZE = 65536 };

struct seed {
    uint8_t * data;
    size_t    size;
};

static uint64_t rng_state = 1;

static size_t below(size_t n) {
    return n > 0 ? (size_t) (splitmix64(&rng_state) % n) : 0;
}

// Runs the target on an exact copy, so that the address sanitizer sees every read beyond its end.
static void run(const uint8_t * data, size_t size) {
    uint8_t * copy = malloc(size > 0 ? size : 1);
    if (copy != NULL) {
        if (size > 0) {
            memcpy(copy, data, size);
        }
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
}

static int load_seeds(const char * directory, struct seed * seeds) {
    int   n = 0;
    DIR * dir = opendir(directory);
    for (struct dirent * e = NULL; dir != NULL && n < MAX_SEEDS && (e = readdir(dir)) != NULL;) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
        FILE * file = e->d_name[0] != '.' ? fopen(path, "rb") : NULL;
        if (file == NULL) {
            continue;
        }
        uint8_t * data = malloc(MAX_SIZE);
        if (data != NULL) {
            seeds[n++] = (struct seed) { data, fread(data, 1, MAX_SIZE, file) };
        }
        fclose(file);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

// Makes one to four changes: flips a bit, replaces a byte, writes an integer at the limit of its
// range, copies a part of another seed, deletes a part, or truncates. Returns the new size.
static size_t mutate(uint8_t * data, size_t size, const struct seed * other) {
    static const uint64_t LIMITS[] = { 0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000,
        0xffffffff, UINT64_C(1) << 32, UINT64_C(1) << 60, UINT64_C(1) << 61, INT64_MAX,
        UINT64_C(1) << 63, UINT64_MAX - 7, UINT64_MAX };
    for (size_t k = 1 + below(4); k > 0 && size > 8; --k) {
        const size_t   at = below(size);
        const size_t   room = size - at;
        const uint64_t limit = LIMITS[below(sizeof(LIMITS) / sizeof(LIMITS[0]))];
        const size_t   width = (size_t) 1 << below(4);
        const size_t   n = 1 + below(32);
        switch (below(6)) {
            case 0: data[at] ^= (uint8_t) (1u << below(8)); break;
            case 1: data[at] = (uint8_t) splitmix64(&rng_state); break;
            case 2: memcpy(data + at, &limit, width < room ? width : room); break;
            case 3:
                if (other->size > n && n <= room) {
                    memcpy(data + at, other->data + below(other->size - n), n);
                }
                break;
            case 4:
                if (n < room) {
                    memmove(data + at, data + at + n, room - n);
                    size -= n;
                }
                break;
            default: size = at; break;
        }
    }
    return size;
}

int main(int argc, char ** argv) {
    static struct seed seeds[MAX_SEEDS];
    static uint8_t     data[MAX_SIZE];
    if (argc != 3) {
        fprintf(stderr, "usage: %s DIRECTORY MUTATIONS\n", argv[0]);
        return 2;
    }
    const int  n_seeds = load_seeds(argv[1], seeds);
    const long n = atol(argv[2]);
    if (n_seeds == 0) {
        fprintf(stderr, "%s: no files in %s\n", argv[0], argv[1]);
        return 1;
    }
    for (int i = 0; i < n_seeds; ++i) {
        run(seeds[i].data, seeds[i].size);
    }
    for (long i = 0; i < n; ++i) {
        const struct seed * seed = &seeds[below((size_t) n_seeds)];
        memcpy(data, seed->data, seed->size);
        run(data, mutate(data, seed->size, &seeds[below((size_t) n_seeds)]));
    }
    for (int i = 0; i < n_seeds; ++i) {
        free(seeds[i].data);
    }
    printf("%d seeds, %ld mutations\n", n_seeds, n);
    return 0;
}
