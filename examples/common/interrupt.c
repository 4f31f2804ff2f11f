#include "interrupt.h"

#include "base/atomic-file.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

// the signals that end a process without being a crash
static const int SIGNALS[] = { SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGALRM, SIGXCPU,
    SIGXFSZ };

enum { N_SIGNALS = sizeof(SIGNALS) / sizeof(SIGNALS[0]) };

static volatile sig_atomic_t seen;       // number of the first signal; set by the signal handler
static volatile sig_atomic_t is_reading; // a request ends a read from the terminal
static volatile sig_atomic_t is_dialog;  // Ctrl-C never ends the program

static void on_end(int number) {
    atomic_file_remove_temporaries();
    signal(number, SIG_DFL);
    raise(number);
}

// Ends a read that began after the request, which the request could not end.
static void on_alarm(int number) {
    (void) number;
    if (seen && is_reading) {
        alarm(1);
    }
}

static void on_request(int number) {
    if (is_reading) {
        alarm(1);
    }
    if (!seen) {
        seen = number;
    } else if (number != SIGHUP && // kernel and shell both send it when a terminal is closed
               !(is_dialog && number == SIGINT)) {
        on_end(number);
    }
}

static bool is_ignored(int number) { // SIGHUP under nohup
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = { 0 };
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigfillset(&action.sa_mask); // one handler at a time
    sigaction(number, &action, NULL);
}

void interrupt_begin(void) {
    atexit(atomic_file_remove_temporaries);
    for (int i = 0; i < N_SIGNALS; ++i) {
        if (!is_ignored(SIGNALS[i])) {
            handle(SIGNALS[i], on_end, 0);
        }
    }
}

static void listen(bool reading, bool dialog) {
    const int flags = reading ? 0 : SA_RESTART;

    is_reading = reading;
    is_dialog = dialog;
    alarm(0);
    seen = 0;
    handle(SIGINT, on_request, flags);
    handle(SIGTERM, on_request, flags);
    handle(SIGALRM, reading ? on_alarm : on_end, 0);
    if (!is_ignored(SIGHUP)) {
        handle(SIGHUP, on_request, flags);
    }
}

void interrupt_listen(void) {
    listen(false, false);
}

void interrupt_listen_dialog(bool reading) {
    listen(reading, true);
}

bool interrupt_seen(void) {
    return seen != 0;
}

bool interrupt_is_final(void) {
    return seen != 0 && seen != SIGINT;
}
