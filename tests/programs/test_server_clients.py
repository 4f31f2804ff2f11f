"""Many clients of lrnn-server: equal bits, a bounded queue, disconnects, hostile connections."""

import contextlib
import json
import os
import signal
import socket
import threading
import time

import pytest
from server_client import Server, serving

MODEL = "text-deltaproduct2-neg.gguf"
COMPLETE = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
TOKENIZE = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
N_CLIENTS = 16


@pytest.fixture(scope="module", params=["Q8_0", "Q4_0"])
def model(programs, request):
    path = programs.models / MODEL
    if request.param != "Q8_0":
        programs.run("lrnn-quantize", path, "small.gguf", request.param, "--allow-requantize")
        path = programs.work / "small.gguf"
    return path


@pytest.fixture
def server(lrnn):
    with serving(lrnn, lrnn.models / MODEL) as server:
        yield server


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_parallel(n, work):
    results = [None] * n
    def run(i):
        results[i] = work(i)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def fields(i):
    """Requests of all kinds: short and long prompts, greedy and sampled, scored and not."""
    text = "In the beginning there was nothing but the sea and the wind. " * 12
    request = {"prompt": text[i:i + 10 + 17 * i], "max_tokens": 10, "logprobs": 2, "seed": i,
               "temperature": 0.8 * (i % 2), "n": 1 + i % 3 // 2}
    if i % 5 == 4:
        request |= {"echo": True, "max_tokens": 1}
    return request


def test_16_clients_get_the_bits_of_one(programs, model):
    with serving(programs, model, "--state-memory", 0) as server:
        alone = [server.complete(**fields(i))["choices"] for i in range(N_CLIENTS)]
    with serving(programs, model, "-np", 12, "-t", 2) as server:
        for _ in range(2):  # with new and with stored states
            together = in_parallel(N_CLIENTS, lambda i: server.complete(**fields(i)))
            assert [reply["choices"] for reply in together] == alone
        assert server.metric("n_busy_slots_per_decode") > 1.5
        assert server.metric("prompt_tokens_cached_total") > 0


def test_generations_continue_beside_a_long_prompt(lrnn):
    """Each call has at most -b tokens of prompts: a generation gets a token from every call."""
    with serving(lrnn, lrnn.models / MODEL, "-b", 32) as server:
        calls = server.metric("eval_calls_total")
        long = threading.Thread(target=lambda: server.complete(prompt="a b c d " * 1000,
                                                               max_tokens=1))
        long.start()
        wait_until(lambda: server.slots_busy() == 1)
        reply = server.complete(prompt="Once", max_tokens=20)
        assert reply["usage"]["completion_tokens"] == 20
        assert long.is_alive()  # 8,000 tokens take 250 calls
        assert server.metric("eval_calls_total") - calls < 250
        long.join()


def test_full_queue(lrnn):
    with serving(lrnn, lrnn.models / MODEL, "-np", 1, "--queue", 2) as server:
        def work(_):
            return server.post("/v1/completions", {"prompt": "Once", "max_tokens": 200})
        replies = in_parallel(8, work)
        assert {r.status for r in replies} == {200, 429}
        refused = [r for r in replies if r.status == 429]
        assert server.metric("requests_refused_total") == len(refused)
        assert refused[0].error(429)["type"] == "rate_limit_error"
        assert refused[0].headers["Retry-After"] == "1"
        server.complete(prompt="Once", max_tokens=1)  # all sequences are free again


@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_frees_the_sequence(server, stream):
    body = json.dumps({"prompt": "Once", "max_tokens": 32000, "stream": stream})
    for _ in range(3):
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/v1/completions", body)
            if stream:
                connection.getresponse().read(100)
            wait_until(lambda: server.slots_busy() == 1)
        wait_until(lambda: server.slots_busy() == 0)
    with contextlib.closing(server.connect()) as connection:  # one that waits, too
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": ["Once"] * 40, "max_tokens": 32000}))
        wait_until(lambda: server.metric("requests_deferred") == 24)
    wait_until(lambda: server.slots_busy() == 0 and server.metric("requests_deferred") == 0)


def test_sigterm_finishes_running_requests(lrnn):
    server = Server(lrnn, lrnn.models / MODEL)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(
        server.complete(prompt="Once", max_tokens=500)))
    thread.start()
    wait_until(lambda: server.slots_busy() == 1)
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert replies[0]["usage"]["completion_tokens"] == 500
    assert server.process.wait(30) == 0
    with pytest.raises(OSError):
        server.get("/health")


