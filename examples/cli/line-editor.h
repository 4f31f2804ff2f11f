#pragma once

// Line editing with history on a terminal, by libedit. Builds without libedit have none.

#include <stddef.h>

struct line_editor;

// NULL: the build has no libedit, the terminal is "dumb", or libedit fails.
struct line_editor * line_editor_new(void);

void line_editor_free(struct line_editor * editor);

// Reads a line, without its end, and adds it to the history. The text is valid until the next call.
// NULL: Ctrl-D, or a signal arrived.
const char * line_editor_read(struct line_editor * editor, const char * prompt, size_t * size);
