// Malformed messages to the RPC server. Models run on a server in this process, through a relay
// that records the conversations. Then the conversations are repeated with changed messages. The
// server must drop the client or answer; it must not end, and it must serve the next client with
// the same bytes as before.
//
//     fuzz-rpc-server CONVERSATIONS [SEED]

#include "base/random.h"
#include "kit/golden.h"
#include "lrnn.h"

#include "ggml-backend.h"
#include "ggml-rpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONVERSATIONS = 128,
    MAX_BUFFERS = 64,
    BUFFER_MAX = 1 << 24, // bytes of a buffer with a changed size
    SECONDS_MAX = 240,    // that one message may take
    CHANGE_ONE_IN = 40,   // messages
    ADD_ONE_IN = 80,
    CHECK_EVERY = 25, // conversations: one is repeated without changes
};

enum command {
    ALLOC_BUFFER,
    GET_ALIGNMENT,
    GET_MAX_SIZE,
    BUFFER_GET_BASE,
    FREE_BUFFER,
    BUFFER_CLEAR,
    SET_TENSOR,
    SET_TENSOR_HASH,
    GET_TENSOR,
    COPY_TENSOR,
    GRAPH_COMPUTE,
    GET_DEVICE_MEMORY,
    INIT_TENSOR,
    GET_ALLOC_SIZE,
    HELLO,
    DEVICE_COUNT,
    GRAPH_RECOMPUTE,
    MEMSET_TENSOR,
    COMMANDS,
};

#pragma pack(push, 1)
struct wire_tensor { // rpc_tensor of ggml-rpc.cpp
    uint64_t id;
    uint32_t type;
    uint64_t buffer;
    uint32_t ne[4], nb[4];
    uint32_t op;
    int32_t  params[16];
    int32_t  flags;
    uint64_t src[10];
    uint64_t view_src, view_offs, data;
    char     name[64];
    int32_t  use_count;
};
#pragma pack(pop)

struct bytes {
    uint8_t * data;
    size_t    n;
};

struct message {
    uint8_t      command;
    struct bytes body;
    struct bytes answer; // data == NULL: the command has none
};

struct conversation {
    struct message * messages;
    size_t           n;
};

static struct conversation conversations[MAX_CONVERSATIONS];
static int                 n_conversations;
static uint64_t            rng;
static uint16_t            server_port;

static struct {
    long messages, changed, refused, checked;
} counts;

static void require(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "fuzz-rpc-server: %s\n", what);
        abort();
    }
}

static size_t below(size_t n) {
    return n > 0 ? (size_t) (splitmix64(&rng) % n) : 0;
}

static void append(struct bytes * b, const void * data, size_t n) {
    b->data = realloc(b->data, b->n + n + 1);
    require(b->data != NULL, "out of memory");
    if (n > 0) {
        memcpy(b->data + b->n, data, n);
    }
    b->n += n;
}

// ---- sockets

static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in) {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) }
    };
}

// A socket that listens on a free port.
static int listen_somewhere(uint16_t * port) {
    const int          sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = loopback(0);
    socklen_t          size = sizeof(addr);
    require(sock >= 0 && bind(sock, (struct sockaddr *) &addr, size) == 0 && listen(sock, 8) == 0 &&
                    getsockname(sock, (struct sockaddr *) &addr, &size) == 0,
            "cannot listen on the loopback");
    *port = ntohs(addr.sin_port);
    return sock;
}

static int connect_to(uint16_t port) {
    const int            sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in   addr = loopback(port);
    const struct timeval limit = { .tv_sec = SECONDS_MAX };
    const int            on = 1;
    if (sock < 0 || connect(sock, (struct sockaddr *) &addr, sizeof(addr)) != 0) {
        close(sock);
        return -1;
    }
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return sock;
}

static bool send_all(int sock, const void * data, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t sent = send(sock, (const char *) data + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue; // SIGCONT interrupts a socket with a time-out
        }
        if (sent <= 0) {
            return false;
        }
        at += (size_t) sent;
    }
    return true;
}

static bool receive_all(int sock, void * data, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t got = recv(sock, (char *) data + at, n - at, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        at += (size_t) got;
    }
    return true;
}

// ---- the server

