#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t seen; // written by the signal handler

static void on_signal(int number) {
    (void) number;
    seen = 1;
}

void interrupt_listen(bool wakes) {
    struct sigaction action = { 0 };

    // the handler serves once; the second signal kills the process, which is the default
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
