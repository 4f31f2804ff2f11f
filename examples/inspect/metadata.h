#pragma once

// What a model file says of itself, as JSON.

#include "lrnn.h"

#include <stdio.h>

// The configuration of the checkpoint that the file was made from, as it was: an object; null if
// the file has none.
void metadata_source_config(FILE * out, const struct lrnn_model * model);

// Every key of the file with its value: an object. Left out are the configuration above, and the
// lists of the vocabulary.
void metadata_keys(FILE * out, const struct lrnn_model * model);
