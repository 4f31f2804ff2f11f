#pragma once

// Ctrl-C as a wish: the first one asks the program to stop where nothing is lost, the second one ends it at once.

#include <stdbool.h>

// Begins to listen, and forgets what was heard before.
void interrupt_listen(void);

// True after Ctrl-C, or after a request to terminate.
bool interrupt_seen(void);
