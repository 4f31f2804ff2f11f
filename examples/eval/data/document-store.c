#include "eval/data/document-store.h"

#include "base/error.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

bool document_store_add(
        struct document_store * s, const struct document * doc, struct lrnn_error * err) {
    const size_t source_size = strlen(doc->source) + 1;
    const size_t cost        = doc->size + source_size + sizeof(struct stored_document);
    if (cost > s->max_bytes - s->bytes) {
        return error_set(err, LRNN_ERROR_BAD_FILE,
                "%s:%lld: shuffling keeps all texts in memory, and they exceed the limit of %zu "
                "bytes; shuffle the files beforehand",
                doc->file, (long long) doc->line, s->max_bytes);
    }
    if (s->n == s->capacity) {
        const size_t             capacity = s->capacity > 0 ? 2 * s->capacity : 1024;
        struct stored_document * more     = realloc(s->documents, capacity * sizeof(*more));
        if (more == NULL) {
            return error_set(
                    err, LRNN_ERROR_NO_MEMORY, "out of memory for %zu documents", capacity);
        }
        s->documents = more;
        s->capacity  = capacity;
    }
    char * copy = malloc(doc->size + source_size); // the source, then the text
    if (copy == NULL) {
        return error_set(
                err, LRNN_ERROR_NO_MEMORY, "out of memory for a text of %zu bytes", doc->size);
    }
    memcpy(copy, doc->source, source_size);
    if (doc->size > 0) {
        memcpy(copy + source_size, doc->text, doc->size);
    }
    struct stored_document * d = &s->documents[s->n++];
    *d                         = (struct stored_document) { *doc, copy };
    d->doc.source              = copy;
    d->doc.text                = copy + source_size;
    s->bytes += cost;
    return true;
}

void document_store_shuffle(struct document_store * s, uint64_t seed) {
    for (size_t i = s->n; i > 1; --i) { // Fisher-Yates
        const size_t                 k = (size_t) random_below(&seed, i);
        const struct stored_document d = s->documents[i - 1];
        s->documents[i - 1]            = s->documents[k];
        s->documents[k]                = d;
    }
}

bool document_store_next(struct document_store * s, struct document * doc) {
    if (s->next == s->n) {
        return false;
    }
    *doc = s->documents[s->next++].doc;
    return true;
}

void document_store_free(struct document_store * s) {
    for (size_t i = 0; i < s->n; ++i) {
        free(s->documents[i].memory);
    }
    free(s->documents);
    *s = (struct document_store) { 0 };
}
