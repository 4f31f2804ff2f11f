#include "token-list.h"

#include "program.h"

#include <stdlib.h>
#include <string.h>

void token_list_add(struct token_list * list, const int32_t * ids, int64_t n) {
    if (list->n + n > list->room) {
        const int64_t room = 2 * (list->n + n);
        int32_t *     more = program_alloc((size_t) room, sizeof(*more));
        if (list->n > 0) {
            memcpy(more, list->ids, (size_t) list->n * sizeof(*more));
        }
        free(list->ids);
        list->ids = more;
        list->room = room;
    }
    if (n > 0) {
        memcpy(list->ids + list->n, ids, (size_t) n * sizeof(*ids));
    }
    list->n += n;
}

void token_list_set(struct token_list * list, const int32_t * ids, int64_t n) {
    list->n = 0;
    token_list_add(list, ids, n);
}

void token_list_free(struct token_list * list) {
    free(list->ids);
    *list = (struct token_list) { 0 };
}

bool token_list_begins(const struct token_list * list, const int32_t * ids, int64_t n) {
    return list->n <= n &&
           (list->n == 0 || memcmp(list->ids, ids, (size_t) list->n * sizeof(*ids)) == 0);
}
