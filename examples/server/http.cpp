#include "base/error.h"
#include "http.h"

#include "httplib.h"

#include <poll.h>
#include <sys/resource.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

using steady = std::chrono::steady_clock;

// A connection while a thread serves it.
struct connection {
    int                sock;
    steady::time_point since;      // when it began to wait
    bool               is_waiting; // for a request, or for the rest of one
    bool               is_closing; // to make room
    bool               is_last;    // the reply announced the end of the connection
    steady::time_point probed;     // when something was last sent to see if the client is there
};

// All connections. Threads are limited, and a connection occupies one from its beginning. So that
// idle connections cannot keep others out, a connection beyond the limit evicts the longest idle.
class connection_list {
  public:
    explicit connection_list(size_t limit) : limit_(limit) {}

    // Called before a thread serves a connection. Waits while others make room: while they close,
    // and while threads go from one connection to the next.
    void arrive() {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto                   end = steady::now() + std::chrono::seconds(5);
        n_open_++;
        while (n_open_ > limit_ && !close_oldest() && (n_closing_ > 0 || list_.size() < limit_)) {
            if (left_.wait_until(lock, end) == std::cv_status::timeout) {
                return; // the system has too few threads
            }
        }
    }

    void leave() {
        const std::lock_guard<std::mutex> lock(mutex_);
        n_open_--;
        left_.notify_all();
    }

    bool is_full() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return n_open_ > limit_;
    }

    std::list<connection>::iterator add(int sock) {
        const std::lock_guard<std::mutex> lock(mutex_);
        left_.notify_all(); // it can be closed now
        return list_.insert(list_.end(), { sock, steady::now(), true, false, false, {} });
    }

    void remove(std::list<connection>::iterator at) {
        const std::lock_guard<std::mutex> lock(mutex_);
        n_closing_ -= at->is_closing ? 1 : 0;
        list_.erase(at);
        left_.notify_all();
    }

    void set_waiting(connection & c, bool is_waiting) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (c.is_closing && !is_waiting) { // its request was complete just before
            c.is_closing = false;
            n_closing_--;
            left_.notify_all();
        }
        c.is_waiting = is_waiting;
        c.since = steady::now();
    }

  private:
    // Closes the longest idle connection. False: none is idle.
    bool close_oldest() {
        connection * oldest = nullptr;
        for (auto & c : list_) {
            if (c.is_waiting && !c.is_closing && (oldest == nullptr || c.since < oldest->since)) {
                oldest = &c;
            }
        }
        if (oldest != nullptr) {
            oldest->is_closing = true;
            n_closing_++;
            shutdown(oldest->sock, SHUT_RDWR); // its thread reads the end of the data
        }
        return oldest != nullptr;
    }

    const size_t            limit_;
    std::mutex              mutex_;
    std::condition_variable left_;
    std::list<connection>   list_;
    size_t                  n_open_ = 0; // with those that wait for a thread
    size_t                  n_closing_ = 0;
};

// A thread for every connection up to the limit; further ones wait for a thread. (The pool of the
// library starts no thread while it believes that one is idle, which is too late after a burst.)
class connection_queue final : public httplib::TaskQueue {
  public:
    connection_queue(connection_list & list, size_t n_threads, size_t n_waiting)
        : list_(list), max_threads_(n_threads), max_waiting_(n_waiting) {}

    bool enqueue(std::function<void()> serve) override {
        list_.arrive();
        std::unique_lock<std::mutex> lock(mutex_);
        const bool is_short = waiting_.size() >= n_idle_ && n_threads_ < max_threads_;
        if ((is_short && start_thread()) || waiting_.size() < n_idle_ + max_waiting_) {
            if (n_threads_ > 0) {
                waiting_.push_back(std::move(serve));
                cond_.notify_one();
                return true;
            }
        }
        lock.unlock();
        list_.leave();
        return false;
    }

    void shutdown() override {
        std::unique_lock<std::mutex> lock(mutex_);
        is_stopping_ = true;
        cond_.notify_all();
        gone_.wait(lock, [this] { return n_threads_ == 0; });
    }

  private:
    // The caller holds the lock.
    bool start_thread() {
        try {
            std::thread([this] { work(); }).detach();
        } catch (const std::system_error &) {
            return false;
        }
        n_threads_++;
        return true;
    }

