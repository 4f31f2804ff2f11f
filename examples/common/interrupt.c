#include "interrupt.h"

#include <signal.h>

static volatile sig_atomic_t seen; // a signal handler has nowhere else to write

static void on_signal(int number) {
    (void) number;
    seen = 1;
}

void interrupt_listen(void) {
    struct sigaction action = { 0 };

    // the handler serves once: the second signal finds the default, which ends the process. Reads are not restarted, so that they return.
    action.sa_handler = on_signal;
    action.sa_flags   = (int) SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    seen = 0;
    sigaction(SIGINT,  &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_seen(void) {
    return seen != 0;
}
