// lrnn-server: a model behind OpenAI's HTTP API.

#include "lrnn.h"
#include "device-options.h"
#include "interrupt.h"
#include "program.h"
#include "reply.h"
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct args {
    const char *          model;
    const char *          alias;
    const char *          chat_format;
    struct access         access;
    int64_t               port;
    int64_t               parallel;
    int64_t               queue;
    int64_t               batch;
    int64_t               cache;
    int64_t               max_tokens;
    struct draft_options  draft;
    int64_t               max_body;
    int64_t               connections;
    int64_t               timeout;
    int64_t               state_memory;
    int64_t               state_every;
    const char *          state_dir;
    struct device_options device;
};

static const char * base_of(const char * path) {
    const char * slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

// The name of the file without folder and extension.
static char * name_of(const char * path) {
    const char * base = base_of(path);
    const char * dot = strrchr(base, '.');
    const size_t size = dot != NULL && dot > base ? (size_t) (dot - base) : strlen(base);
    char *       name = program_alloc(size + 1, 1);
    memcpy(name, base, size);
    return name;
}

static bool check_state_dir(const char * path) {
    struct stat st;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        program_say("--state-dir %s: cannot create the folder: %s", path, strerror(errno));
    } else if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        program_say("--state-dir %s is not a folder", path);
    } else if (access(path, R_OK | W_OK | X_OK) != 0) {
        program_say("--state-dir %s: the folder is not writable: %s", path, strerror(errno));
    } else {
        return true;
    }
    return false;
}

static bool is_loopback(const char * host) {
    struct in_addr addr;
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (inet_pton(AF_INET, host, &addr) == 1 && ntohl(addr.s_addr) >> 24 == 127);
}

static void * serve_http(void * user) {
    http_server_run(user);
    return NULL;
}

// Serves until a signal arrives, then finishes what has begun.
static enum exit_code serve(const struct args * args, struct server * s) {
    const struct http_params params = {
        .n_connections = (int32_t) args->connections,
        .n_waiting = (int32_t) args->connections,
        .timeout_s = (int32_t) args->timeout,
        .max_body = (size_t) args->max_body << 20,
        .check = server_check,
        .handler = server_handle,
        .user = s,
    };
    pthread_t            thread;
    struct lrnn_error    err;
    struct http_server * http = http_server_new(&params);
    if (http == NULL) {
        return program_fail(EXIT_CODE_SYSTEM, "out of memory for the HTTP server");
    }
    const int port = http_server_bind(http, args->access.host, (int) args->port, &err);
    if (port < 0) {
        http_server_free(http);
        return program_error(&err);
    }
    if (!is_loopback(args->access.host)) {
        program_say("warning: anyone who reaches %s port %d can use the server%s; HTTP is not "
                    "encrypted",
                args->access.host, port,
                args->access.api_key != NULL ? " if they know or overhear the API key" : "");
    }
    signal(SIGPIPE, SIG_IGN); // clients may disconnect
    signal(SIGXFSZ, SIG_IGN); // a state may be larger than a file may be
    interrupt_listen();
    if (pthread_create(&thread, NULL, serve_http, http) != 0) {
        http_server_free(http);
        return program_fail(EXIT_CODE_SYSTEM, "cannot start a thread");
    }
    program_say("listening on http://%s:%d", args->access.host, port);
    while (!interrupt_seen()) {
        nanosleep(&(struct timespec) { .tv_nsec = 50 * 1000 * 1000 }, NULL);
    }
    program_say("stopping; running requests are finished first");
    http_server_stop(http);
    pthread_join(thread, NULL);
    http_server_free(http);
    return EXIT_CODE_OK;
}

static enum exit_code run(void * user) {
    struct args *     args = user;
    struct lrnn_error err;
    if (!device_options_check(&args->device, &err) || !draft_options_check(&args->draft, &err) ||
            !access_init(&args->access, &err)) {
        return program_error(&err);
    }
    if (args->state_dir != NULL && !check_state_dir(args->state_dir)) {
        return EXIT_CODE_SYSTEM;
    }
    struct lrnn_model * model = device_options_load(&args->device, args->model, false, &err);
    if (model == NULL) {
        return program_error(&err);
    }
    char *        name = name_of(args->model);
    struct server server = {
        .model = model,
        .info = lrnn_model_get_info(model),
        .model_name = args->alias != NULL ? args->alias : name,
        .file_name = base_of(args->model),
        .access = args->access,
        .state_dir = args->state_dir,
        .max_tokens = args->max_tokens,
        .start_s = (int64_t) time(NULL),
        .params = { .model = model,
                .session = args->device.session,
                .n_seqs = (int32_t) args->parallel,
                .n_batch = (int32_t) args->batch,
                .draft = args->draft,
                .n_cache = (int32_t) args->cache,
                .n_queue = args->queue,
                .state_memory = (size_t) args->state_memory << 20,
                .state_every = args->state_every },
    };
    enum exit_code code = EXIT_CODE_SYSTEM;
    server.chat = lrnn_chat_new(model, args->chat_format, &server.chat_err);
    error_hide_folder(&server.chat_err, args->model);
    if (server.chat == NULL && args->chat_format != NULL) {
        program_say("--chat-format: %s", server.chat_err.text);
        lrnn_model_free(model);
        free(name);
        return EXIT_CODE_USAGE;
    }
    server.grammars = lrnn_grammars_new(model, &server.grammars_err);
    server.scheduler = scheduler_new(&server.params, &err);
    if (server.scheduler == NULL) {
        program_say("%s", err.text);
    } else {
        code = serve(args, &server);
        scheduler_free(server.scheduler);
    }
    lrnn_grammars_free(server.grammars);
    lrnn_chat_free(server.chat);
    lrnn_model_free(model);
    free(name);
    return code;
}