# ---- Hostile clients

def send(server, data, timeout=20):
    """Sends bytes and returns what comes back until the server closes the connection."""
    reply = b""
    with contextlib.closing(server.socket(timeout)) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                reply += piece
    return reply


@pytest.mark.parametrize("data", [
    b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 200000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    COMPLETE + b"Content-Length: 1000\r\n\r\n{\"prompt\":",
    COMPLETE + b"Content-Length: -1\r\n\r\n",
    COMPLETE + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    COMPLETE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    COMPLETE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    TOKENIZE + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}",
    b"\0" * 100000], ids=range(15))
def test_requests_that_are_not_http(server, data):
    reply = send(server, data)
    assert reply == b"" or b"HTTP/1.1 4" in reply.splitlines()[0], reply[:200]
    assert server.complete(prompt="Once", max_tokens=1)
    assert server.slots_busy() == 0


def test_garbage_of_10_megabytes(server):
    garbage = bytes(range(256)) * (10 << 12)
    server.post("/v1/completions", garbage).error(400)
    send(server, garbage)
    server.post("/v1/completions", b'{"prompt": "' + b"a" * (10 << 20)).error(400)
    with contextlib.suppress(OSError):  # the server may close the connection while we send
        server.post("/v1/completions", b"x" * (17 << 20)).error(413)
    assert server.get("/health").status == 200


def seconds_until_closed(connection, drip=b""):
    """Sends a byte of `drip` now and then until the server closes the connection."""
    start = time.monotonic()
    connection.settimeout(0.1)
    for i in range(1000):
        with contextlib.suppress(TimeoutError):
            try:
                if not connection.recv(4096):
                    break
            except ConnectionError:
                break
        with contextlib.suppress(ConnectionError):
            connection.sendall(drip[i:i + 1])
    return time.monotonic() - start


@pytest.fixture(scope="module")
def patient(programs):
    """A server that waits for a second."""
    with serving(programs, programs.models / MODEL, "--timeout", 1) as server:
        yield server


def test_slow_clients_lose_their_connection(patient):
    """A request must be complete in time, also if a byte of it arrives now and then."""
    begins = [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ",
              TOKENIZE + b"Content-Length: 1000\r\n\r\n{",
              TOKENIZE + b"Transfer-Encoding: chunked\r\n\r\n200\r\n{"]

    def hold(i):
        begin = begins[i // 2]
        with contextlib.closing(patient.socket()) as connection:
            connection.sendall(begin)
            return seconds_until_closed(connection, b"a" * 1000 if begin and i % 2 else b"")

    seconds = in_parallel(2 * len(begins), hold)
    assert all(0.5 < s < 30 for s in seconds), seconds
    assert patient.get("/health").status == 200


def test_client_that_does_not_read(patient):
    """A reply of 35 MB, more than sockets hold, is cut off."""
    def n_files():
        return len(os.listdir(f"/proc/{patient.process.pid}/fd"))

    body, before = b'{"prompt": "' + b"a" * (12 << 20) + b'"}', n_files()
    with contextlib.closing(patient.socket()) as connection:
        connection.sendall(TOKENIZE + b"Content-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body)
        wait_until(lambda: n_files() <= before)
        size = 0
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                size += len(piece)
    assert 0 < size < 30e6


def test_requests_on_one_connection(server):
    """Also if they arrive together."""
    one = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for n in (1, 2, 5):
        assert send(server, one * n + last).count(b"HTTP/1.1 200") == n + 1


@pytest.mark.parametrize("begin", [b"", TOKENIZE + b"Content-Length: 9\r\n\r\n{"])
def test_1000_held_connections(lrnn, begin):
    """Others are served while they are held, and a running request keeps its connection."""
    with serving(lrnn, lrnn.models / MODEL, "--connections", 64, "--timeout", 600) as server:
        running = []
        thread = threading.Thread(target=lambda: running.append(
            server.complete(prompt="Once", max_tokens=2000)))
        thread.start()
        wait_until(lambda: server.slots_busy() == 1)
        with contextlib.ExitStack() as stack:
            for i in range(1000):
                connection = stack.enter_context(contextlib.closing(server.socket()))
                with contextlib.suppress(ConnectionError):
                    connection.sendall(begin)
                if i % 100 == 99:
                    assert server.get("/health").status == 200
            for _ in range(20):
                assert server.complete(prompt="Once", max_tokens=4)
            thread.join()
            assert running[0]["usage"]["completion_tokens"] == 2000
        assert server.slots_busy() == 0
