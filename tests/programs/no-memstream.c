// Loaded before the C library by tests of short memory: call number LRNN_TEST_CALL of
// open_memstream fails. It returns NULL, or, if the number is negative, a stream without room.

#define _GNU_SOURCE // fopencookie, RTLD_NEXT

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static ssize_t no_room(void * cookie, const char * data, size_t size) {
    (void) cookie;
    (void) data;
    (void) size;
    errno = ENOMEM;
    return 0;
}

static int seek(void * cookie, off64_t * offset, int whence) {
    (void) cookie;
    (void) whence;
    *offset = 0;
    return 0;
}

FILE * open_memstream(char ** data, size_t * size) {
    static atomic_int n_calls;
    FILE * (*real)(char **, size_t *);
    void *       symbol = dlsym(RTLD_NEXT, "open_memstream");
    const char * text = getenv("LRNN_TEST_CALL");
    const int    call = text != NULL ? atoi(text) : 0;
    if (atomic_fetch_add(&n_calls, 1) + 1 != abs(call)) {
        memcpy(&real, &symbol, sizeof(real));
        return real(data, size);
    }
    fprintf(stderr, "call %d of open_memstream fails\n", abs(call));
    *data = NULL;
    *size = 0;
    errno = ENOMEM;
    const cookie_io_functions_t full = { .write = no_room, .seek = seek };
    return call > 0 ? NULL : fopencookie(NULL, "w", full);
}