static void * serve(void * unused) {
    char               endpoint[32];
    ggml_backend_dev_t dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", server_port);
    ggml_backend_rpc_start_server(endpoint, NULL, 1, 1, &dev);
    require(false, "the server ended");
    return unused;
}

static void start_server(void) {
    pthread_t thread;
    close(listen_somewhere(&server_port)); // a port that is free now
    require(pthread_create(&thread, NULL, serve, NULL) == 0, "cannot start a thread");
    for (int i = 0; i < 1000; ++i) {
        const int sock = connect_to(server_port);
        if (sock >= 0) {
            close(sock);
            return;
        }
        nanosleep(&(struct timespec) { .tv_nsec = 10 * 1000 * 1000 }, NULL);
    }
    require(false, "the server does not listen");
}

// ---- recording

static bool has_answer(uint8_t command) {
    switch (command) {
        case FREE_BUFFER:
        case BUFFER_CLEAR:
        case SET_TENSOR:
        case GRAPH_COMPUTE:
        case INIT_TENSOR:
        case GRAPH_RECOMPUTE:
        case MEMSET_TENSOR: return false;
        default: return true;
    }
}

// Takes `size` and as many bytes from the start of a recording. False: it has fewer.
static bool take(struct bytes * from, struct bytes * part) {
    uint64_t size = 0;
    if (from->n < sizeof(size)) {
        return false;
    }
    memcpy(&size, from->data, sizeof(size));
    if (from->n - sizeof(size) < size) {
        return false;
    }
    append(part, from->data + sizeof(size), (size_t) size);
    from->data += sizeof(size) + size;
    from->n -= sizeof(size) + size;
    return true;
}

// A client that gives up, as under load, leaves a message without its answer at the end. That one
// is not part of the conversation.
static void add_conversation(struct bytes sent, struct bytes answered) {
    struct conversation c = { NULL, 0 };
    bool                work = false;
    while (sent.n > 0) {
        struct message m = { .command = sent.data[0] };
        ++sent.data;
        --sent.n;
        if (!take(&sent, &m.body) || (has_answer(m.command) && !take(&answered, &m.answer))) {
            free(m.body.data);
            break;
        }
        work = work || m.command == GRAPH_COMPUTE;
        c.messages = realloc(c.messages, (c.n + 1) * sizeof(*c.messages));
        require(c.messages != NULL, "out of memory");
        c.messages[c.n++] = m;
    }
    if (work && n_conversations < MAX_CONVERSATIONS) {
        conversations[n_conversations++] = c;
        return;
    }
    for (size_t i = 0; i < c.n; ++i) {
        free(c.messages[i].body.data);
        free(c.messages[i].answer.data);
    }
    free(c.messages);
}

// Connects one client after the other with the server and records what both say.
static void * relay(void * arg) {
    const int listener = *(const int *) arg;
    for (;;) {
        const int    client = accept(listener, NULL, NULL);
        const int    server = connect_to(server_port);
        struct bytes said[2] = { { NULL, 0 }, { NULL, 0 } };
        if (client < 0) {
            close(server);
            return NULL;
        }
        const int on = 1;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        const int     from[2] = { client, server };
        struct pollfd fds[2] = { { client, POLLIN, 0 }, { server, POLLIN, 0 } };
        for (bool open = true; open && poll(fds, 2, -1) > 0;) {
            for (int i = 0; open && i < 2; ++i) {
                static uint8_t part[1 << 16];
                if (fds[i].revents != 0) {
                    const ssize_t n = recv(from[i], part, sizeof(part), 0);
                    if (n < 0 && errno == EINTR) {
                        continue;
                    }
                    open = n > 0 && send_all(from[1 - i], part, (size_t) n);
                    append(&said[i], part, n > 0 ? (size_t) n : 0);
                }
            }
        }
        close(client);
        close(server);
        add_conversation(said[0], said[1]);
        free(said[0].data);
        free(said[1].data);
    }
}

