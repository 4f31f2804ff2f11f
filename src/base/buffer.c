#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

bool buffer_append(struct buffer * b, const void * data, size_t n) {
    if (n > b->capacity - b->n) {
        size_t capacity = b->capacity * 2 < 256 ? 256 : b->capacity * 2;
        if (capacity < b->n + n) {
            capacity = b->n + n;
        }
        char * p = realloc(b->data, capacity);
        if (p == NULL) {
            return false;
        }
        b->data     = p;
        b->capacity = capacity;
    }
    if (n > 0) {
        memcpy(b->data + b->n, data, n);
        b->n += n;
    }
    return true;
}

void buffer_free(struct buffer * b) {
    free(b->data);
    *b = (struct buffer) { 0 };
}
