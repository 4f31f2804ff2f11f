#pragma once

// The metadata of a model file, as JSON.

#include "lrnn.h"

#include <stdio.h>

// The configuration of the checkpoint that the file was converted from: an object, or null.
void metadata_source_config(FILE * out, const struct lrnn_model * model);

// All keys of the file with their values, as an object. Omits the configuration above and the lists
// of the vocabulary.
void metadata_keys(FILE * out, const struct lrnn_model * model);
