#pragma once

// JSON schemas before xgrammar compiles them. It obeys one of the keywords that say all about a
// value ($ref, const, enum, anyOf, oneOf, allOf) and ignores what stands beside it.

#include "lrnn.h"

#ifdef __cplusplus
extern "C" {
#endif

// Refuses a text that is not JSON, and a schema of which a part would be ignored.
bool schema_check(const char * text, size_t size, struct lrnn_error * err);

#ifdef __cplusplus
}
#endif
