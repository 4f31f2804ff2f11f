#pragma once

// Guesses the next tokens of a text: those that followed the last ones earlier. To generate several
// tokens per call, evaluate a sampled token and its draft in one lrnn_eval, n_logits of all; sample
// row by row until a token differs from the draft; rewind the rest. A call of up to 32 tokens
// computes the recurrence and attention token by token: with Q8_0 and Q4_0 matrices the logits are
// bit-identical to those of one call per token.

#include "lrnn.h"

struct draft;
struct draft * draft_new(int32_t n_max, struct lrnn_error * err);
void draft_free(struct draft * draft);

// Adds a token to the text. Proposes up to n_max tokens and returns their number, 0 if unknown.
void draft_accept(struct draft * draft, int32_t token);
int32_t draft_propose(struct draft * draft, int32_t n_max, int32_t * tokens);
