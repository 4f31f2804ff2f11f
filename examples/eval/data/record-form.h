#pragma once

// How a data file holds its records. The first bytes decide, never the name.

#include <stdbool.h>
#include <stddef.h>

enum record_form {
    RECORD_FORM_EMPTY,   // no bytes
    RECORD_FORM_TEXT,    // not JSON: the whole file is one record
    RECORD_FORM_LINES,   // one {…} per line; only 0x0A ends a line
    RECORD_FORM_VALUES,  // {…} {…} over any number of lines; usually one, indented
    RECORD_FORM_ARRAY,   // [ {…}, {…} ]
    RECORD_FORM_WRAPPED, // { "Data": [ {…}, {…} ], … }, as in TriviaQA
};

// - p, n: the first bytes of the file
// - start: receives the offset at which the first record may begin
enum record_form record_form_of(const char * p, size_t n, size_t * start);

// Describes a known format that cannot be read (Parquet, Arrow, archives, UTF-16) and what to do
// about it; NULL: none of them.
const char * record_form_foreign(const char * p, size_t n);

// The offset of the first byte from i on that is not white space, or n.
size_t record_skip_space(const char * p, size_t n, size_t i);
bool record_is_space(char c);
