#pragma once

#include "exit-code.h"

#include <stdbool.h>

// lrnn-perplexity compare A B: two runs that were scored before, window by window.
enum exit_code compare_files_main(int argc, char ** argv);