    void work() {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto is_needed = [this] { return !waiting_.empty() || is_stopping_; };
        for (;;) {
            n_idle_++;
            cond_.wait_for(lock, std::chrono::seconds(5), is_needed);
            n_idle_--;
            if (waiting_.empty()) {
                break;
            }
            const std::function<void()> serve = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            serve();
            list_.leave();
            lock.lock();
        }
        n_threads_--;
        gone_.notify_all(); // with the lock: without it, the queue may be deleted already
    }

    connection_list &                list_;
    const size_t                     max_threads_;
    const size_t                     max_waiting_;
    std::mutex                       mutex_;
    std::condition_variable          cond_; // there is work
    std::condition_variable          gone_; // a thread has ended
    std::list<std::function<void()>> waiting_;
    size_t                           n_threads_ = 0;
    size_t                           n_idle_ = 0;
    bool                             is_stopping_ = false;
};

enum class peer { open, half_closed, gone };

// A client that has closed its end may still be reading; only sending to it tells. Unread bytes
// from before the end do not matter.
static peer peer_of(int sock) {
#ifndef POLLRDHUP
#    define POLLRDHUP 0
#endif
    struct pollfd fd = { sock, POLLRDHUP, 0 };
    if (poll(&fd, 1, 0) < 0) {
        return peer::open;
    }
    if ((fd.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
        return peer::gone;
    }
    char byte;
    return (fd.revents & POLLRDHUP) != 0 || recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0
                   ? peer::half_closed
                   : peer::open;
}

// A socket with a deadline for each request and for each piece of a reply. Sending or reading a
// byte now and then does not extend it.
class deadline_stream final : public httplib::Stream {
  public:
    deadline_stream(int sock, int timeout_s) : sock_(sock), timeout_(timeout_s) {}

    // The next request must be complete in time.
    void begin_request() {
        deadline_ = steady::now() + timeout_;
    }

    bool is_readable() const override {
        return at_ < n_;
    }

    bool wait_readable() const override {
        return wait(POLLIN, deadline_);
    }

    bool wait_writable() const override {
        return wait(POLLOUT, steady::now() + timeout_);
    }

    // False if nothing arrives for so long.
    bool wait_readable_for(std::chrono::milliseconds time) const {
        return at_ < n_ || wait(POLLIN, steady::now() + time);
    }

    bool is_peer_alive() const override {
        return peer_of(sock_) != peer::gone;
    }

    // Reads the head of the next request, up to its empty line, into the buffer. Returns 0, the
    // status of an error, or -1 if the client sent nothing.
    //
    // The library skips lines that do not end with CRLF, and a proxy may not: they would disagree
    // on where a request ends. So a head is refused if a line ends with anything else, is continued
    // on the next one, or has a zero byte. So is a first line whose words are not separated by one
    // space each.
    int read_head() {
        memmove(buffer_.data(), buffer_.data() + at_, n_ - at_);
        n_ -= at_;
        at_ = 0;
        size_t line = 0; // where the current line begins
        for (size_t i = 0;; ++i) {
            if (i == n_) {
                if (n_ == buffer_.size()) {
                    return 431;
                }
                if (!wait_readable()) {
                    return n_ > 0 ? 408 : -1;
                }
                const ssize_t n = recv(sock_, buffer_.data() + n_, buffer_.size() - n_, 0);
                if (n <= 0) {
                    return n_ > 0 ? 400 : -1;
                }
                n_ += static_cast<size_t>(n);
            }
            const char c = buffer_[i];
            const bool follows_cr = i > line && buffer_[i - 1] == '\r';
            const bool is_gap =
                    line == 0 && (c == ' ' || c == '\r') && (i == 0 || buffer_[i - 1] == ' ');
            if (follows_cr != (c == '\n') || c == '\0' || is_gap || (line == 0 && c == '\t') ||
                    (i == line && i > 0 && (c == ' ' || c == '\t'))) {
                return 400;
            }
            if (c == '\n' && i == line + 1) {
                return 0;
            }
            line = c == '\n' ? i + 1 : line;
        }
    }

    ssize_t read(char * to, size_t size) override {
        if (at_ == n_) {
            if (!wait_readable()) {
                error_ = httplib::Error::Timeout;
                return -1;
            }
            const ssize_t n = recv(sock_, buffer_.data(), buffer_.size(), 0);
            if (n <= 0) {
                error_ = n == 0 ? httplib::Error::ConnectionClosed : httplib::Error::Read;
                return n;
            }
            at_ = 0;
            n_ = static_cast<size_t>(n);
        }
        const size_t n = std::min(size, n_ - at_);
        memcpy(to, buffer_.data() + at_, n);
        at_ += n;
        return static_cast<ssize_t>(n);
    }

    ssize_t write(const char * from, size_t size) override {
        const size_t piece = std::min(size, size_t(1) << 20);
        const auto   end = steady::now() + timeout_;
        for (size_t sent = 0; sent < piece;) {
            const ssize_t n = send(sock_, from + sent, piece - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0) {
                sent += static_cast<size_t>(n);
            } else if ((errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ||
                       !wait(POLLOUT, end)) {
                return -1;
            }
        }
        return static_cast<ssize_t>(piece);
    }

    const char * buffered_data(size_t & size) const override {
        size = n_ - at_;
        return size > 0 ? buffer_.data() + at_ : nullptr;
    }

    void consume_buffered(size_t size) override {
        at_ += size;
    }

    socket_t socket() const override {
        return sock_;
    }

    // The addresses of the two ends and the duration are of no use here.
    void get_remote_ip_and_port(std::string &, int &) const override {}

    void get_local_ip_and_port(std::string &, int &) const override {}

    time_t duration() const override {
        return 0;
    }

  private:
    bool wait(short events, steady::time_point end) const {
        struct pollfd fd = { sock_, events, 0 };
        for (;;) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady::now());
            const int  ms = static_cast<int>(std::max<long long>(0, left.count()));
            const int  n = poll(&fd, 1, ms);
            if (n >= 0 || errno != EINTR) {
                return n > 0;
            }
        }
    }

    const int                  sock_;
    const std::chrono::seconds timeout_;
    steady::time_point         deadline_;
    std::array<char, 65536>    buffer_; // holds the head of a request
    size_t                     at_ = 0; // the next byte
    size_t                     n_ = 0;
};

