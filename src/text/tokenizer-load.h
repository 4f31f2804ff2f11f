#pragma once

// The tokenizer of a model file.

#include "file/loader.h"

struct tokenizer;

// Reads the tokenizer.ggml keys into model->tokenizer; NULL there if the file has none ("none", or
// no key).
bool vocab_load(struct loader * l);
