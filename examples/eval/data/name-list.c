#include "eval/data/name-list.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static char stored(char c) {
    return c == '\t' ? ' ' : c;
}

// Is the name stored at offset `at`? *length: of the name stored there.
static bool is_at(const struct name_list * list, size_t at, const char * name, size_t * length) {
    const char * p   = list->text + at;
    const char * end = memchr(p, '\t', list->size - at);
    *length          = end != NULL ? (size_t) (end - p) : list->size - at;
    bool same        = *length == strlen(name);
    for (size_t i = 0; i < *length && same; ++i) {
        same = p[i] == stored(name[i]);
    }
    return same;
}

static bool reserve(struct name_list * list, size_t n) {
    if (list->size + n <= list->capacity) {
        return true;
    }
    const size_t capacity = 2 * list->capacity + n + 256;
    char *       text     = realloc(list->text, capacity);
    if (text == NULL) {
        return false;
    }
    list->text     = text;
    list->capacity = capacity;
    return true;
}

int32_t name_list_find(struct name_list * list, const char * name) {
    size_t length;
    if (list->n > 0 && is_at(list, list->last_at, name, &length)) {
        return list->last;
    }
    size_t at = 0;
    for (int32_t i = 0; i < list->n; ++i, at += length + 1) {
        if (is_at(list, at, name, &length)) {
            list->last    = i;
            list->last_at = at;
            return i;
        }
    }
    if (!reserve(list, strlen(name) + 2)) {
        return -1;
    }
    if (list->n > 0) {
        list->text[list->size++] = '\t';
    }
    list->last    = list->n++;
    list->last_at = list->size;
    for (; *name != '\0'; ++name) {
        list->text[list->size++] = stored(*name);
    }
    list->text[list->size] = '\0';
    return list->last;
}

void name_list_free(struct name_list * list) {
    free(list->text);
    *list = (struct name_list) { 0 };
}
