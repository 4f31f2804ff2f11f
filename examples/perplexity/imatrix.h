#pragma once

// lrnn-perplexity imatrix: how much each column of each weight matters, from text.

#include "exit-code.h"

enum exit_code imatrix_main(int argc, char ** argv);
