#pragma once

// The option table of a program as a man page and as shell completions. The build writes them with
// --describe and installs them with the programs.

#include "options.h"

#define DESCRIBE_WORDS "man|bash|zsh|fish"

// Returns false if `what` is not one of the words. A program whose name has two words, such as
// "lrnn-perplexity run", is a command of the first; its completions are part of the same file.
bool describe(const struct program * program, const char * what, FILE * out);
