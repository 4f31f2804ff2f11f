#pragma once

// State-tracking tasks: endless streams of symbols with the true answer after each, where there is
// one.
//
//     parity            0 1                          how many ones so far, modulo 2
//     mod:M             0 … M−1                      their sum modulo M: the word problem of Z_M
//     S3 … S7           permutations, 12345 = e      the product x_1 ∘ … ∘ x_t, the newest letter acting first
//     S5:2              the same; only letters of at most two swaps are drawn (S5:swaps = S5:1)
//     A4 … A7           the even ones
//     mod-arith         d + d * d … =                the value modulo 5, after every digit and at the end; * binds tighter
//     mod-arith:M       the same modulo M
//     mod-brackets      ( ( d + d ) - d ) … =        the value modulo 5, at the end
//     automaton         letters of the automaton     its state
//
// Symbols are words; a model's tokenizer gives them ids.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct task;

// - automaton: text of the automaton, in the format of `lrnn-convert automaton`; NULL for other
//   tasks NULL: the sentence in err.
struct task * task_new(const char * spec, const char * automaton, size_t automaton_size, char * err,
        size_t err_size);
void task_free(struct task * task);

int task_n_symbols(const struct task * task);
const char * task_symbol(const struct task * task, int i);
bool task_is_answer(const struct task * task, int i);
double task_chance(const struct task * task); // of a blind guess among the answers
bool task_only_end(const struct task * task); // the answer comes with the last symbol alone

// A length that a sequence of the task can have: the longest one that is not above `length`; 0:
// none.
int64_t task_length(const struct task * task, int64_t length);

// One sequence. The same seed gives the same symbols, whatever the machine.
struct task_stream;

struct task_stream * task_stream_new(
        const struct task * task, uint64_t seed, int64_t length); // NULL: out of memory
void task_stream_free(struct task_stream * stream);

// The next symbol and the answer after it, −1 where the task asks for none. At most `length` times.
// False: out of memory.
bool task_stream_next(struct task_stream * stream, int32_t * symbol, int32_t * answer);
