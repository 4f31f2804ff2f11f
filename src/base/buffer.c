#include "base/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 256 };

bool array_grow(void * array, size_t * capacity, size_t n, size_t item_size) {
    void * items;
    if (n <= *capacity) {
        return true;
    }
    size_t more = *capacity > 0 ? 2 * *capacity : FIRST_BYTES / item_size;
    more = more > n ? more : n;
    memcpy(&items, array, sizeof(items)); // a pointer of any type
    items = more <= SIZE_MAX / 2 / item_size ? realloc(items, more * item_size) : NULL;
    if (items == NULL) {
        return false;
    }
    memcpy(array, &items, sizeof(items));
    *capacity = more;
    return true;
}

bool buffer_append(struct buffer * b, const void * data, size_t n) {
    if (n > SIZE_MAX - b->n || !array_grow(&b->data, &b->capacity, b->n + n, 1)) {
        return false;
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
