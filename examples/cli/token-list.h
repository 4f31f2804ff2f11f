#pragma once

// Token ids that grow. The program ends with a message if memory runs out.

#include <stdbool.h>
#include <stdint.h>

struct token_list { // initialize with { 0 }
    int32_t * ids;
    int64_t   n;
    int64_t   room;
};

void token_list_add(struct token_list * list, const int32_t * ids, int64_t n);
void token_list_set(struct token_list * list, const int32_t * ids, int64_t n);
void token_list_free(struct token_list * list);

// True if the list is the beginning of these ids.
bool token_list_begins(const struct token_list * list, const int32_t * ids, int64_t n);
