#pragma once

// The frame of an HTML page: self-contained, without scripts, for light and dark screens and print.

#include <stdio.h>

// Writes the head, with the styles of tables and charts, and the title.
void page_begin(const char * title, FILE * out);

// Writes the versions of lrnn and ggml and ends the page.
void page_end(FILE * out);
