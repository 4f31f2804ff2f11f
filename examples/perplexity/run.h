#pragma once

// lrnn-perplexity run: windows of a data set through models, token by token, into score files.

#include "exit-code.h"

enum exit_code run_main(int argc, char ** argv);
