#pragma once

// JSON (RFC 8259), written as it comes.

#include <stddef.h>
#include <stdio.h>

// A string with its quotes. Control characters are escaped, and every byte that is not part of a
// UTF-8 character becomes U+FFFD: what is written is valid JSON whatever the bytes are.
void json_string(FILE * out, const char * text, size_t size);

// A number; null if it is not finite, for which JSON has no word.
void json_number(FILE * out, double x);
