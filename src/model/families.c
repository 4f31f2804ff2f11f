// The table of families.

#include "model/families.h"

#include <stdio.h>
#include <string.h>

#define FAMILY_ADDRESS(name) &family_##name,
static const struct family * const TABLE[] = { FAMILIES(FAMILY_ADDRESS) };
#undef FAMILY_ADDRESS

enum { N_FAMILIES = sizeof(TABLE) / sizeof(TABLE[0]) };

const struct family * family_mixer(const struct family * family) {
    return family->mixer != NULL ? family->mixer : family;
}

// The name of a family, or its architecture of llama.cpp, which may be NULL.
static const char * name_of(const struct family * family, bool llama_cpp) {
    return llama_cpp ? family->llama_cpp : family->name;
}

const struct family * family_find(const char * name, bool llama_cpp) {
    for (int i = 0; i < N_FAMILIES; ++i) {
        const char * own = name_of(TABLE[i], llama_cpp);
        if (own != NULL && strcmp(own, name) == 0) {
            return TABLE[i];
        }
    }
    return NULL;
}

void family_names(bool llama_cpp, char * text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < N_FAMILIES && n < size; ++i) {
        const char * name = name_of(TABLE[i], llama_cpp);
        if (name != NULL) {
            n += (size_t) snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", name);
        }
    }
}
