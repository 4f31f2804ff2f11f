#pragma once

// Text inside XML and HTML.

#include <stdio.h>

// Writes text with escapes, for elements and for attributes in double quotes. Control characters
// and invalid UTF-8 become U+FFFD.
void markup_text(FILE * out, const char * text);
