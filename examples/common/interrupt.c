#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen; // a signal handler has nowhere else to write

static void on_signal(int number) {
    (void) number;
    seen = 1;
}

void interrupt_listen(bool wakes) {
    struct sigaction action = { 0 };

    // the handler serves once: the second signal finds the default, which ends the process
    action.sa_handler = on_signal;
    action.sa_flags   = (int) SA_RESETHAND | (wakes ? 0 : SA_RESTART);
    sigemptyset(&action.sa_mask);
    seen = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_seen(void) {
    return seen != 0;
}
