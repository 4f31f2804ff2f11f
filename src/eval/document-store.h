#pragma once

// Documents in memory, to be handed out in another order.

#include "eval/dataset.h"

struct stored_document {
    struct document doc;    // text and source are copies, the file's name is the caller's
    char *          memory; // what they lie in
};

struct document_store {
    size_t                   max_bytes; // set by the owner; everything else starts as zero
    size_t                   bytes;
    struct stored_document * documents;
    size_t                   n, capacity;
    size_t                   next;
};

bool document_store_add(
        struct document_store * s, const struct document * doc, char * err, size_t err_size);
void document_store_shuffle(struct document_store * s,
        uint64_t seed); // an order that depends on the seed and the number of documents alone
bool document_store_next(
        struct document_store * s, struct document * doc); // false: there are no more
void document_store_free(struct document_store * s);
