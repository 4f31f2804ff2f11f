#pragma once

// The progress of a run on stderr, and its end: Ctrl-C or the time limit. On a terminal, one line
// overwrites itself; elsewhere, a plain line is printed now and then.

#include "eval/score.h"

struct run_progress {
    bool    quiet;
    bool    is_terminal;
    double  limit_s;  // since run_progress_begin; 0: none
    int64_t start_us; // of the program
    int64_t shown_us; // time of the last line
    // set for each model:
    const char * model;
    int64_t      n_windows; // of the whole run
    int64_t      n_tokens;  // to evaluate
    int64_t      begun_us;
};

void run_progress_begin(struct run_progress * p, bool quiet, double limit_s);

// Callbacks of windows_make and score_run; user is the run_progress. The time limit stops only
// scoring: a run that has read its data makes at least one call, so that resuming it gets ahead.
bool run_progress_data(const struct windows_summary * so_far, void * user);
bool run_progress_score(const struct score_progress * score, void * user);

// Clears the line on the terminal, before other output.
void run_progress_clear(const struct run_progress * p);
