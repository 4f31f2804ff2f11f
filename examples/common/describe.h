#pragma once

// A program's table of options as a man page and as completions for shells. The build writes them
// with --describe, and they are installed with the programs.

#include "options.h"

#define DESCRIBE_WORDS "man|bash|zsh|fish"

// False if `what` is none of the words. A program whose name has two words, "lrnn-perplexity run",
// is a command of the first one: its completions are a part of that one's file.
bool describe(const struct program * program, const char * what, FILE * out);