static void run_model(const struct golden * g, const char * device) {
    struct lrnn_error              err = { LRNN_ERROR_NONE, "" };
    const struct lrnn_model_params where = { .n_gpu_layers = -1, .devices = device };
    struct lrnn_model *            model = lrnn_model_load(g->path, &where, &err);
    require(model != NULL, err.text);
    const struct lrnn_session_params params = {
        .n_threads = 1, .n_seqs = 2, .n_rewind = 1, .n_cache = 16
    };
    struct lrnn_session * session = lrnn_session_new(model, &params, &err);
    require(session != NULL, err.text);
    for (int call = 0; call < 3; ++call) {
        const struct lrnn_input in[2] = {
            { .seq = 0, .tokens = g->tokens, .n_tokens = call == 0 ? 3 : 1, .n_logits = 1 },
            { .seq = 1, .tokens = g->tokens, .n_tokens = call == 0 ? 2 : 1, .n_logits = 1 },
        };
        require(lrnn_eval(session, in, 2, &err), err.text);
    }
    lrnn_session_free(session);
    lrnn_model_free(model);
}

static void record(void) {
    struct golden_list golden;
    char               endpoint[32];
    struct lrnn_error  err = { LRNN_ERROR_NONE, "" };
    uint16_t           port;
    pthread_t          thread;
    int                listener = listen_somewhere(&port);
    require(golden_list_load(&golden, &err), err.text);
    require(pthread_create(&thread, NULL, relay, &listener) == 0, "cannot start a thread");
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", port);
    ggml_backend_reg_t reg = ggml_backend_rpc_add_server(endpoint);
    ggml_backend_register(reg);
    for (int i = 0; i < golden.n; ++i) {
        run_model(&golden.models[i], ggml_backend_dev_name(ggml_backend_reg_dev_get(reg, 0)));
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    golden_list_free(&golden);
}

// ---- repeating: the addresses of buffers differ each time

struct buffer {
    uint64_t old_ptr, new_ptr;
    uint64_t old_base, new_base;
    uint64_t size;
};

struct client {
    int           sock;
    struct buffer buffers[MAX_BUFFERS];
    int           n_buffers;
    bool          changed; // a message was changed, so that answers may differ
};

static struct buffer * find_buffer(struct client * c, uint64_t old_ptr) {
    for (int i = c->n_buffers - 1; i >= 0; --i) {
        if (c->buffers[i].old_ptr == old_ptr) {
            return &c->buffers[i];
        }
    }
    return NULL;
}

// The tensors of a message.
static struct wire_tensor * tensors_of(const struct message * m, size_t * n) {
    const size_t size = sizeof(struct wire_tensor);
    size_t       at = 0;
    *n = 0;
    switch (m->command) {
        case SET_TENSOR:
        case SET_TENSOR_HASH:
        case GET_TENSOR:
        case INIT_TENSOR:
        case MEMSET_TENSOR: *n = 1; break;
        case COPY_TENSOR: *n = 2; break;
        case GET_ALLOC_SIZE:
            *n = 11;
            at = 4;
            break;
        case GRAPH_COMPUTE: {
            uint32_t n_nodes = 0, n_tensors = 0;
            memcpy(&n_nodes, m->body.data + 4, 4);
            memcpy(&n_tensors, m->body.data + 8 + 8 * (size_t) n_nodes, 4);
            *n = n_tensors;
            at = 12 + 8 * (size_t) n_nodes;
        } break;
        default: break;
    }
    require(at + *n * size <= m->body.n || *n == 0, "a recorded message has another format");
    return (struct wire_tensor *) (void *) (m->body.data + at);
}

static void relocate(struct client * c, struct message * m) {
    size_t               n;
    struct wire_tensor * tensors = tensors_of(m, &n);
    for (size_t i = 0; i < n; ++i) {
        const struct buffer * b = find_buffer(c, tensors[i].buffer);
        if (b != NULL) {
            tensors[i].data += b->new_base - b->old_base;
            tensors[i].buffer = b->new_ptr;
        }
    }
    if (m->command == BUFFER_GET_BASE || m->command == FREE_BUFFER || m->command == BUFFER_CLEAR) {
        uint64_t ptr;
        memcpy(&ptr, m->body.data, sizeof(ptr));
        const struct buffer * b = find_buffer(c, ptr);
        if (b != NULL) {
            memcpy(m->body.data, &b->new_ptr, sizeof(b->new_ptr));
        }
    }
}

// Learns the addresses of the answer to a recorded message.
static void learn(struct client * c, const struct message * m, const struct bytes * answer) {
    if (m->command == ALLOC_BUFFER && answer->n == 16 && c->n_buffers < MAX_BUFFERS) {
        struct buffer b = { .old_ptr = 0 };
        memcpy(&b.old_ptr, m->answer.data, 8);
        memcpy(&b.new_ptr, answer->data, 8);
        memcpy(&b.size, answer->data + 8, 8);
        c->buffers[c->n_buffers++] = b;
    } else if (m->command == BUFFER_GET_BASE && answer->n == 8) {
        uint64_t ptr;
        memcpy(&ptr, m->body.data, sizeof(ptr));
        struct buffer * b = find_buffer(c, ptr);
        if (b != NULL) {
            memcpy(&b->old_base, m->answer.data, 8);
            memcpy(&b->new_base, answer->data, 8);
        }
    }
}

// ---- changes

static const uint64_t LIMITS[] = { 0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 127, 255, 256, 4096,
    65535, 65536, 1 << 20, 0x7fc00000, 0x7f800000, 0xbf800000, INT32_MAX, UINT64_C(1) << 31,
    UINT32_MAX - 3, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 61, INT64_MAX, UINT64_C(1) << 63,
    UINT64_MAX - 63, UINT64_MAX - 3, UINT64_MAX };

static uint64_t change_number(uint64_t old) {
    switch (below(8)) {
        case 0: return old + 1;
        case 1: return old - 1;
        case 2: return old + 4 * (below(33) - 16);
        case 3: return old * 2;
        case 4: return old / 2;
        case 5: return old ^ (UINT64_C(1) << below(64));
        default: return LIMITS[below(sizeof(LIMITS) / sizeof(LIMITS[0]))];
    }
}

// An address near a tensor or at the edge of a buffer.
static uint64_t some_address(
        const struct client * c, const struct wire_tensor * tensors, size_t n_tensors) {
    const int64_t near = 4 * ((int64_t) below(65) - 32);
    if (n_tensors > 0 && below(2) == 0) {
        return tensors[below(n_tensors)].data + (uint64_t) near;
    }
    if (c->n_buffers == 0) {
        return splitmix64(&rng);
    }
    const struct buffer * b = &c->buffers[below((size_t) c->n_buffers)];
    return b->new_base + (below(2) == 0 ? b->size : 0) + (uint64_t) near;
}

static void change_tensor(
        const struct client * c, struct wire_tensor * t, struct wire_tensor * all, size_t n) {
    const struct wire_tensor * other = &all[below(n)];
    const size_t               i = below(4);
    switch (below(16)) {
        case 0: t->type = (uint32_t) (below(4) == 0 ? change_number(t->type) : below(45)); break;
        case 1: t->buffer = below(2) == 0 ? other->buffer : change_number(t->buffer); break;
        case 2: t->ne[i] = (uint32_t) change_number(t->ne[i]); break;
        case 3: t->nb[i] = (uint32_t) change_number(t->nb[i]); break;
        case 4:
            for (size_t k = 0; k < 4; ++k) {
                t->ne[k] = other->ne[k];
                t->nb[k] = other->nb[k];
            }
            break;
        case 5: t->op = (uint32_t) (below(4) == 0 ? change_number(t->op) : below(110)); break;
        case 6: {
            const size_t k = below(16);
            t->params[k] = (int32_t) change_number((uint64_t) t->params[k]);
        } break;
        case 7: memcpy(t->params, other->params, sizeof(t->params)); break;
        case 8: t->src[below(10)] = below(3) == 0 ? 0 : other->id; break;
        case 9: t->src[below(10)] = change_number(t->src[below(10)]); break;
        case 10: t->view_src = below(2) == 0 ? other->id : change_number(t->view_src); break;
        case 11: t->view_offs = change_number(t->view_offs); break;
        case 12: t->data = some_address(c, all, n); break;
        case 13: t->data = change_number(t->data); break;
        case 14: t->flags = (int32_t) change_number((uint64_t) t->flags); break;
        default:
            t->use_count = (int32_t) change_number((uint64_t) t->use_count);
            memset(t->name, 'x', sizeof(t->name));
            break;
    }
}

static void change_bytes(struct bytes * b) {
    const size_t size = below(2) == 0 ? 4 : 8;
    if (b->n >= size) {
        const size_t at = below(2) == 0 ? below(b->n / 4) * 4 : below(b->n);
        uint64_t     value = 0;
        const size_t room = b->n - at < size ? b->n - at : size;
        memcpy(&value, b->data + at, room);
        value = change_number(value);
        memcpy(b->data + at, &value, room);
    }
}

static void change_message(const struct client * c, struct message * m) {
    size_t               n;
    struct wire_tensor * tensors = tensors_of(m, &n);
    const size_t         times = 1 + below(3);
    for (size_t k = 0; k < times; ++k) {
        // beside the tensors: devices, ids of nodes, offsets, sizes, and the data of a tensor
        if (n > 0 && below(5) > 0) {
            change_tensor(c, &tensors[below(n)], tensors, n);
        } else {
            const size_t head = n > 0 ? (size_t) ((uint8_t *) tensors - m->body.data) : m->body.n;
            const size_t tail = head + n * sizeof(*tensors);
            const bool   last = n > 0 && (head == 0 || below(2) == 0);
            struct bytes part = { m->body.data + (last ? tail : 0),
                last ? m->body.n - tail : head };
            change_bytes(&part);
        }
    }
    // a server lends memory: a large buffer is valid, but the machine may have other work
    uint64_t size = 0;
    if (m->command == ALLOC_BUFFER && m->body.n == 12) {
        memcpy(&size, m->body.data + 4, sizeof(size));
        if (size > BUFFER_MAX && size <= UINT64_C(1) << 40) {
            size += UINT64_C(1) << 62;
            memcpy(m->body.data + 4, &size, sizeof(size));
        }
    }
}

// A request that clients rarely make, with tensors of another message.
static void make_request(const struct client * c, const struct message * from, struct message * m) {
    static const uint8_t       COMMANDS_OF_TENSORS[] = { SET_TENSOR, SET_TENSOR_HASH, GET_TENSOR,
              COPY_TENSOR, INIT_TENSOR, GET_ALLOC_SIZE, MEMSET_TENSOR };
    size_t                     n;
    const struct wire_tensor * tensors = tensors_of(from, &n);
    if (n == 0) {
        m->command = (uint8_t) below(COMMANDS + 1);
        append(&m->body, from->body.data, from->body.n);
        return;
    }
    m->command = COMMANDS_OF_TENSORS[below(sizeof(COMMANDS_OF_TENSORS))];
    const uint32_t device = 0;
    const size_t   count = m->command == GET_ALLOC_SIZE ? 11 : m->command == COPY_TENSOR ? 2 : 1;
    if (m->command == GET_ALLOC_SIZE) {
        append(&m->body, &device, sizeof(device));
    }
    for (size_t i = 0; i < count; ++i) {
        append(&m->body, &tensors[below(n)], sizeof(*tensors));
    }
    uint64_t range[2] = { below(2) == 0 ? 0 : change_number(16), below(2) == 0 ? 4 : 64 };
    switch (m->command) {
        case SET_TENSOR: append(&m->body, range, 9 + below(8)); break;
        case SET_TENSOR_HASH:
        case GET_TENSOR: append(&m->body, range, 16); break;
        case MEMSET_TENSOR:
            append(&m->body, range, 16);
            append(&m->body, range, 1);
            break;
        default: break;
    }
    if (below(2) == 0) {
        change_message(c, m);
    }
}

// ---- a client

// Sends a message and receives the answer. Returns false if the server closed the connection.
static bool exchange(struct client * c, const struct message * m, struct bytes * answer) {
    const uint64_t size = m->body.n;
    uint64_t       n_answer = 0;
    ++counts.messages;
    if (!send_all(c->sock, &m->command, 1) || !send_all(c->sock, &size, sizeof(size)) ||
            !send_all(c->sock, m->body.data, m->body.n)) {
        return false;
    }
    if (!has_answer(m->command)) {
        return true;
    }
    if (!receive_all(c->sock, &n_answer, sizeof(n_answer))) {
        return false;
    }
    require(n_answer < (UINT64_C(1) << 30), "an answer is too long");
    answer->data = malloc((size_t) n_answer + 1);
    require(answer->data != NULL, "out of memory");
    answer->n = (size_t) n_answer;
    return receive_all(c->sock, answer->data, answer->n);
}

static struct message copy_of(const struct message * m) {
    struct message copy = { .command = m->command };
    append(&copy.body, m->body.data, m->body.n);
    return copy;
}

// A message whose size is wrong is the last one: the server waits for more, or reads the rest as
// another message.
static void send_torn(struct client * c, const struct message * m) {
    const uint64_t size = below(2) == 0 ? m->body.n : change_number(m->body.n);
    const uint8_t  command = below(4) == 0 ? (uint8_t) below(256) : m->command;
    ++counts.messages;
    if (send_all(c->sock, &command, 1) && send_all(c->sock, &size, sizeof(size))) {
        send_all(c->sock, m->body.data, below(m->body.n + 1));
    }
}

// Repeats a conversation, with changes or exactly.
static void repeat(const struct conversation * conversation, bool exactly) {
    struct client c = { .sock = connect_to(server_port) };
    bool          open = true;
    require(c.sock >= 0, "the server no longer listens");
    for (size_t i = 0; open && i < conversation->n; ++i) {
        const struct message * recorded = &conversation->messages[i];
        struct message         m = copy_of(recorded);
        struct bytes           answer = { NULL, 0 };
        relocate(&c, &m);

        const bool may_change = !exactly && m.command != HELLO;
        if (may_change && below(ADD_ONE_IN) == 0) {
            struct message more = { .command = 0 };
            struct bytes   ignore = { NULL, 0 };
            make_request(&c, &m, &more);
            c.changed = true;
            ++counts.changed;
            open = exchange(&c, &more, &ignore);
            free(more.body.data);
            free(ignore.data);
        }
        if (open && may_change && below(CHANGE_ONE_IN * 20) == 0) {
            send_torn(&c, &m);
            ++counts.changed;
            c.changed = true;
            open = false;
        }
        const bool rare = m.command == GRAPH_COMPUTE || m.command == GET_TENSOR;
        if (open && may_change && below(rare ? 3 : CHANGE_ONE_IN) == 0) {
            change_message(&c, &m);
            c.changed = true;
            ++counts.changed;
        }
        open = open && exchange(&c, &m, &answer);
        if (open) {
            learn(&c, recorded, &answer);
        }
        require(c.changed || open, "a valid client was dropped");
        require(c.changed || m.command != GET_TENSOR ||
                        (answer.n == recorded->answer.n &&
                                memcmp(answer.data, recorded->answer.data, answer.n) == 0),
                "a valid client received other bytes");
        free(m.body.data);
        free(answer.data);
    }
    counts.refused += !open;
    counts.checked += exactly;
    close(c.sock);
}

static void no_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

// Leaks of ggml-rpc: it keeps its servers and buffer types as long as the process lives, and does
// not free the events of a scheduler.
const char * __lsan_default_suppressions(void);
const char * __lsan_default_suppressions(void) {
    return "leak:^ggml_backend_rpc_add_server$\n"
           "leak:^ggml_backend_rpc_buffer_type$\n"
           "leak:^ggml_backend_rpc_device_event_new$\n"
           "leak:^ggml_backend_rpc_start_server$\n";
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s CONVERSATIONS [SEED]\n", argv[0]);
        return 2;
    }
    const long n = atol(argv[1]);
    rng = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    signal(SIGPIPE, SIG_IGN);
    require(freopen("/dev/null", "w", stdout) != NULL, "cannot open /dev/null"); // ggml's messages
    ggml_log_set(no_log, NULL);
    start_server();
    record();
    require(n_conversations > 0, "nothing was recorded");
    for (int i = 0; i < n_conversations; ++i) {
        repeat(&conversations[i], true);
    }
    for (long i = 0; i < n; ++i) {
        repeat(&conversations[below((size_t) n_conversations)], i % CHECK_EVERY == 0);
    }
    repeat(&conversations[0], true);
    fprintf(stderr,
            "%d recorded conversations, %ld messages, %ld changed, %ld connections dropped, "
            "%ld conversations repeated exactly\n",
            n_conversations, counts.messages, counts.changed, counts.refused, counts.checked);
    for (int i = 0; i < n_conversations; ++i) {
        for (size_t k = 0; k < conversations[i].n; ++k) {
            free(conversations[i].messages[k].body.data);
            free(conversations[i].messages[k].answer.data);
        }
        free(conversations[i].messages);
    }
    return 0;
}