// The connection that this thread serves.
static thread_local connection * current;

class deadline_server final : public httplib::Server {
  public:
    explicit deadline_server(const struct http_params & params)
        : connections(static_cast<size_t>(params.n_connections)), timeout_s_(params.timeout_s) {}

    connection_list   connections;
    std::atomic<bool> is_stopping{ false };

  private:
    // Waits for a request. False: close the connection. After the first request, it makes room for
    // others.
    bool wait_for_request(const deadline_stream & stream, bool is_first) {
        const auto end = steady::now() + std::chrono::seconds(timeout_s_);
        while (!stream.wait_readable_for(std::chrono::milliseconds(10))) {
            if (is_stopping || steady::now() > end || (!is_first && connections.is_full())) {
                return false;
            }
        }
        return true;
    }

    bool process_and_close_socket(socket_t sock) override {
        const auto at = connections.add(sock);
        const bool ok = serve_guarded([&] {
            deadline_stream stream(sock, timeout_s_);
            bool            is_open = true;
            current = &*at;
            for (bool is_first = true; is_open; is_first = false) {
                connections.set_waiting(*at, true);
                if (!wait_for_request(stream, is_first)) {
                    return true;
                }
                bool is_last = false, upgraded = false;
                stream.begin_request();
                const int error = stream.read_head();
                if (error != 0) {
                    refuse(stream, error);
                    return true;
                }
                // After an error, what follows may be the rest of the request.
                is_open = process_request(
                                  stream, "", 0, "", 0, is_stopping, is_last, nullptr, &upgraded) &&
                          !is_last && !is_stopping && !at->is_last;
            }
            return true;
        });
        connections.remove(at);
        close_gently(sock);
        return ok;
    }

    // Replies to a request that the library has not seen.
    static void refuse(deadline_stream & stream, int status) {
        char         body[512];
        const size_t size = status > 0 ? http_error_body(status, body, sizeof(body)) : 0;
        if (size > 0) {
            const std::string head = "HTTP/1.1 " + std::to_string(status) + " " +
                                     httplib::status_message(status) +
                                     "\r\nContent-Type: application/json\r\nContent-Length: " +
                                     std::to_string(size) + "\r\nConnection: close\r\n\r\n";
            stream.write(head.data(), head.size());
            stream.write(body, size);
        }
    }

