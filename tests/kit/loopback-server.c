#include "kit/loopback-server.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Leaks of ggml-rpc: it keeps its servers and buffer types as long as the process lives, and does
// not free the events of a scheduler.
const char * __lsan_default_suppressions(void);
const char * __lsan_default_suppressions(void) {
    return "leak:^ggml_backend_rpc_add_server$\n"
           "leak:^ggml_backend_rpc_buffer_type$\n"
           "leak:^ggml_backend_rpc_device_event_new$\n";
}

// Ends the server when the write end of the pipe is closed.
static void * wait_for_end(void * arg) {
    char c;
    while (read(*(int *) arg, &c, 1) > 0) {
    }
    _exit(0);
}

static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in) {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) }
    };
}

static uint16_t free_port(void) {
    const int          sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = loopback(0);
    socklen_t          len = sizeof(addr);

    const bool ok = sock >= 0 && bind(sock, (struct sockaddr *) &addr, len) == 0 &&
                    getsockname(sock, (struct sockaddr *) &addr, &len) == 0;
    close(sock);
    return ok ? ntohs(addr.sin_port) : 0;
}

static bool server_answers(uint16_t port) {
    const int          sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = loopback(port);

    const bool ok = sock >= 0 && connect(sock, (struct sockaddr *) &addr, sizeof(addr)) == 0;
    close(sock);
    return ok;
}

void loopback_server_stop(struct loopback_server * server) {
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    close(server->lifeline);
}

static bool try_start(struct loopback_server * server) {
    const uint16_t port = free_port();
    int            ends[2];
    if (port == 0 || pipe(ends) != 0) {
        return false;
    }
    snprintf(server->endpoint, sizeof(server->endpoint), "127.0.0.1:%d", port);

    server->lifeline = ends[1];
    server->pid = fork();
    if (server->pid < 0) {
        return false;
    }
    if (server->pid == 0) {
        close(ends[1]);
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_end, &ends[0]) != 0 ||
                freopen("/dev/null", "w", stdout) == NULL) {
            _exit(1);
        }
        ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        ggml_backend_rpc_start_server(server->endpoint, NULL, 1, 1, &dev);
        _exit(1); // another process took the port
    }
    close(ends[0]);

    // ggml aborts if it cannot connect, so try first
    for (int i = 0; i < 1000; ++i) {
        const bool answers = server_answers(port);
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) { // another server answered, if any
            close(server->lifeline);
            return false;
        }
        if (answers) {
            return true;
        }
        nanosleep(&(struct timespec) { .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
    loopback_server_stop(server);
    return false;
}

bool loopback_server_start(struct loopback_server * server) {
    for (int i = 0; i < 5; ++i) {
        if (try_start(server)) {
            return true;
        }
    }
    return false;
}
