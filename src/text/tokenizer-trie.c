// Sets of byte strings, for longest matches.

#include "text/tokenizer-impl.h"

#include <stdlib.h>
#include <string.h>

static int entry_compare(const void * a, const void * b) {
    const struct trie_entry * x = a;
    const struct trie_entry * y = b;

    const int c = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);
    return c != 0 ? c : x->len != y->len ? (x->len < y->len ? -1 : 1) : (x->id < y->id ? -1 : 1);
}

// Returns the length of the common prefix.
static uint32_t entry_common(const struct trie_entry * a, const struct trie_entry * b) {
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) {
        n++;
    }
    return n;
}

bool trie_build(struct trie * trie, struct trie_entry * entries, size_t n, int32_t duplicate[2]) {
    *trie = (struct trie) { 0 };
    duplicate[0] = duplicate[1] = -1;
    if (n == 0) {
        return true;
    }
    qsort(entries, n, sizeof(entries[0]), entry_compare);

    // each byte after the common prefix of two neighbors is a node
    size_t n_nodes = 1 + entries[0].len;
    for (size_t i = 1; i < n; ++i) {
        const uint32_t common = entry_common(&entries[i - 1], &entries[i]);
        if (common == entries[i].len) {
            duplicate[0] = entries[i - 1].id;
            duplicate[1] = entries[i].id;
            return false;
        }
        n_nodes += entries[i].len - common;
    }

    // node i is the prefix of length depth[i] that entries begin[i] .. end[i] − 1 share
    uint32_t * begin = malloc(n_nodes * sizeof(*begin));
    uint32_t * end = malloc(n_nodes * sizeof(*end));
    uint32_t * depth = malloc(n_nodes * sizeof(*depth));
    trie->first = malloc((n_nodes + 1) * sizeof(*trie->first));
    trie->id = malloc(n_nodes * sizeof(*trie->id));
    trie->byte = malloc(n_nodes);
    const bool ok = begin != NULL && end != NULL && depth != NULL && trie->first != NULL &&
                    trie->id != NULL && trie->byte != NULL;
    if (ok) {
        uint32_t made = 1;
        begin[0] = 0;
        end[0] = (uint32_t) n;
        depth[0] = 0;
        for (uint32_t node = 0; node < made; ++node) {
            uint32_t       i = begin[node];
            const uint32_t d = depth[node];

            trie->first[node] = made - 1;
            trie->id[node] = -1;
            if (entries[i].len == d) { // the shortest entry comes first
                trie->id[node] = entries[i++].id;
            }
            while (i < end[node]) {
                const char c = entries[i].data[d];
                trie->byte[made - 1] = (uint8_t) c;
                begin[made] = i;
                while (i < end[node] && entries[i].data[d] == c) {
                    i++;
                }
                end[made] = i;
                depth[made] = d + 1;
                if (node == 0) {
                    trie->root[(uint8_t) c] = (int32_t) made;
                }
                made++;
            }
        }
        trie->first[made] = made - 1;
        trie->n_nodes = made;
    } else {
        trie_free(trie);
    }
    free(begin);
    free(end);
    free(depth);
    return ok;
}

void trie_free(struct trie * trie) {
    free(trie->first);
    free(trie->id);
    free(trie->byte);
    *trie = (struct trie) { 0 };
}

size_t trie_longest(const struct trie * trie, const char * p, const char * end, int32_t * id) {
    uint32_t node = (uint32_t) trie->root[(uint8_t) *p];
    size_t   len = 0;
    size_t   depth = 1;
    while (node != 0) {
        if (trie->id[node] >= 0) {
            *id = trie->id[node];
            len = depth;
        }
        if (p + depth == end) {
            break;
        }
        const uint8_t c = (uint8_t) p[depth++];
        uint32_t      lo = trie->first[node], hi = trie->first[node + 1];
        while (lo < hi) { // finds the first edge that is not below c
            const uint32_t mid = lo + (hi - lo) / 2;
            if (trie->byte[mid] < c) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        node = lo < trie->first[node + 1] && trie->byte[lo] == c ? lo + 1 : 0;
    }
    return len;
}
