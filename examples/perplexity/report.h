#pragma once

#include "exit-code.h"

// lrnn-perplexity report: tables, pictures and machine-readable figures out of score files.
enum exit_code report_main(int argc, char ** argv);
