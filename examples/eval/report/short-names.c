#include "eval/report/short-names.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELLIPSIS "\xe2\x80\xa6"

enum {
    CONTEXT   = 4, // characters kept before the first difference
    MAX_SHOWN = 4, // names in a sentence
};

static bool is_start(char c) {
    return ((unsigned char) c & 0xc0) != 0x80;
}

static int count_chars(const char * text, size_t size) {
    int n = 0;
    for (size_t i = 0; i < size; ++i) {
        n += is_start(text[i]);
    }
    return n;
}

// Moves an offset by n characters, at most to the ends from and to.
static size_t skip_chars(const char * text, size_t at, int n, size_t from, size_t to) {
    for (; n > 0 && at < to; --n) {
        do {
            at++;
        } while (at < to && !is_start(text[at]));
    }
    for (; n < 0 && at > from; ++n) {
        do {
            at--;
        } while (at > from && !is_start(text[at]));
    }
    return at;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           (unsigned char) c >= 0x80;
}

// Bytes that two names share at the beginning.
static size_t shared_head(const char * a, const char * b) {
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n]) {
        n++;
    }
    return n;
}

static size_t shared_tail(const char * a, const char * b) {
    const size_t x = strlen(a), y = strlen(b);
    size_t       n = 0;
    while (n < x && n < y && a[x - 1 - n] == b[y - 1 - n]) {
        n++;
    }
    return n;
}

// The part of each name that the others do not share, in whole words.
static void find_shared(const char * const * names, int n, size_t * head, size_t * tail) {
    size_t shortest = strlen(names[0]);
    *head = *tail = n > 1 ? shortest : 0;
    for (int i = 1; i < n; ++i) {
        const size_t size = strlen(names[i]);
        const size_t h = shared_head(names[0], names[i]), t = shared_tail(names[0], names[i]);
        *head    = h < *head ? h : *head;
        *tail    = t < *tail ? t : *tail;
        shortest = size < shortest ? size : shortest;
    }
    while (*head > 0 && is_word(names[0][*head - 1])) {
        --*head;
    }
    const char * end = names[0] + strlen(names[0]);
    while (*tail > 0 && is_word(end[-(ptrdiff_t) *tail])) {
        --*tail;
    }
    if (*head + *tail > shortest) {
        *tail = 0;
    }
}

static const char * shorten(const char * const * names, int n, int i, size_t head, size_t tail,
        int max_chars, struct arena * arena) {
    const char * name = names[i];
    const size_t size = strlen(name);
    size_t       from = head, to = size - tail, first = 0;
    char *       label = arena_alloc(arena, size + 16);
    if (label == NULL || count_chars(name, size) <= max_chars) {
        return label != NULL ? strcpy(label, name) : NULL;
    }
    const int room = max_chars - (from > 0) - (to < size);
    if (count_chars(name + from, to - from) <= room) {
        snprintf(label, size + 16, "%s%.*s%s", from > 0 ? ELLIPSIS : "", (int) (to - from),
                name + from, to < size ? ELLIPSIS : "");
        return label;
    }
    // the first difference from the most similar name
    for (int k = 0; k < n; ++k) {
        const size_t same = strcmp(names[k], name) != 0 ? shared_head(names[k], name) : 0;
        first             = same > first ? same : first;
    }
    while (first > from && !is_start(name[first])) {
        first--;
    }
    first              = first < from ? from : first > to ? to : first;
    const int    start = (room - 2) / 3; // characters of the beginning
    const int    rest  = room - 1 - start - 1;
    const size_t a     = skip_chars(name, from, start, from, to);
    size_t       b     = skip_chars(name, first, -CONTEXT, from, to);
    const size_t last  = skip_chars(name, to, -rest, from, to); // the end fits from here
    b                  = b > last ? last : b;
    if (b <= a) { // differs at the beginning: keep beginning and end
        b = last > a ? last : a;
    }
    const size_t c = skip_chars(name, b, rest, from, to);
    snprintf(label, size + 16, "%s%.*s" ELLIPSIS "%.*s%s", from > 0 ? ELLIPSIS : "",
            (int) (a - from), name + from, (int) (c - b), name + b, c < size ? ELLIPSIS : "");
    return label;
}

// Appends a number to a label, within max_chars.
static const char * number(const char * label, int k, int max_chars, struct arena * arena) {
    const size_t size = strlen(label) + 32;
    char         suffix[24];
    char *       copy = arena_alloc(arena, size);
    if (copy != NULL) {
        const int    n   = snprintf(suffix, sizeof(suffix), " (%d)", k);
        const size_t cut = skip_chars(label, 0, max_chars - n, 0, strlen(label));
        snprintf(copy, size, "%.*s%s", (int) cut, label, suffix);
    }
    return copy;
}

bool short_names(const char * const * names, int n, int max_chars, struct arena * arena,
        const char ** labels) {
    size_t head = 0, tail = 0;
    if (n > 0) {
        find_shared(names, n, &head, &tail);
    }
    for (int i = 0; i < n; ++i) {
        labels[i] = shorten(names, n, i, head, tail, max_chars, arena);
        if (labels[i] == NULL) {
            return false;
        }
    }
    for (int i = 0; i < n; ++i) {
        bool is_shared = false;
        for (int k = 0; k < i; ++k) {
            is_shared |= strcmp(labels[k], labels[i]) == 0 && strcmp(names[k], names[i]) != 0;
        }
        if (is_shared && (labels[i] = number(labels[i], i + 1, max_chars, arena)) == NULL) {
            return false;
        }
    }
    return true;
}

void name_series_add(struct name_series * list, const char * name) {
    enum { SPACE_FOR_END = 32 };
    const size_t need = strlen(name) + 2 + SPACE_FOR_END;
    if (list->n_shown == MAX_SHOWN || (list->n_shown > 0 && list->n + need > list->size)) {
        list->n_hidden++;
        return;
    }
    const int n = snprintf(list->text + list->n, list->size - list->n, "%s%s",
            list->n_shown > 0 ? ", " : "", name);
    list->n += (size_t) n < list->size ? (size_t) n : list->size - 1;
    list->n_shown++;
}

void name_series_end(struct name_series * list) {
    if (list->n_shown == 0) {
        list->text[0] = '\0';
    }
    if (list->n_hidden > 0) {
        snprintf(list->text + list->n, list->size - list->n, " and %d more", list->n_hidden);
    }
}