int main(int argc, char ** argv) {
    struct args args = {
        .access = { .host = "127.0.0.1" },
        .port = 8080,
        .parallel = 16,
        .queue = 256,
        .batch = 128,
        .cache = 4096,
        .max_tokens = 32768,
        .max_body = 16,
        .connections = 256,
        .timeout = 30,
        .state_memory = 256,
        .state_every = 1024,
        .device = DEVICE_OPTIONS_DEFAULTS,
    };
    char                chat_formats[CHAT_FORMAT_HELP];
    const struct option options[] = {
        opt_group("Model"),
        opt_required(opt_string("-m, --model", "M.gguf", &args.model, "model file")),
        opt_string("-a, --alias", "NAME", &args.alias,
                "name of the model in replies (default: the name of the file)"),
        opt_chat_format(&args.chat_format, chat_formats),

        opt_group("Access"),
        opt_string("--host", "ADDRESS", &args.access.host,
                "address to listen on; anyone who reaches it can use the server"),
        opt_int("--port", "N", &args.port, 0, 65535, "TCP port; 0: any free one"),
        opt_string("--api-key", "KEY", &args.access.api_key,
                "require the header \"Authorization: Bearer KEY\" (default: none)"),
        opt_string("--api-key-file", "FILE", &args.access.api_key_file,
                "the key is the first line of a file (default: the environment variable "
                "LRNN_API_KEY)"),
        opt_strings("--allow-host", "NAME", &args.access.names,
                "accept this name in the Host header, besides localhost, IP addresses and --host "
                "(repeatable)"),
        opt_strings("--cors", "ORIGIN", &args.access.origins,
                "let web pages of this origin use the server, such as https://app.example; *: of "
                "any (repeatable; default: none)"),
        opt_int("--connections", "N", &args.connections, 1, 4096,
                "maximum open connections; when exceeded, the longest idle one is closed; if none "
                "is idle, the new one waits"),
        opt_int("--timeout", "S", &args.timeout, 1, 3600,
                "idle timeout in seconds: to receive a request, to begin the next one, and per MiB "
                "of a reply sent"),
        opt_int("--max-body", "MIB", &args.max_body, 1, 1024, "largest accepted request body"),

        opt_group("Scheduling"),
        opt_int("-np, --parallel", "N", &args.parallel, 1, 1024,
                "choices that are generated at the same time; each needs the memory of a sequence"),
        opt_int("--queue", "N", &args.queue, 0, 1 << 20,
                "choices that may wait for a sequence; further requests are answered with 429"),
        opt_int("-b, --batch-size", "N", &args.batch, 1, 1 << 16,
                "prompt tokens per call; a running generation waits for at most one call per "
                "token"),
        opt_alias("--cache", opt_int("-c, --ctx", "N", &args.cache, 1, INT32_MAX,
                                     "size of the attention cache, in tokens per sequence")),
        DRAFT_OPTIONS(args.draft),
        opt_int("--max-tokens", "N", &args.max_tokens, 1, 1 << 24,
                "upper limit of max_tokens in a request"),

        opt_group("States"),
        opt_int("--state-memory", "MIB", &args.state_memory, 0, 1 << 20,
                "memory for states of earlier requests; 0: store none"),
        opt_int("--state-every", "N", &args.state_every, 0, 1 << 30,
                "store the state of a prompt every N tokens; 0: only at its end"),
        opt_string("--state-dir", "DIR", &args.state_dir,
                "folder of named states (default: none, /states is disabled)"),

        opt_group("Computation"),
        DEVICE_THREADS(args.device),
        DEVICE_OPTIONS(args.device),
    };
    const struct program program = {
        .name = "lrnn-server",
        .summary = "serves a model with OpenAI's HTTP API and a web page",
        .usage = "-m M.gguf [--host ADDRESS] [--port N] [options]",
        .examples = "lrnn-server -m model.gguf --port 8080\n"
                    "lrnn-server -m model.gguf --state-dir states --api-key secret",
        OPTIONS(options),
    };
    return program_main(&program, argc, argv, run, &args);
}
