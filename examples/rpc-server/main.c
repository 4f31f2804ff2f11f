// lrnn-rpc-server: lends the devices of this machine to programs on other machines. It is ggml's
// RPC server with our ops.

#include "backends.h"
#include "base/error.h"
#include "program.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEVICES_MAX = 16 };

struct args {
    const char * host;
    int64_t      port;
    const char * device;
    const char * cache;
    int64_t      threads;
};

static bool find_address(
        const struct args * args, struct sockaddr_in * addr, struct lrnn_error * err) {
    const struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
    struct addrinfo *     found = NULL;
    const int             code = getaddrinfo(args->host, NULL, &hints, &found);
    if (code != 0) {
        return error_set(err, LRNN_ERROR_SYSTEM,
                "--host %s: %s; expected the name or IPv4 address of this machine", args->host,
                gai_strerror(code));
    }
    memcpy(addr, found->ai_addr, sizeof(*addr));
    addr->sin_port = htons((uint16_t) args->port);
    freeaddrinfo(found);
    return true;
}

// Tries to listen. ggml would fail without a reason.
static bool check_address(
        const struct args * args, const struct sockaddr_in * addr, struct lrnn_error * err) {
    const int  sock = socket(AF_INET, SOCK_STREAM, 0);
    const int  reuse = 1; // as ggml does: ignore connections that were just closed
    const bool ok =
            sock >= 0 && setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 &&
            bind(sock, (const struct sockaddr *) addr, sizeof(*addr)) == 0 && listen(sock, 1) == 0;
    if (!ok) {
        error_set(err, LRNN_ERROR_SYSTEM, "cannot listen on %s:%lld: %s", args->host,
                (long long) args->port, strerror(errno));
    }
    if (sock >= 0) {
        close(sock);
    }
    return ok;
}

// Creates the folder if necessary and checks that it is writable. ggml would silently continue
// without a cache.
static bool check_cache(const char * path, struct lrnn_error * err) {
    struct stat st;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        error_set(err, LRNN_ERROR_SYSTEM, "--weight-cache %s: cannot create the folder: %s", path,
                strerror(errno));
    } else if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        error_bad_input(err, "--weight-cache %s is not a folder", path);
    } else if (access(path, R_OK | W_OK | X_OK) != 0) {
        error_set(err, LRNN_ERROR_SYSTEM, "--weight-cache %s: the folder is not writable: %s", path,
                strerror(errno));
    } else {
        return true;
    }
    return false;
}

// The devices in `list`; if it is NULL, all GPUs; if there are none, the CPU.
static bool find_devices(
        const char * list, ggml_backend_dev_t * devices, size_t * n, struct lrnn_error * err) {
    char name[128];
    *n = 0;
    for (int i = 0; list != NULL && option_word(list, ",", i, name, sizeof(name)); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_by_name(name);
        if (dev == NULL || *n == DEVICES_MAX) {
            return error_bad_input(err,
                    dev == NULL ? "there is no device '%s'; lrnn-inspect --devices lists them"
                                : "--device: '%s' exceeds the limit of 16 devices",
                    name);
        }
        devices[(*n)++] = dev;
    }
    for (size_t i = 0; list == NULL && i < ggml_backend_dev_count() && *n < DEVICES_MAX; ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            devices[(*n)++] = dev;
        }
    }
    if (*n == 0 && list == NULL &&
            (devices[0] = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) != NULL) {
        *n = 1;
    }
    if (*n == 0) {
        error_bad_input(
                err, list != NULL ? "--device is empty" : "ggml found no device on this machine");
    }
    return *n > 0;
}

