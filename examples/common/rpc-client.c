#include "rpc-client.h"

#include "base/error.h"
#include "backends.h"
#include "program.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { NAME_SIZE = 288, FD_MAX = 1024 };

struct server {
    char name[NAME_SIZE]; // as the user wrote it
    char address[RPC_ADDRESS_SIZE];
    int  sock; // owned by ggml

    // ggml closes unused connections; this keeps ours open, with its time-outs
    ggml_backend_t backend;
};

// Global, because ggml's abort callback has no user data.
static struct {
    int64_t       timeout;
    int           n;
    struct server server[GGML_RPC_MAX_SERVERS];
    char          waiting[NAME_SIZE + 128]; // the message if ggml does not return in time
} rpc;

//
// A lost server
//

// True if the server has closed the connection, or it broke.
static bool is_closed(int sock) {
    char          c;
    const ssize_t n = recv(sock, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Called by the thread that failed, after ggml has flushed stdout.
static void on_abort(const char * message) {
    if (strstr(message, "ggml-rpc") == NULL) {
        backends_on_abort(message);
    }
    bool found = false;
    for (int i = 0; i < rpc.n; ++i) {
        if (is_closed(rpc.server[i].sock)) {
            fprintf(stderr,
                    "%s: server %s is lost: the connection is closed; the server has ended or "
                    "rejected a request, or the network failed\n",
                    program_name(), rpc.server[i].name);
            found = true;
        }
    }
    if (!found) {
        fprintf(stderr, "%s: %s", program_name(), rpc.n == 1 ? "server " : "one of the servers ");
        for (int i = 0; i < rpc.n; ++i) {
            fprintf(stderr, "%s%s", i > 0 ? ", " : "", rpc.server[i].name);
        }
        fprintf(stderr, " is lost: no answer within %lld seconds (--rpc-timeout)\n",
                (long long) rpc.timeout);
    }
    _exit(EXIT_CODE_SYSTEM); // not exit: other threads are still running
}

//
// Connecting
//

// Another client can take the server after the probe and before the time-outs are set; ggml would
// wait for it to finish.
static void on_alarm(int number) {
    (void) number;
    if (write(STDERR_FILENO, rpc.waiting, strlen(rpc.waiting)) < 0) {
        // stderr is closed; the exit code remains
    }
    _exit(EXIT_CODE_SYSTEM);
}

// The socket connected to the address, or -1.
static int find_socket(const char * address) {
    for (int fd = 0; fd < FD_MAX; ++fd) {
        struct sockaddr_in addr;
        socklen_t          size = sizeof(addr);
        char               text[RPC_ADDRESS_SIZE], digits[INET_ADDRSTRLEN];
        if (getpeername(fd, (struct sockaddr *) &addr, &size) != 0 || addr.sin_family != AF_INET) {
            continue;
        }
        snprintf(text, sizeof(text), "%s:%d",
                inet_ntop(AF_INET, &addr.sin_addr, digits, sizeof(digits)), ntohs(addr.sin_port));
        if (strcmp(text, address) == 0) {
            return fd;
        }
    }
    return -1;
}

static bool add_server(
        struct server * s, ggml_backend_reg_t (*add)(const char *), struct lrnn_error * err) {
    if (!rpc_resolve(s->name, s->address, err)) {
        return false;
    }
    for (int i = 0; i < rpc.n; ++i) {
        if (strcmp(rpc.server[i].address, s->address) == 0) {
            return error_bad_input(err, "server %s is listed twice", s->name);
        }
    }
    if (!rpc_probe(s->name, s->address, err)) {
        return false;
    }
    snprintf(rpc.waiting, sizeof(rpc.waiting),
            "%s: server %s: no answer within %d seconds; it serves another client\n",
            program_name(), s->name, RPC_PROBE_SECONDS);
    struct sigaction before;
    sigaction(SIGALRM, &(struct sigaction) { .sa_handler = on_alarm }, &before);
    alarm(RPC_PROBE_SECONDS);
    ggml_backend_reg_t reg = add(s->address);
    if (reg != NULL) {
        s->backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL);
    }
    alarm(0);
    sigaction(SIGALRM, &before, NULL);

    s->sock = s->backend != NULL ? find_socket(s->address) : -1;
    const struct timeval patience = { .tv_sec = (time_t) rpc.timeout };
    if (s->sock < 0 ||
            setsockopt(s->sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0 ||
            setsockopt(s->sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
        return error_bad_input(err, "server %s: %s", s->name,
                reg == NULL ? "it has no devices" : "cannot set a time-out on the connection");
    }
    ggml_backend_register(reg);
    rpc.n++;
    return true;
}

bool rpc_client_connect(const char * servers, int64_t timeout, struct lrnn_error * err) {
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("RPC");
    union {
        void * pointer;
        ggml_backend_reg_t (*add)(const char * endpoint);
    } found = { .pointer = reg != NULL ? ggml_backend_reg_get_proc_address(
                                                 reg, "ggml_backend_rpc_add_server")
                                       : NULL };
    if (found.pointer == NULL) {
        return error_bad_input(err, "--rpc: this build of ggml has no RPC backend");
    }
    rpc.timeout = timeout;
    ggml_set_abort_callback(on_abort);
    signal(SIGPIPE, SIG_IGN); // or sending to a lost server would silently end the program

    for (const char * p = servers;; ++p) {
        const size_t n = strcspn(p, ",");
        if (rpc.n == GGML_RPC_MAX_SERVERS || n >= NAME_SIZE) {
            return error_bad_input(err,
                    rpc.n == GGML_RPC_MAX_SERVERS ? "--rpc lists more than %d servers"
                                                  : "--rpc: a server name exceeds %d bytes",
                    rpc.n == GGML_RPC_MAX_SERVERS ? GGML_RPC_MAX_SERVERS : NAME_SIZE - 1);
        }
        struct server * s = &rpc.server[rpc.n];
        snprintf(s->name, sizeof(s->name), "%.*s", (int) n, p);
        if (!add_server(s, found.add, err)) {
            return false;
        }
        p += n;
        if (*p == '\0') {
            return true;
        }
    }
}
