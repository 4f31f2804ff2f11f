#include "chat.h"

#include "terminal.h"

#include <stdio.h>
#include <string.h>

static void enter(struct thinking_printer * p, bool is_inside) {
    p->is_inside = is_inside;
    if (p->is_styled) {
        fputs(is_inside ? TERMINAL_DIM : TERMINAL_RESET, stdout);
    }
}

void thinking_begin(
        struct thinking_printer * p, const struct lrnn_chat * chat, bool is_styled, bool begins) {
    *p = (struct thinking_printer) { .is_styled = is_styled };
    for (int i = 0; i < 2; ++i) {
        p->mark[i] = lrnn_chat_thinking_mark(chat, i == 1, &p->size[i]);
        if (p->size[i] >= sizeof(p->held)) {
            p->mark[0] = NULL; // no real mark is that long
        }
    }
    if (p->mark[0] == NULL || p->mark[1] == NULL) {
        p->mark[0] = p->mark[1] = NULL;
    } else if (begins) {
        enter(p, true);
        if (!is_styled) {
            fwrite(p->mark[0], 1, p->size[0], stdout); // so that readers find both marks
            fputc('\n', stdout);
        }
    }
}

static void push(struct thinking_printer * p, char c) {
    const char * mark = p->mark[p->is_inside];
    const size_t size = p->size[p->is_inside];

    p->held[p->n_held++] = c;
    while (p->n_held > 0 && (p->n_held > size || memcmp(p->held, mark, p->n_held) != 0)) {
        fputc(p->held[0], stdout);
        memmove(p->held, p->held + 1, --p->n_held);
    }
    if (p->n_held == size) {
        if (!p->is_styled) {
            fwrite(p->held, 1, p->n_held, stdout);
        }
        p->n_held = 0;
        enter(p, !p->is_inside);
    }
}

void thinking_write(const char * text, size_t size, void * user) {
    struct thinking_printer * p = user;
    if (p->mark[0] == NULL) {
        fwrite(text, 1, size, stdout);
        return;
    }
    for (size_t i = 0; i < size; ++i) {
        push(p, text[i]);
    }
}

void thinking_end(struct thinking_printer * p) {
    fwrite(p->held, 1, p->n_held, stdout);
    p->n_held = 0;
    if (p->is_inside) {
        enter(p, false);
    }
}
