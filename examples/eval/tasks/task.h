#pragma once

// State-tracking tasks: streams of symbols, with the true answer after each symbol that has one.
//
//     parity        0 1                      the number of ones so far, modulo 2
//     mod:M         0 … M−1                  their sum modulo M: the word problem of Z_M
//     S3 … S7       permutations, 12345 = e  the product x_1 ∘ … ∘ x_t; the newest acts first
//     S5:swaps      the same, but only letters of at most one swap are drawn; S5:2: of at most two
//     S5:3-cycles   only letters that move at most three points
//     S5:4-tokens   each letter is followed by three _; its product comes at the third
//     A4 … A7       the even permutations
//     mod-arith     d + d * d … =            the value modulo 5 so far; * binds tighter
//     mod-arith:M   the same modulo M
//     mod-brackets  ( ( d + d ) - d ) … =    the value modulo 5 of the pair of brackets, at each ),
//                                            and of the whole, at =; mod-brackets:M
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
int task_find_symbol(const struct task * t, const char * name); // −1: none
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

// Finds the answers after n given symbols; −1: none. A sequence that the task cannot have, such as
// a bracket that is not closed, is an error of the kind bad input.
bool task_answers(const struct task * task, const int32_t * symbols, int64_t n, int32_t * answers,
        struct lrnn_error * err);