// If the machine of a client vanishes, its connection stays open, and ggml would wait forever while
// other clients queue. So this thread looks for the socket on which ggml listens and turns on TCP
// keep-alive; accepted connections inherit it. Keep-alive waits while a reply is on its way, which
// TCP would send again and again for a quarter of an hour: hence the time-out.
static void * keep_alive(void * unused) {
    enum { FD_MAX = 1024, IDLE_S = 30, EACH_S = 10, TRIES = 3 }; // lost after 60 seconds
    enum { LOST_MS = 1000 * (IDLE_S + TRIES * EACH_S) };
    for (;;) {
        for (int fd = 0; fd < FD_MAX; ++fd) {
            int       listens = 0;
            socklen_t size = sizeof(listens);
            if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens) {
                setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int) { 1 }, sizeof(int));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int) { IDLE_S }, sizeof(int));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int) { EACH_S }, sizeof(int));
                setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int) { TRIES }, sizeof(int));
                setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &(int) { LOST_MS }, sizeof(int));
                return unused;
            }
        }
        nanosleep(&(struct timespec) { .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
}

static enum exit_code serve(void * user) {
    const struct args * args = user;
    ggml_backend_dev_t  devices[DEVICES_MAX];
    size_t              n_devices;
    struct sockaddr_in  addr;
    char                digits[INET_ADDRSTRLEN], endpoint[INET_ADDRSTRLEN + 8], no_gpu[512];
    struct lrnn_error   err;

    backends_start();
    ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    union {
        void * pointer;
        void (*server)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *);
    } start = { .pointer = rpc != NULL ? ggml_backend_reg_get_proc_address(
                                                 rpc, "ggml_backend_rpc_start_server")
                                       : NULL };
    if (start.pointer == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "ggml's RPC library cannot be loaded");
    }
    if (!find_devices(args->device, devices, &n_devices, &err)) {
        return program_fail(EXIT_CODE_USAGE, "%s", err.text);
    }
    if ((args->cache != NULL && !check_cache(args->cache, &err)) ||
            !find_address(args, &addr, &err)) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    if (ntohl(addr.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) {
        program_say("warning: anyone who reaches %s port %lld can use the memory of this machine "
                    "and read all computations: ggml's RPC has neither passwords nor encryption; "
                    "use a trusted network or a tunnel",
                args->host, (long long) args->port);
    }
    if (!check_address(args, &addr, &err)) {
        return program_fail(EXIT_CODE_SYSTEM, "%s", err.text);
    }
    if (args->device == NULL && backends_why_no_gpu(no_gpu, sizeof(no_gpu))) {
        program_say("%s; lending the CPU", no_gpu);
    }
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(endpoint, sizeof(endpoint), "%s:%lld",
            inet_ntop(AF_INET, &addr.sin_addr, digits, sizeof(digits)), (long long) args->port);

    signal(SIGPIPE, SIG_IGN);           // clients may disconnect
    dup2(STDERR_FILENO, STDOUT_FILENO); // ggml prints messages to stdout
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, keep_alive, NULL) != 0) {
        return program_fail(EXIT_CODE_SYSTEM, "cannot start a thread");
    }
    const int64_t n_threads = args->threads > 0 ? args->threads : n_cores > 0 ? n_cores : 1;
    start.server(endpoint, args->cache, (size_t) n_threads, n_devices, devices);
    return program_fail(EXIT_CODE_SYSTEM, "ggml stopped serving on %s", endpoint);
}

int main(int argc, char ** argv) {
    struct args args = { .host = "127.0.0.1", .port = 50052 };

    const struct option options[] = {
        opt_group("Where"),
        opt_string("--host", "ADDRESS", &args.host,
                "IPv4 address to listen on; anyone who reaches it can use the server"),
        opt_int("--port", "N", &args.port, 1, 65535, "TCP port"),

        opt_group("What"),
        opt_string("--device", "LIST", &args.device,
                "devices to lend, separated by commas; lrnn-inspect --devices lists them "
                "(default: all GPUs, or the CPU if there are none)"),
        opt_alias("--cache",
                opt_string("--weight-cache", "DIR", &args.cache,
                        "folder for weights of more than 10 MiB, so that they are sent only once "
                        "(default: none)")),
        opt_int("-t, --threads", "N", &args.threads, 0, 4096,
                "number of CPU threads (default: one per core)"),
    };
    const struct program program = {
        .name = "lrnn-rpc-server",
        .summary = "lends the devices of this machine to programs of lrnn on other machines, one "
                   "client at a time",
        .usage = "[--host ADDRESS] [--port N] [options]",
        .examples = "lrnn-rpc-server --weight-cache ~/.cache/lrnn-rpc\n"
                    "lrnn-cli -m model.gguf -p 'Once' --rpc 127.0.0.1:50052",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, serve, &args);
}
