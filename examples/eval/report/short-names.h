#pragma once

#include <stdbool.h>
#include <stddef.h>

struct arena;

// Shortens names for labels to at most max_chars characters (at least 24). Names that fit are
// unchanged. "…" replaces what all names share at their beginning and end, then other parts far
// from the place where a name begins to differ from the most similar one. Labels of different names
// differ.
// - labels: [n], allocated in the arena
// Returns false if out of memory.
bool short_names(const char * const * names, int n, int max_chars, struct arena * arena,
        const char ** labels);

// Lists names in a sentence: "a, b, c, d and 5 more". Starts with text and size set.
struct name_series {
    char * text;
    size_t size, n;
    int    n_shown, n_hidden;
};

void name_series_add(struct name_series * list, const char * name);
void name_series_end(struct name_series * list);
