#pragma once

// Text inside XML and HTML.

#include <stdio.h>

// Writes the text so that it stands for itself, in an element or between double quotes. What no
// document may hold (control characters, bytes that are not UTF-8) becomes U+FFFD.
void markup_text(FILE * out, const char * text);
