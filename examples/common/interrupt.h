#pragma once

// Ctrl-C as a wish: the first one asks the program to stop where nothing is lost, the second one
// ends it at once.

#include <stdbool.h>

// Begins to listen, and forgets what was heard before.
// - wakes: reading from a terminal ends with Ctrl-C, as if there were nothing more to read
void interrupt_listen(bool wakes);

// True after Ctrl-C, or after a request to terminate.
bool interrupt_seen(void);
