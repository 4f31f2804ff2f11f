// fake-rpc-server MODE: listens on a free port of the loopback, prints its number, and treats every
// client badly until it is killed.
//
//     silent     takes the connection and says nothing
//     garbage    answers with noise
//     short      closes in the middle of an answer
//     stock      greets as an RPC server of ggml without our ops
//     newer      greets as one of a later version
//
// fake-rpc-server send PORT: is the client, and sends noise to a server.

#include "base/random.h"
#include "ggml.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOISE = 4096, GREETING = 8 + 28 };

static void make_noise(uint8_t * data, size_t size) {
    uint64_t seed = 1;
    for (size_t i = 0; i < size; ++i) {
        data[i] = (uint8_t) splitmix64(&seed);
    }
}

static size_t make_answer(const char * mode, uint8_t * data) {
    const uint64_t size = GREETING - 8;
    if (strcmp(mode, "silent") == 0) {
        return 0;
    }
    if (strcmp(mode, "garbage") == 0) {
        make_noise(data, NOISE);
        return NOISE;
    }
    memset(data, 0, GREETING);
    memcpy(data, &size, sizeof(size));
    data[8]  = RPC_PROTO_MAJOR_VERSION;
    data[9]  = RPC_PROTO_MINOR_VERSION;
    data[10] = (uint8_t) (strcmp(mode, "stock") == 0 ? RPC_PROTO_PATCH_VERSION_GGML
                                                     : RPC_PROTO_PATCH_VERSION + 1);
    return strcmp(mode, "short") == 0 ? 11 : GREETING;
}

static int serve(const char * mode) {
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t          len  = sizeof(addr);
    const int          sock = socket(AF_INET, SOCK_STREAM, 0);
    uint8_t            answer[NOISE];

    if (sock < 0 || bind(sock, (struct sockaddr *) &addr, len) != 0 ||
            getsockname(sock, (struct sockaddr *) &addr, &len) != 0 || listen(sock, 8) != 0) {
        return 1;
    }
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    for (;;) {
        const int    client = accept(sock, NULL, NULL);
        const size_t size   = make_answer(mode, answer);
        char         heard[64];
        if (client < 0 || read(client, heard, sizeof(heard)) < 0 ||
                (size > 0 && write(client, answer, size) < 0)) {
            return 1;
        }
        if (strcmp(mode, "silent") == 0) {
            while (read(client, heard, sizeof(heard)) > 0) { // until the client has had enough
            }
        }
        close(client);
    }
}

static int send_noise(const char * port) {
    const struct sockaddr_in addr = { .sin_family = AF_INET,
        .sin_port                                 = htons((uint16_t) atoi(port)),
        .sin_addr                                 = { htonl(INADDR_LOOPBACK) } };
    const int                sock = socket(AF_INET, SOCK_STREAM, 0);
    uint8_t                  noise[NOISE];

    make_noise(noise, sizeof(noise));
    const int ok = sock >= 0 && connect(sock, (const struct sockaddr *) &addr, sizeof(addr)) == 0 &&
                   write(sock, noise, sizeof(noise)) > 0;
    close(sock);
    return ok ? 0 : 1;
}

int main(int argc, char ** argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "send") == 0) {
        return send_noise(argv[2]);
    }
    return argc == 2 ? serve(argv[1]) : 2;
}