    // A close with unread data would destroy a reply that is on its way.
    static void close_gently(int sock) {
        std::array<char, 16384> unread;
        const auto              end = steady::now() + std::chrono::milliseconds(100);
        struct pollfd           fd = { sock, POLLIN, 0 };
        size_t                  size = 0;
        shutdown(sock, SHUT_WR);
        while (size < size_t(1) << 20 && steady::now() < end && poll(&fd, 1, 100) > 0) {
            const ssize_t n = recv(sock, unread.data(), unread.size(), MSG_DONTWAIT);
            if (n <= 0) {
                break;
            }
            size += static_cast<size_t>(n);
        }
        close(sock);
    }

    const int timeout_s_;
};

struct http_server {
    explicit http_server(const struct http_params & p) : server(p), params(p) {}

    deadline_server    server;
    struct http_params params;
};

struct http_call {
    const httplib::Request & request;
    httplib::Response &      response;
    std::string              body;
};

struct http_stream {
    httplib::DataSink & sink;
};

static bool is_decimal(const std::string & text) {
    return !text.empty() && text.size() < 19 &&
           text.find_first_not_of("0123456789") == std::string::npos;
}

// True if the headers leave no doubt about where the request ends and whom it addresses. The
// library reads "+5", "0x5" and "5 5" as lengths of 0 or 5; proxies may read them differently.
static bool is_framed_well(const httplib::Request & request) {
    const auto & headers = request.headers;
    const size_t n_lengths = headers.count("Content-Length");
    const size_t n_codings = headers.count("Transfer-Encoding");
    const auto   coding = request.get_header_value("Transfer-Encoding");
    const bool   has_body =
            n_codings > 0 || (n_lengths > 0 && request.get_header_value("Content-Length") != "0");
    const size_t n_hosts = headers.count("Host");
    if (n_lengths + n_codings > 1 || n_hosts > 1 ||
            (n_hosts == 0 && request.version != "HTTP/1.0") ||
            request.path.find('\0') != std::string::npos) { // C would see another path
        return false;
    }
    if (n_lengths > 0 && !is_decimal(request.get_header_value("Content-Length"))) {
        return false;
    }
    if (n_codings > 0 && (request.version == "HTTP/1.0" || coding.size() != strlen("chunked") ||
                                 strcasecmp(coding.c_str(), "chunked") != 0)) {
        return false;
    }
    return !has_body || request.method == "POST" || request.method == "PUT" ||
           request.method == "PATCH" || request.method == "DELETE";
}

// Raises the limit on open files, as far as allowed, to so many connections and other files.
static void allow_files(size_t n_connections) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        const rlim_t wanted = std::min<rlim_t>(n_connections + 256, limit.rlim_max);
        limit.rlim_cur = std::max(limit.rlim_cur, wanted);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

struct http_server * http_server_new(const struct http_params * params) try {
    auto * s = new http_server(*params);
    auto & svr = s->server;

