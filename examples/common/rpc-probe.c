// Checks an RPC server before ggml connects to it.
//
// ggml offers no such check: its client aborts the process if nobody answers or the version
// differs, and waits forever if the server does not respond. So this file speaks the handshake of
// ggml-rpc's wire format itself.
//
// A server is compatible if its protocol version equals ours in all three numbers. ggml raises the
// last number whenever it adds an op, because op numbers are part of the protocol; our build adds
// 100 to it, because our ops are among them (cmake/glue.cmake).

#include "rpc-client.h"

#include "base/error.h"
#include "ggml.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The handshake of ggml-rpc. Numbers have the byte order of the machine. Capabilities describe the
// connection; zeros mean TCP.
//
//     request:  command (1 byte), size (8 bytes), capabilities of the client (24 bytes)
//     answer:   size (8 bytes), major, minor, patch, 0 (1 byte each), capabilities of the server
enum {
    HELLO = 14,
    CAPS_SIZE = 24,
    REQUEST_SIZE = 1 + 8 + CAPS_SIZE,
    VERSION_SIZE = 4,
    ANSWER_SIZE = 8 + VERSION_SIZE + CAPS_SIZE
};

enum outcome {
    DONE,
    LATE,   // timed out
    CLOSED, // by the server
    FAILED, // see errno
};

// Waits until the socket is readable or writable.
static enum outcome wait_for(int sock, short events, int64_t deadline_us) {
    for (;;) {
        const int64_t left = (deadline_us - ggml_time_us() + 999) / 1000;
        struct pollfd p = { .fd = sock, .events = events };
        const int     n = left > 0 ? poll(&p, 1, (int) left) : 0;
        if (n > 0) {
            return DONE;
        }
        if (n == 0) {
            return LATE;
        }
        if (errno != EINTR) {
            return FAILED;
        }
    }
}

static enum outcome connect_within(int sock, const struct sockaddr_in * addr, int64_t deadline_us) {
    int       error = 0;
    socklen_t size = sizeof(error);
    if (fcntl(sock, F_SETFL, O_NONBLOCK) != 0) {
        return FAILED;
    }
    if (connect(sock, (const struct sockaddr *) addr, sizeof(*addr)) == 0) {
        return DONE;
    }
    if (errno != EINPROGRESS) {
        return FAILED;
    }
    const enum outcome outcome = wait_for(sock, POLLOUT, deadline_us);
    if (outcome != DONE || getsockopt(sock, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        return outcome != DONE ? outcome : FAILED;
    }
    errno = error;
    return error == 0 ? DONE : FAILED;
}

// The request is smaller than any socket buffer, so that it is sent as a whole.
static enum outcome send_hello(int sock) {
    uint8_t        request[REQUEST_SIZE] = { HELLO };
    const uint64_t size = CAPS_SIZE;
    memcpy(request + 1, &size, sizeof(size));
    return send(sock, request, sizeof(request), MSG_NOSIGNAL) == (ssize_t) sizeof(request) ? DONE
                                                                                           : FAILED;
}

static enum outcome receive(int sock, uint8_t * data, size_t size, int64_t deadline_us) {
    for (size_t got = 0; got < size;) {
        const enum outcome outcome = wait_for(sock, POLLIN, deadline_us);
        if (outcome != DONE) {
            return outcome;
        }
        const ssize_t n = recv(sock, data + got, size - got, 0);
        if (n == 0) {
            return CLOSED;
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return FAILED;
        }
        got += n > 0 ? (size_t) n : 0;
    }
    return DONE;
}

// HOST:PORT
static bool resolve(const char * server, struct sockaddr_in * addr, struct lrnn_error * err) {
    const char * colon = strrchr(server, ':');
    char *       end = NULL;
    const long   port =
            colon != NULL && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : 0;
    char host[256];
    if (port < 1 || port > UINT16_MAX || *end != '\0' || colon == server ||
            (size_t) (colon - server) >= sizeof(host)) {
        return error_bad_input(
                err, "'%s' is not a server; expected HOST:PORT, as in 10.0.0.7:50052", server);
    }
    snprintf(host, sizeof(host), "%.*s", (int) (colon - server), server);

    const struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
    struct addrinfo *     found = NULL;
    const int             code = getaddrinfo(host, NULL, &hints, &found);
    if (code != 0) {
        return error_bad_input(err, "server %s: unknown host: %s", server, gai_strerror(code));
    }
    memcpy(addr, found->ai_addr, sizeof(*addr));
    addr->sin_port = htons((uint16_t) port);
    freeaddrinfo(found);
    return true;
}

static bool check_answer(const char * server, const uint8_t * answer, struct lrnn_error * err) {
    const uint8_t * v = answer + 8;
    uint64_t        size;
    memcpy(&size, answer, sizeof(size));
    if (size != VERSION_SIZE + CAPS_SIZE) {
        return error_bad_input(
                err, "server %s is not a ggml RPC server, or a much older one", server);
    }
    if (v[0] == RPC_PROTO_MAJOR_VERSION && v[1] == RPC_PROTO_MINOR_VERSION &&
            v[2] == RPC_PROTO_PATCH_VERSION) {
        return true;
    }
    return error_bad_input(err,
            "server %s speaks version %d.%d.%d of ggml's RPC protocol%s; expected %d.%d.%d, as "
            "spoken by an lrnn-rpc-server of this version",
            server, v[0], v[1], v[2], v[2] < 100 ? ", without the ops of lrnn" : "",
            RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, RPC_PROTO_PATCH_VERSION);
}

bool rpc_resolve(const char * server, char address[RPC_ADDRESS_SIZE], struct lrnn_error * err) {
    struct sockaddr_in addr;
    char               digits[INET_ADDRSTRLEN];
    if (!resolve(server, &addr, err)) {
        return false;
    }
    snprintf(address, RPC_ADDRESS_SIZE, "%s:%d",
            inet_ntop(AF_INET, &addr.sin_addr, digits, sizeof(digits)), ntohs(addr.sin_port));
    return true;
}

bool rpc_probe(const char * server, const char * address, struct lrnn_error * err) {
    struct sockaddr_in addr;
    uint8_t            answer[ANSWER_SIZE];
    if (!resolve(address, &addr, err)) {
        return false;
    }
    const int     sock = socket(AF_INET, SOCK_STREAM, 0);
    const int64_t deadline = ggml_time_us() + RPC_PROBE_SECONDS * INT64_C(1000000);
    enum outcome  outcome = sock >= 0 ? connect_within(sock, &addr, deadline) : FAILED;
    const bool    reached = outcome == DONE;
    if (outcome == DONE) {
        outcome = send_hello(sock);
    }
    if (outcome == DONE) {
        outcome = receive(sock, answer, sizeof(answer), deadline);
    }
    const int error = errno;
    if (sock >= 0) {
        close(sock);
    }
    switch (outcome) {
        case DONE: return check_answer(server, answer, err);
        case LATE: {
            error_bad_input(err, "server %s: no %s within %d seconds%s", server,
                    reached ? "answer" : "connection", RPC_PROBE_SECONDS,
                    reached ? "; it hangs, serves another client, or is not a ggml RPC server"
                            : "");
        } break;
        case CLOSED: {
            error_bad_input(err, "server %s is not a ggml RPC server, or an older one", server);
        } break;
        case FAILED: {
            error_bad_input(err, "server %s: %s", server, strerror(error));
        } break;
    }
    return false;
}
