#pragma once

// State-tracking tasks: streams of symbols, with the true answer after each symbol that has one.
//
//     parity        0 1                      the number of ones so far, modulo 2
//     mod:M         0 … M−1                  their sum modulo M: the word problem of Z_M
//     S3 … S7       permutations, 12345 = e  the product x_1 ∘ … ∘ x_t; the newest acts first
//     S5:2          the same, but only letters of at most two swaps are drawn (S5:swaps = S5:1)
//     A4 … A7       the even permutations
//     mod-arith     d + d * d … =            the value modulo 5, after every digit and at the end;
//                                            * binds tighter
//     mod-arith:M   the same modulo M
//     mod-brackets  ( ( d + d ) - d ) … =    the value modulo 5, at the end
//     automaton     letters                  the state of the automaton
//
// Symbols are words; the tokenizer of a model gives them ids.

#include "lrnn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct task;

// Creates a task from its name, such as "S5:2"; NULL on failure.
// - automaton: the automaton, in the format of `lrnn-convert automaton`; NULL for other tasks
struct task * task_new(
        const char * name, const char * automaton, size_t automaton_size, struct lrnn_error * err);
void task_free(struct task * task);

int task_n_symbols(const struct task * task);
const char * task_symbol(const struct task * task, int i);
bool task_is_answer(const struct task * task, int i);
double task_chance(const struct task * task); // accuracy of a blind guess

// The largest length of a sequence of this task that is at most `length`; 0: none.
int64_t task_length(const struct task * task, int64_t length);

// One sequence. A seed gives the same symbols on every machine.
struct task_stream;

struct task_stream * task_stream_new(const struct task * task, uint64_t seed, int64_t length);
void task_stream_free(struct task_stream * stream);

// Returns the next symbol and the answer after it, or −1 if there is none. Call it at most `length`
// times.
void task_stream_next(struct task_stream * stream, int32_t * symbol, int32_t * answer);
