#pragma once

// A list of distinct names in one string, separated by tabs: the files and sources of a run.

#include <stddef.h>
#include <stdint.h>

struct name_list { // starts as { 0 }
    char *  text;  // NULL: empty
    size_t  size, capacity;
    int32_t n;
    int32_t last; // index of the last result: documents of a file come in a row
    size_t  last_at;
};

// Returns the index of a name, which is added if it is new; −1: out of memory. Tabs in it become
// spaces.
int32_t name_list_find(struct name_list * list, const char * name);
void name_list_free(struct name_list * list);
