#pragma once

// Token ids that a user wrote down: decimal numbers between white space or commas.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The ids in a text. *ids is made with malloc, the caller frees it; no ids are no error.
bool token_ids_parse(const char * text, size_t size, int32_t ** ids, int64_t * n_ids, char * err,
        size_t err_size);

// True if all are ids of a vocabulary of n_vocab; otherwise names the first that is not.
bool token_ids_check(
        const int32_t * ids, int64_t n_ids, int64_t n_vocab, char * err, size_t err_size);
