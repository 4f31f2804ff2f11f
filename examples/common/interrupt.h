#pragma once

// Signals. Whatever ends a program deletes the temporary files of its unfinished outputs first.
// While it listens, the first Ctrl-C (SIGINT), SIGTERM or SIGHUP only asks it to stop, so that
// nothing is lost; the second ends it.

#include <stdbool.h>

// Called once, when the program begins.
void interrupt_begin(void);

// Starts to listen, and clears earlier requests.
void interrupt_listen(void);

// The same in a dialog, where Ctrl-C, however often, never ends the program.
// - reading: a request also ends a read from the terminal
void interrupt_listen_dialog(bool reading);

// True after a request to stop.
bool interrupt_seen(void);

// True if the request was not Ctrl-C: a dialog stops too, not only its current answer.
bool interrupt_is_final(void);
