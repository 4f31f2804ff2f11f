#pragma once

// lrnn-perplexity compare -m A.gguf -m B.gguf: how far models are from the first one, position by
// position, run in step over a text.

#include "exit-code.h"

enum exit_code compare_step_main(int argc, char ** argv);
