"""Where a request of lrnn-server ends: no byte of a body is ever executed as a request."""

import contextlib
import json
import socket
import time

import pytest
from server_client import serving

MODEL = "text-deltaproduct2-neg.gguf"
INNER = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
N = len(INNER)
POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server(programs):
    with serving(programs, programs.models / MODEL) as server:
        yield server


def send(server, data, half_close=False):
    """Sends bytes and returns what comes back until the server closes the connection."""
    reply = b""
    with contextlib.closing(server.socket(20)) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                reply += piece
    return reply


HEADS = {
    "unknown method": b"PROPFIND / HTTP/1.1\r\nContent-Length: %d",
    "HTTP/1.2": b"POST /tokenize HTTP/1.2\r\nContent-Length: %d",
    "HTTP/0.9": b"POST /tokenize\r\nContent-Length: %d",
    "no such path": b"POST /nothing HTTP/1.1\r\nContent-Length: %d",
    "no such method": b"POST /health HTTP/1.1\r\nContent-Length: %d",
    "two lengths": b"POST /tokenize HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: %d",
    "equal lengths": b"POST /tokenize HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0",
    "list of lengths": b"POST /tokenize HTTP/1.1\r\nContent-Length: %d, 0",
    "plus": b"POST /tokenize HTTP/1.1\r\nContent-Length: +%d",
    "minus": b"POST /tokenize HTTP/1.1\r\nContent-Length: -%d",
    "hexadecimal": b"POST /tokenize HTTP/1.1\r\nContent-Length: 0x%x",
    "unit": b"POST /tokenize HTTP/1.1\r\nContent-Length: %dB",
    "empty length": b"POST /tokenize HTTP/1.1\r\nContent-Length: ",
    "length of a GET": b"GET /health HTTP/1.1\r\nContent-Length: %d",
    "both": b"POST /tokenize HTTP/1.1\r\nContent-Length: %d\r\nTransfer-Encoding: chunked",
    "both, 0": b"POST /tokenize HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked",
    "coding": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: identity",
    "two codings": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
    "two lines of coding": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                           b"Transfer-Encoding: chunked",
    "coding of HTTP/1.0": b"POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\n"
                          b"Transfer-Encoding: chunked",
    "not chunks": b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked",
    "folded": b"POST /tokenize HTTP/1.1\r\nA: b\r\n Content-Length: %d",
    "folded length": b"POST /tokenize HTTP/1.1\r\nContent-Length:\r\n %d",
    "space before colon": b"POST /tokenize HTTP/1.1\r\nContent-Length : %d",
    "no colon": b"POST /tokenize HTTP/1.1\r\nContent-Length %d",
    "only LF": b"POST /tokenize HTTP/1.1\r\nContent-Length: %d\nA: b",
    "only LF, twice": b"POST /tokenize HTTP/1.1\nContent-Length: %d\nA: b",
    "only CR": b"POST /tokenize HTTP/1.1\r\nA: b\rContent-Length: %d",
    "zero byte": b"POST /tokenize HTTP/1.1\r\nA: b\0\r\nContent-Length: %d",
    "other host": b"POST /tokenize HTTP/1.1\r\nHost: evil.example\r\nContent-Length: %d",
    "form": b"POST /tokenize HTTP/1.1\r\nContent-Type: multipart/form-data\r\nContent-Length: %d",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_body_is_not_a_request(server, head):
    """One reply, an error, and the connection is closed although the client waits."""
    head = head % N if b"%" in head else head
    host = b"" if b"Host" in head else b"\r\nHost: localhost"
    reply = send(server, head + host + b"\r\n\r\n" + INNER)
    assert reply.count(b"HTTP/1.1 ") == 1 and reply.startswith(b"HTTP/1.1 4"), reply
    assert b"connection: close" in reply.lower() and b'"object":"list"' not in reply


@pytest.mark.parametrize("line", [b"GET\t /health HTTP/1.1", b"GET\t/health HTTP/1.1",
                                  b"GET /health\tHTTP/1.1", b"GET  /health HTTP/1.1",
                                  b"GET /health HTTP/1.1 ", b" GET /health HTTP/1.1",
                                  b"GET /health HTTP/1.1\t", b"GET\x0b/health HTTP/1.1"])
def test_first_line(server, line):
    """One space between its words, as every proxy reads it."""
    reply = send(server, line + b"\r\nHost: localhost\r\n\r\n" + INNER)
    assert reply.count(b"HTTP/1.1 ") == 1 and reply.startswith(b"HTTP/1.1 4"), reply


def test_a_body_that_is_a_request(server):
    """It is read as a body, and the request after it is answered."""
    for framing in (b"Content-Length: %d\r\n\r\n%b" % (N, INNER),
                    b"Transfer-Encoding: Chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (N, INNER)):
        reply = send(server, POST + framing)
        assert reply.count(b"HTTP/1.1 ") == 1 and b"not JSON" in reply


def test_good_requests_follow_each_other(server):
    body = b'{"prompt": "Once"}'
    one = POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    two = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    assert send(server, one + two + one + INNER).count(b"HTTP/1.1 200") == 4


def test_large_head(server):
    reply = send(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: " + b"b" * 70000)
    assert reply.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("version, hosts, status", [
    (b"1.1", [], 400), (b"1.0", [], 200), (b"1.1", [b"localhost"], 200), (b"1.1", [b""], 403),
    (b"1.0", [b"localhost"], 200), (b"1.1", [b"localhost"] * 2, 400)])
def test_host(server, version, hosts, status):
    """RFC 9112: HTTP/1.1 has one, and a request without it is refused."""
    head = b"GET /health HTTP/%b\r\nConnection: close\r\n" % version
    reply = send(server, head + b"".join(b"Host: %b\r\n" % host for host in hosts) + b"\r\n")
    assert reply.startswith(b"HTTP/1.1 %d" % status), reply


@pytest.mark.parametrize("text", ["bytes=9-5", "bytes=a-b", "bytes=99999999-"])
def test_bad_range(server, text):
    error = server.get("/health", headers={"Range": text}).error(416)
    assert error["type"] == "invalid_request_error" and "Range" in error["message"]


# ---- Chunks

CHUNK = b'{"prompt": "Once"}'  # 0x12 bytes
BAD_CHUNKS = {
    "plus": b"+12\r\n%b\r\n0\r\n\r\n",
    "minus": b"-12\r\n%b\r\n0\r\n\r\n",
    "0x": b"0x12\r\n%b\r\n0\r\n\r\n",
    "space before the size": b" 12\r\n%b\r\n0\r\n\r\n",
    "two sizes": b"12 12\r\n%b\r\n0\r\n\r\n",
    "comma": b"12,12\r\n%b\r\n0\r\n\r\n",
    "no size": b"\r\n%b\r\n0\r\n\r\n",
    "only an extension": b";a=b\r\n%b\r\n0\r\n\r\n",
    "not hexadecimal": b"g\r\n%b\r\n0\r\n\r\n",
    "2^64 more": b"10000000000000012\r\n%b\r\n0\r\n\r\n",
    "2^64 - 1": b"ffffffffffffffff\r\n%b\r\n0\r\n\r\n",
    "LF after the size": b"12\n%b\r\n0\r\n\r\n",
    "CR after the size": b"12\r%b\r\n0\r\n\r\n",
    "LF in an extension": b"12;a\nb\r\n%b\r\n0\r\n\r\n",
    "zero byte after the size": b"12\0\r\n%b\r\n0\r\n\r\n",
    "nothing after the data": b"12\r\n%b0\r\n\r\n",
    "LF after the data": b"12\r\n%b\n0\r\n\r\n",
    "CR after the data": b"12\r\n%b\r0\r\n\r\n",
    "more data": b"11\r\n%b\r\n0\r\n\r\n",
    "less data": b"13\r\n%b\r\n0\r\n\r\n",
    "LF after the last size": b"12\r\n%b\r\n0\n\r\n",
    "no end of the trailers": b"12\r\n%b\r\n0\r\n",
    "LF after the trailers": b"12\r\n%b\r\n0\r\n\n",
    "trailer without a colon": b"12\r\n%b\r\n0\r\na\r\n\r\n",
    "trailer without a name": b"12\r\n%b\r\n0\r\n: a\r\n\r\n",
    "folded trailer": b"12\r\n%b\r\n0\r\na: b\r\n c\r\n\r\n",
    "LF in a trailer": b"12\r\n%b\r\n0\r\na: b\nc: d\r\n\r\n",
    "zero byte in a trailer": b"12\r\n%b\r\n0\r\na: b\0c\r\n\r\n",
}
GOOD_CHUNKS = [
    b"12\r\n%b\r\n0\r\n\r\n", b"0012\r\n%b\r\n000\r\n\r\n", b"12;a=b\r\n%b\r\n0;c\r\n\r\n",
    b'12;a="b c"\r\n%b\r\n0\r\n\r\n', b"12\r\n%b\r\n0\r\na: b\r\nc:\r\n\r\n",
    b"12\r\n%b\r\nA\r\n          \r\n0\r\n\r\n", b"12\r\n%b\r\n0\r\nContent-Length: 5\r\n\r\n"]


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_bad_chunks(server, chunks):
    """Nobody can tell where such a body ends: one error, and nothing after it is a request."""
    assert len(CHUNK) == 0x12
    data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks % CHUNK + INNER
    reply = send(server, data, half_close=True)
    assert reply.count(b"HTTP/1.1 ") == 1 and reply.startswith(b"HTTP/1.1 400"), reply
    assert b"connection: close" in reply.lower()


@pytest.mark.parametrize("chunks", GOOD_CHUNKS)
def test_good_chunks(server, chunks):
    reply = send(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks % CHUNK + INNER)
    assert reply.count(b"HTTP/1.1 200") == 2 and b'"count":4' in reply, reply


@pytest.mark.parametrize("content", ["application/x-www-form-urlencoded", "application/json"])
def test_max_body_is_the_only_limit(server, content):
    """curl -d sends the first of these."""
    text = "a&b=c" * 100000
    reply = server.post("/tokenize", {"prompt": text}, headers={"Content-Type": content})
    assert reply.status == 200 and reply.json()["count"] == len(text)


# ---- Clients that close their end

def completion(n, **more):
    body = json.dumps({"prompt": "Once", "max_tokens": n, "seed": 1} | more).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body))


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed_client_gets_its_reply(server, stream):
    reply = send(server, completion(400, stream=stream), half_close=True)
    final = reply.split(b"HTTP/1.1 ")[-1]  # after interim replies
    assert final.startswith(b"200")
    assert (b"[DONE]" if stream else b'"completion_tokens":400') in final


@pytest.mark.parametrize("stream", [False, True])
def test_stray_byte_does_not_hide_a_disconnect(server, stream):
    """The generation is given up: the model would make all tokens in a few seconds."""
    before = server.metric("tokens_predicted_total")
    with contextlib.closing(server.socket()) as connection:
        connection.sendall(completion(32000, stream=stream))
        end = time.monotonic() + 60
        while server.slots_busy() == 0 and time.monotonic() < end:
            time.sleep(0.01)
        connection.sendall(b"x")  # not before: the server would read it with the request
    while server.slots_busy() > 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert server.slots_busy() == 0
    assert 0 < server.metric("tokens_predicted_total") - before < 32000
