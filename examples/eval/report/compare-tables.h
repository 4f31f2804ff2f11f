#pragma once

// The tables that `lrnn-perplexity compare A B` prints. They return NULL if out of memory.

#include "eval/estimates/paired.h"
#include "eval/report/text-table.h"

struct table * comparison_table(const struct comparison * c, struct arena * arena);
struct table * byte_comparison_table(const struct byte_comparison * c, const char * base,
        const char * other, struct arena * arena); // base, other: names of the models