    svr.set_pre_routing_handler(
            [s](const httplib::Request & request, httplib::Response & response) {
                struct http_call call = { request, response, "" };
                if (!is_framed_well(request)) {
                    response.status = 400;
                } else if (s->params.check(&call, s->params.user)) {
                    return httplib::Server::HandlerResponse::Unhandled;
                }
                return httplib::Server::HandlerResponse::Handled;
            });
    const auto handle = [s](struct http_call & call) {
        s->server.connections.set_waiting(*current, false); // the request is complete
        s->params.handler(&call, s->params.user);
    };
    const auto without_body = [handle](const httplib::Request & request,
                                      httplib::Response &       response) {
        struct http_call call = { request, response, "" };
        handle(call);
    };
    // We read the body, whatever its content type: the library would parse forms.
    const auto with_body = [handle](const httplib::Request & request, httplib::Response & response,
                                   const httplib::ContentReader & read) {
        struct http_call call = { request, response, "" };
        const bool       ok = read([&call](const char * data, size_t size) {
            call.body.append(data, size);
            return true;
        });
        if (ok) {
            handle(call);
        } else if (response.status < 400) {
            response.status = 400;
        }
    };
    svr.Get(".*", without_body);
    svr.Options(".*", without_body);
    svr.Post(".*", with_body);
    svr.Put(".*", with_body);
    svr.Patch(".*", with_body);
    svr.Delete(".*", with_body);
    svr.set_error_handler([](const httplib::Request &, httplib::Response & response) {
        current->is_last = true;
        if (response.body.empty()) {
            char         body[512];
            const size_t size = http_error_body(response.status, body, sizeof(body));
            response.set_content(body, size, "application/json");
        }
        return httplib::Server::HandlerResponse::Handled;
    });
    svr.set_payload_max_length(params->max_body);
    svr.set_keep_alive_timeout(params->timeout_s); // for the header Keep-Alive
    svr.set_tcp_nodelay(true);
    // the default, SO_REUSEPORT, would let two servers share a port
    svr.set_socket_options([](int sock) {
        const int on = 1;
        setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    const auto n_connections = static_cast<size_t>(params->n_connections);
    const auto n_waiting = static_cast<size_t>(params->n_waiting);
    svr.new_task_queue = [s, n_connections, n_waiting] {
        return new connection_queue(s->server.connections, n_connections, n_waiting);
    };
    allow_files(n_connections + n_waiting);
    return s;
} catch (...) {
    return nullptr;
}

void http_server_free(struct http_server * server) {
    delete server;
}

int http_server_bind(
        struct http_server * server, const char * host, int port, struct lrnn_error * err) try {
    errno = 0;
    int  bound = port;
    bool success = true;
    if (port == 0) {
        bound = server->server.bind_to_any_port(host);
        success = bound > 0;
    } else {
        success = server->server.bind_to_port(host, port);
    }
    if (!success) {
        error_set(err, LRNN_ERROR_SYSTEM, "cannot listen on %s port %d: %s", host, port,
                errno != 0 ? strerror(errno) : "expected the name or address of this machine");
        return -1;
    }
    return bound;
} catch (...) {
    error_bad_input(err, "cannot listen on %s port %d", host, port);
    return -1;
}

bool http_server_run(struct http_server * server) try {
    return server->server.listen_after_bind();
} catch (...) {
    return false;
}

void http_server_stop(struct http_server * server) {
    server->server.is_stopping = true;
    server->server.stop();
}

const char * http_method(const struct http_call * call) {
    return call->request.method.c_str();
}

const char * http_path(const struct http_call * call) {
    return call->request.path.c_str();
}

struct slice http_body(const struct http_call * call) {
    return { call->body.data(), call->body.size() };
}

const char * http_header(const struct http_call * call, const char * name) {
    const auto found = call->request.headers.find(name);
    return found != call->request.headers.end() ? found->second.c_str() : nullptr;
}

// Sends something to a client that has closed its end of the connection, at most once a second. If
// nobody is there, the next check finds the connection reset. False: it cannot be sent.
static bool probe(const std::function<bool()> & send_probe) {
    const auto now = steady::now();
    if (now - current->probed < std::chrono::seconds(1)) {
        return true;
    }
    current->probed = now;
    return send_probe();
}

bool http_is_gone(const struct http_call * call) {
    static const char continues[] = "HTTP/1.1 100 Continue\r\n\r\n"; // clients ignore it
    const peer        found = peer_of(current->sock);
    if (found != peer::half_closed) {
        return found == peer::gone;
    }
    return call->request.version == "HTTP/1.0" || !probe([] { // which does not know it
        return send(current->sock, continues, strlen(continues), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
    });
}

void http_reply_header(struct http_call * call, const char * name, const char * value) {
    call->response.set_header(name, value);
}

void http_reply(
        struct http_call * call, int status, const char * type, const char * data, size_t size) {
    call->response.status = status;
    if (size > 0) {
        call->response.set_content(data, size, type);
    }
}

void http_reply_stream(struct http_call * call, const char * type,
        bool (*produce)(struct http_stream *, void *), void (*release)(void *), void * user) {
    const auto provide = [produce, user](size_t, httplib::DataSink & sink) {
        struct http_stream stream = { sink };
        const bool         ok = produce(&stream, user);
        if (ok) {
            sink.done();
        }
        return ok;
    };
    const auto end = [release, user](bool) { release(user); };
    if (call->request.version ==
            "HTTP/1.0") { // has no chunks: the end of the connection is the end
        current->is_last = true;
        call->response.set_header("Connection", "close");
        call->response.set_content_provider(type, provide, end);
    } else {
        call->response.set_chunked_content_provider(type, provide, end);
    }
}

bool http_stream_write(struct http_stream * stream, const char * data, size_t size) {
    return stream->sink.write(data, size);
}

bool http_stream_is_gone(struct http_stream * stream, const char * nothing) {
    const peer found = peer_of(current->sock);
    if (found != peer::half_closed) {
        return found == peer::gone;
    }
    return !probe([=] { return stream->sink.write(nothing, strlen(nothing)); });
}
