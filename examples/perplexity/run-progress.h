#pragma once

// How far a run is, on stderr: on a terminal a line that overwrites itself, elsewhere a plain line
// now and then; and when it has to stop.

#include "eval/score.h"

#include <stdbool.h>
#include <stdint.h>

struct run_progress {
    bool    quiet;
    bool    is_terminal;
    double  limit_s;  // 0: none; since run_progress_begin
    int64_t start_us; // of the program
    int64_t shown_us; // last line
    // the model that is running
    const char * model;
    int64_t      n_windows; // of the whole run
    int64_t      n_tokens;  // that are left to evaluate in this shard, when it begins
    int64_t      begun_us;
};

void run_progress_begin(struct run_progress * p, bool quiet, double limit_s);

// What score_run and windows_make call; user is the run_progress. False after Ctrl-C; for score_run
// also when the time is over.
bool run_progress_score(const struct score_progress * score, void * user);
bool run_progress_data(const struct windows_summary * so_far, void * user);

// True when the run has to stop; says nothing.
bool run_progress_is_over(const struct run_progress * p);

void run_progress_clear(
        const struct run_progress * p); // takes the line off the terminal, before other output
