#pragma once

// Documents in memory, for shuffling.

#include "lrnn.h"
#include "eval/data/dataset.h"

struct stored_document {
    struct document doc; // text and source are copies in `memory`
    char *          memory;
};

struct document_store {
    size_t                   max_bytes; // set by the owner; everything else is zero at first
    size_t                   bytes;
    struct stored_document * documents;
    size_t                   n, capacity;
    size_t                   next;
};

bool document_store_add(
        struct document_store * s, const struct document * doc, struct lrnn_error * err);

// The order depends only on the seed and the number of documents.
void document_store_shuffle(struct document_store * s, uint64_t seed);

bool document_store_next(struct document_store * s, struct document * doc); // false: no more
void document_store_free(struct document_store * s);
