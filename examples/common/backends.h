#pragma once

// Programs with the CUDA backend on a machine without a card. ggml tells of it in a line of its
// log, which would stand between those of the program; what it says is kept for the one sentence in
// which a program says that it computes on the CPU instead.

#include <stdbool.h>
#include <stddef.h>

// For the callback of ggml's log. True: the line says why CUDA does not start, and need not be
// shown.
bool cuda_card_on_log(const char * line);

// True if this build has the CUDA backend and there is no card for it: text is then "no CUDA card
// was found", and why, without a full stop.
bool cuda_card_is_missing(char * text, size_t text_size);

// How the CUDA backend of this build was compiled and tested, one sentence; "" without one.
const char * cuda_notice(void);
