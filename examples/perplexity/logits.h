#pragma once

// lrnn-perplexity logits: the exact logits for given token ids.

#include "exit-code.h"

enum exit_code logits_main(int argc, char ** argv);
