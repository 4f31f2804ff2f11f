#pragma once

// Writing JSON (RFC 8259): strings and numbers. The caller writes the rest. See base/json-read.h
// for reading.

#include <stddef.h>
#include <stdio.h>

// Writes a string with its quotes. Control characters are escaped. Every byte that is not part of a
// UTF-8 character becomes U+FFFD, so the output is valid JSON for any input.
void json_write_string(FILE * out, const char * text);
void json_write_bytes(FILE * out, const char * text, size_t size);

// Writes a number with eight digits, or null if it is not finite.
void json_write_number(FILE * out, double x);
