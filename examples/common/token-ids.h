#pragma once

// Token ids in text: decimal numbers separated by white space or commas.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Reads the ids of a text, possibly none. The caller frees *ids.
bool token_ids_parse(
        const char * text, size_t size, int32_t ** ids, int64_t * n_ids, struct lrnn_error * err);

// Checks that all ids are below n_vocab; otherwise `err` names the first that is not.
bool token_ids_check(const int32_t * ids, int64_t n_ids, int64_t n_vocab, struct lrnn_error * err);
