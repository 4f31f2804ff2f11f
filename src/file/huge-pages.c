#define _GNU_SOURCE // mremap

#include "file/huge-pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(MADV_HUGEPAGE) && defined(MREMAP_FIXED)

// True if the first line of a file contains a text.
static bool file_says(const char * path, const char * text) {
    char   line[256] = "";
    FILE * f = fopen(path, "r");
    bool   found = f != NULL && fgets(line, sizeof(line), f) != NULL && strstr(line, text);
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

// MemAvailable counts the pages of files that can be dropped.
static double memory_available(void) {
    char   line[256];
    double kib = 0.0;
    FILE * f = fopen("/proc/meminfo", "r");
    while (f != NULL && kib == 0.0 && fgets(line, sizeof(line), f) != NULL) {
        sscanf(line, "MemAvailable: %lf", &kib);
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib * 1024.0;
}

// The number in a file, or `most` if there is none below it.
static double read_limit(const char * path, double most) {
    double limit = most;
    FILE * f = fopen(path, "r");
    if (f != NULL) {
        if (fscanf(f, "%lf", &limit) != 1) { // "max"
            limit = most;
        }
        fclose(f);
    }
    return limit < most ? limit : most;
}

// The lowest limit of the control groups (v1, v2) that the process is in, or `most` if there is
// none. A line of the file is "id:controllers:/path"; v2 names no controllers.
static double container_limit(double most) {
    char   line[2048], controllers[256], path[3072];
    FILE * f = fopen("/proc/self/cgroup", "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        char *     group = strchr(line, '/');
        const bool v2 = strstr(line, "::/") != NULL;
        if (group == NULL || (!v2 && (sscanf(line, "%*d:%255[^:]", controllers) != 1 ||
                                             strcmp(controllers, "memory") != 0))) {
            continue;
        }
        group[strcspn(group, "\n")] = '\0';
        for (char * end = group + strlen(group); end != NULL; end = strrchr(group, '/')) {
            *end = '\0'; // from the group up to the root
            snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/%s", v2 ? "" : "/memory", group,
                    v2 ? "memory.max" : "memory.limit_in_bytes");
            most = read_limit(path, most);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return most;
}

bool huge_pages_fit(size_t size) {
    static const char * const enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (!file_says(enabled, "[madvise]") && !file_says(enabled, "[always]")) {
        return false;
    }
    return 2.0 * (double) size <= container_limit(memory_available());
}

bool huge_pages_replace(void * data, size_t size) {
    // one page more, to align the rest
    char * const all = mmap(
            NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return false;
    }
    const size_t before = (HUGE_PAGE - (uintptr_t) all % HUGE_PAGE) % HUGE_PAGE;
    char * const pages = all + before;
    if (before > 0) {
        munmap(all, before);
    }
    munmap(pages + size, HUGE_PAGE - before);
    madvise(pages, size, MADV_HUGEPAGE);
    memcpy(pages, data, size);
    if (mprotect(pages, size, PROT_READ) != 0 ||
            mremap(pages, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED) {
        munmap(pages, size);
        return false;
    }
    return true;
}

void huge_pages_advise(void * data, size_t size) {
    const size_t before = (HUGE_PAGE - (uintptr_t) data % HUGE_PAGE) % HUGE_PAGE;
    if (size >= before + HUGE_PAGE) { // without them the memory works, too
        madvise((char *) data + before, (size - before) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
}

#else

bool huge_pages_fit(size_t size) {
    (void) size;
    return false;
}

bool huge_pages_replace(void * data, size_t size) {
    (void) data;
    (void) size;
    return false;
}

void huge_pages_advise(void * data, size_t size) {
    (void) data;
    (void) size;
}

#endif
