#include "conversation.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>

static struct lrnn_message make_message(const char * role, const char * content, size_t size,
        const int32_t * tokens, int64_t n_tokens) {
    char *    text = program_alloc(size + 1, 1);
    int32_t * ids = tokens != NULL ? program_alloc((size_t) n_tokens + 1, sizeof(*ids)) : NULL;
    memcpy(text, content, size);
    if (n_tokens > 0) {
        memcpy(ids, tokens, (size_t) n_tokens * sizeof(*ids));
    }
    return (struct lrnn_message) {
        .role = role, .content = text, .size = size, .tokens = ids, .n_tokens = n_tokens
    };
}

static void free_message(const struct lrnn_message * m) {
    // the message is ours, its pointers are const for the library only
    union {
        const void * in;
        void *       out;
    } content = { m->content }, tokens = { m->tokens };
    free(content.out);
    free(tokens.out);
}

static void insert(struct conversation * c, int64_t at, struct lrnn_message m) {
    if (c->n == c->room) {
        const int64_t         room = 2 * c->n + 8;
        struct lrnn_message * more = program_alloc((size_t) room, sizeof(*more));
        if (c->n > 0) {
            memcpy(more, c->messages, (size_t) c->n * sizeof(*more));
        }
        free(c->messages);
        c->messages = more;
        c->room = room;
    }
    memmove(c->messages + at + 1, c->messages + at, (size_t) (c->n - at) * sizeof(m));
    c->messages[at] = m;
    c->n++;
}

void conversation_add(struct conversation * c, const char * role, const char * content, size_t size,
        const struct token_list * tokens) {
    static const int32_t none = 0;
    const int32_t *      ids = tokens == NULL ? NULL : tokens->n > 0 ? tokens->ids : &none;
    insert(c, c->n, make_message(role, content, size, ids, tokens != NULL ? tokens->n : 0));
}

void conversation_drop(struct conversation * c, int64_t n) {
    for (; n > 0 && c->n > 0; --n) {
        free_message(&c->messages[--c->n]);
    }
    if (c->n == 0) {
        free(c->messages);
        *c = (struct conversation) { 0 };
    }
}

void conversation_set_system(struct conversation * c, const char * text) {
    if (conversation_has_system(c)) {
        free_message(&c->messages[0]);
        c->n--;
        memmove(c->messages, c->messages + 1, (size_t) c->n * sizeof(*c->messages));
    }
    if (text != NULL) {
        insert(c, 0, make_message("system", text, strlen(text), NULL, 0));
    }
}

void conversation_copy(struct conversation * to, const struct conversation * from) {
    conversation_drop(to, to->n);
    for (int64_t i = 0; i < from->n; ++i) {
        const struct lrnn_message * m = &from->messages[i];
        insert(to, to->n, make_message(m->role, m->content, m->size, m->tokens, m->n_tokens));
    }
}
