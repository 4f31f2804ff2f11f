#include "http.h"

#include "httplib.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

struct http_server {
    httplib::Server    server;
    struct http_params params;
};

struct http_call {
    const httplib::Request & request;
    httplib::Response &      response;
};

struct http_stream {
    httplib::DataSink & sink;
};

struct http_server * http_server_new(const struct http_params * params) try {
    auto * s   = new http_server{ {}, *params };
    auto & svr = s->server;

    const auto handle = [s](const httplib::Request & request, httplib::Response & response) {
        struct http_call call = { request, response };
        if (request.path.find('\0') != std::string::npos) { // C would see another path
            response.status = 400;
            return;
        }
        s->params.handler(&call, s->params.user);
    };
    svr.Get(".*", handle);
    svr.Post(".*", handle);
    svr.Put(".*", handle);
    svr.Patch(".*", handle);
    svr.Delete(".*", handle);
    svr.Options(".*", handle);
    svr.set_error_handler([](const httplib::Request &, httplib::Response & response) {
        if (response.body.empty()) {
            char         body[512];
            const size_t size = http_error_body(response.status, body, sizeof(body));
            response.set_content(body, size, "application/json");
        }
        return httplib::Server::HandlerResponse::Handled;
    });
    svr.set_payload_max_length(params->max_body);
    svr.set_read_timeout(params->timeout_s);
    svr.set_write_timeout(params->timeout_s);
    svr.set_keep_alive_max_count(1 << 20);
    svr.set_tcp_nodelay(true);
    // the default, SO_REUSEPORT, would let two servers share a port
    svr.set_socket_options([](int sock) {
        const int on = 1;
        setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    const auto n_connections = static_cast<size_t>(params->n_connections);
    const auto n_waiting     = static_cast<size_t>(params->n_waiting);
    svr.new_task_queue       = [n_connections, n_waiting] {
        return new httplib::ThreadPool(8, n_connections, n_waiting);
    };
    return s;
} catch (...) {
    return nullptr;
}

void http_server_free(struct http_server * server) {
    delete server;
}

int http_server_bind(
        struct http_server * server, const char * host, int port, char * err, size_t err_size) try {
    errno        = 0;
    int  bound   = port;
    bool success = true;
    if (port == 0) {
        bound   = server->server.bind_to_any_port(host);
        success = bound > 0;
    } else {
        success = server->server.bind_to_port(host, port);
    }
    if (!success) {
        snprintf(err, err_size, "cannot listen on %s port %d: %s", host, port,
                errno != 0 ? strerror(errno) : "expected the name or address of this machine");
        return -1;
    }
    return bound;
} catch (...) {
    snprintf(err, err_size, "cannot listen on %s port %d", host, port);
    return -1;
}

bool http_server_run(struct http_server * server) try {
    return server->server.listen_after_bind();
} catch (...) {
    return false;
}

void http_server_stop(struct http_server * server) {
    server->server.stop();
}

const char * http_method(const struct http_call * call) {
    return call->request.method.c_str();
}

const char * http_path(const struct http_call * call) {
    return call->request.path.c_str();
}

struct slice http_body(const struct http_call * call) {
    return { call->request.body.data(), call->request.body.size() };
}

const char * http_header(const struct http_call * call, const char * name) {
    const auto found = call->request.headers.find(name);
    return found != call->request.headers.end() ? found->second.c_str() : nullptr;
}

bool http_is_gone(const struct http_call * call) {
    return call->request.is_connection_closed();
}

void http_reply_header(struct http_call * call, const char * name, const char * value) {
    call->response.set_header(name, value);
}

void http_reply(
        struct http_call * call, int status, const char * type, const char * data, size_t size) {
    call->response.status = status;
    call->response.set_content(data, size, type);
}

void http_reply_stream(struct http_call * call, const char * type,
        void (*produce)(struct http_stream *, void *), void (*release)(void *), void * user) {
    call->response.set_chunked_content_provider(
            type,
            [produce, user](size_t, httplib::DataSink & sink) {
                struct http_stream stream = { sink };
                produce(&stream, user);
                sink.done();
                return true;
            },
            [release, user](bool) { release(user); });
}

bool http_stream_write(struct http_stream * stream, const char * data, size_t size) {
    return stream->sink.write(data, size);
}

bool http_stream_is_gone(struct http_stream * stream) {
    return !stream->sink.is_writable();
}
