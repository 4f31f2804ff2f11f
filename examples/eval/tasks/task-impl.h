#pragma once

// The inside of a task, shared by task.c and task-automaton.c.

#include "lrnn.h"
#include "eval/tasks/task.h"

enum {
    TASK_POINTS_MAX = 7, // of a permutation: 5,040 elements
    TASK_TOKENS_MAX = 9, // per letter
    TASK_MODULUS_MAX = 1024,
    TASK_STATES_MAX = 64,
    TASK_NAME_MAX = 64,
};

enum task_kind {
    TASK_SUM,
    TASK_GROUP,
    TASK_ARITHMETIC,
    TASK_BRACKETS,
    TASK_AUTOMATON,
};

struct task {
    enum task_kind kind;
    int            n_symbols, n_answers;
    char (*symbols)[TASK_NAME_MAX];
    bool * is_answer;
    int *  letters; // symbols that are drawn
    int    n_letters;

    int modulus; // TASK_SUM, TASK_ARITHMETIC, TASK_BRACKETS
    int first_digit, plus, minus, times, open, close, equals; // symbols

    int points;                           // TASK_GROUP
    int tokens, blank;                    // per letter; the symbol of all but the first
    uint8_t (*elements)[TASK_POINTS_MAX]; // sorted, in the order of the symbols

    int   start;  // TASK_AUTOMATON
    int * next;   // [letters][TASK_STATES_MAX + 1], states; the last one is for the added sink
    int * output; // [TASK_STATES_MAX + 1], symbols
};

// Allocates room for n symbols.
void task_reserve(struct task * t, int n);
int task_add_symbol(struct task * t, const char * name, bool is_answer);

// task-automaton.c: parses `text`, which is changed.
bool task_make_automaton(struct task * t, char * text, struct lrnn_error * err);
