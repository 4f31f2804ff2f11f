#pragma once

// The commands of lrnn-perplexity. argv[0] is the name of the command.

#include "exit-code.h"

enum exit_code run_main(int argc, char ** argv);
enum exit_code report_main(int argc, char ** argv);
enum exit_code export_main(int argc, char ** argv);
enum exit_code compare_runs_main(int argc, char ** argv);
enum exit_code compare_models_main(int argc, char ** argv);
enum exit_code imatrix_main(int argc, char ** argv);
enum exit_code logits_main(int argc, char ** argv);
