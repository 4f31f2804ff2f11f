#pragma once

// Weights for a thread that waits: see fetch-ahead.c.

#include "glue.h"

// The thread has come to node i.
void fetch_ahead_from(struct ggml_lrnn_cpu_order * order, int i);

// Fetches a few lines; false if there is nothing to fetch.
bool fetch_ahead(struct ggml_lrnn_cpu_order * order);
