#pragma once

// Ctrl-C as a request: the first asks the program to stop without losing anything, the second kills
// it.

#include <stdbool.h>

// Starts to listen, and clears earlier requests.
// - wakes: Ctrl-C also ends a read from the terminal, like the end of the input
void interrupt_listen(bool wakes);

// True after SIGINT or SIGTERM.
bool interrupt_seen(void);
