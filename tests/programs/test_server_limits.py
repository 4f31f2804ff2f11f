"""What lrnn-server keeps for itself: memory that a small request could take, and paths of files."""

import collections
import contextlib
import http.client
import json
import os
import re
import resource
import time

import pytest
from server_client import Server, serving
from test_chat import Chat

MODEL = "text-deltaproduct2-neg.gguf"
MIB = 1 << 20


@pytest.fixture
def server(lrnn, config):
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        server.sanitized = config["sanitize"]
        yield server


def memory(server):
    """The largest memory of the server, in bytes; 0 if sanitizers keep what is freed."""
    if server.sanitized:
        return 0
    text = open(f"/proc/{server.process.pid}/status").read()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text).group(1)) * 1024


# ---- Replies

@pytest.mark.parametrize("stream", [False, True])
def test_large_replies_are_refused(server, stream):
    before = memory(server)
    for fields in ({"n": 128, "echo": True, "logprobs": 20},
                   {"n": 1024, "echo": True, "logprobs": 0},
                   {"n": 64, "logprobs": 20, "max_tokens": 30000},
                   {"n": 1024, "echo": True},
                   {"prompt": ["a" * 4000] * 500, "echo": True, "logprobs": 1}):
        body = {"prompt": "a" * 4000, "max_tokens": 1, "stream": stream} | fields
        error = server.post("/v1/completions", body).error(400)
        assert re.search(r"up to \d+ entries; expected at most 1048576", error["message"])
    assert server.metric("prompt_tokens_total") == 0 and memory(server) < before + 32*MIB


@pytest.fixture
def forgetful(lrnn, config):
    """A server with little memory for states, which have the scores of their tokens."""
    with serving(lrnn, lrnn.models / MODEL, "--state-memory", 8) as server:
        server.sanitized = config["sanitize"]
        yield server


@pytest.mark.parametrize("n, length, stream", [(11, 3900, False), (3, 13000, True),
                                               (1, 42900, True)])
def test_memory_of_a_reply(forgetful, n, length, stream):
    """The largest reply is sent in pieces: of one JSON text, or as events of bounded size."""
    server, prompt = forgetful, "The old man. " * (length // 13)
    body = {"prompt": prompt, "max_tokens": 1, "n": n, "echo": True, "logprobs": 20, "seed": 1,
            "stream": stream}
    server.complete(prompt=prompt, max_tokens=1)
    before = memory(server)
    reply = server.post("/v1/completions", body)
    assert reply.status == 200 and len(reply.body) > 50*MIB
    choices = joined(reply, n) if stream else reply.json()["choices"]
    assert len(choices) == n
    for choice in choices:
        assert choice["text"].startswith(prompt)
        assert choice["finish_reason"] == "length"
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content"):
            assert len(choice["logprobs"][key]) == len(prompt) + 1
        assert choice["logprobs"]["text_offset"] == list(range(len(prompt) + 1))
    # 172 bytes per score, and doubling; the text itself would be 75 MB
    assert memory(server) < before + 40*MIB


def joined(reply, n):
    """The choices of a stream, whose events hold a part of the scores each."""
    assert max(map(len, reply.body.split(b"\n\n"))) < 2*MIB
    choices = [{"text": "", "logprobs": collections.defaultdict(list), "finish_reason": None}
               for _ in range(n)]
    for event in reply.events():
        for part in event["choices"]:
            choice = choices[part["index"]]
            assert choice["finish_reason"] is None, "an event after the last one"
            choice["text"] += part["text"]
            choice["finish_reason"] = part["finish_reason"]
            for key, values in part["logprobs"].items():
                choice["logprobs"][key] += values
    return choices


def test_detokenize_is_bounded(server):
    """A token counts its bytes and one more."""
    most = (4 << 20) // 2
    server.post("/detokenize", {"tokens": [65]})
    before = memory(server)
    for n in (most, most + 1):
        reply = server.post("/detokenize", b'{"tokens":[' + b",".join([b"65"] * n) + b"]}")
        if n == most:
            assert reply.json()["content"] == "A" * n
        else:
            error = reply.error(400)
            assert error["param"] == "tokens" and "more than 4194304 bytes" in error["message"]
    assert memory(server) < before + 80*MIB


def test_replies_to_old_clients(server):
    """HTTP/1.0 has no chunks: the end of the connection ends the reply."""
    for stream in (False, True):
        body = json.dumps({"prompt": "The old man. " * 100, "max_tokens": 20, "stream": stream,
                           "logprobs": 20, "echo": True}).encode()
        with contextlib.closing(server.socket()) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (
                len(body), body))
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        head, _, content = reply.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and b"chunked" not in head.lower()
        if stream:
            assert content.startswith(b"data: {") and content.endswith(b"data: [DONE]\n\n")
        else:
            assert len(json.loads(content)["choices"][0]["logprobs"]["tokens"]) == 1320


def test_many_choices_of_a_long_prompt(server):
    """A choice that is done needs no copy of its prompt."""
    prompt = [65] * 200_000
    server.complete(prompt=prompt, max_tokens=1)
    before = memory(server)
    assert len(server.complete(prompt=prompt, max_tokens=1, n=200)["choices"]) == 200
    assert memory(server) < before + 80*MIB  # 200 copies have 153 MiB, the 16 that run 13


# ---- Short memory

def test_out_of_memory_is_not_the_clients_fault(lrnn, config, monkeypatch):
    if config["sanitize"]:
        pytest.skip("the address sanitizer reserves terabytes of address space")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")  # others have reserved address space before
    server = Server(lrnn, lrnn.models / MODEL)
    try:
        server.complete(prompt="a", max_tokens=1)  # threads have their stacks
        size = int(open(f"/proc/{server.process.pid}/statm").read().split()[0]) * 4096
        body = json.dumps({"prompt": [[65] * 100] * 1000 + ["a" * 6_000_000], "n": 2})
        statuses = set()
        for more in range(4*MIB, 60*MIB, 4*MIB):
            resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + more, -1))
            with contextlib.suppress(ConnectionError):
                statuses.add(server.post("/v1/completions", body).status)
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (-1, -1))
        assert 500 in statuses and statuses <= {400, 500}
        server.complete(prompt="a", max_tokens=1)
        reply = server.post("/v1/completions", body)
        assert reply.error(400)["param"] == "n"  # the only fault that it has
    finally:
        server.kill()


# The kinds of replies that have a text of their own, and how a whole one begins.
TEXT = "The old man. " * 8
WITH_TEXT = {
    "detokenize": ("/detokenize", {"tokens": list(TEXT.encode())}, False),
    "echo": ("/v1/completions", {"prompt": TEXT, "echo": True, "max_tokens": 1}, False),
    "echo, stream": ("/v1/completions", {"prompt": TEXT, "echo": True, "max_tokens": 1,
                                         "stream": True}, True)}


def text_of_reply(reply, stream):
    """The text of a reply; None: it is an error."""
    if stream:
        if "error" in (events := reply.events())[-1]:
            assert "memory" in events[-1]["error"]["message"]
            return None
        return "".join(event["choices"][0]["text"] for event in events)
    if reply.status != 200:
        assert "memory" in reply.error(500)["message"]
        return None
    value = reply.json()
    return value["content"] if "content" in value else value["choices"][0]["text"]


@pytest.mark.parametrize("call", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize("kind", WITH_TEXT)
def test_no_text_is_cut(lrnn, build, config, monkeypatch, kind, call):
    """If a text cannot be written to memory, the reply is an error, or a stream ends early."""
    if config["sanitize"]:
        pytest.skip("the sanitizer must be loaded first")
    monkeypatch.setenv("LD_PRELOAD", str(build / "tests/no-memstream.so"))
    monkeypatch.setenv("LRNN_TEST_CALL", str(call))
    path, body, stream = WITH_TEXT[kind]
    server = Server(lrnn, lrnn.models / MODEL)
    try:
        texts = []
        for _ in range(3):
            texts.append(None)
            with contextlib.suppress(*([http.client.IncompleteRead] if stream else [])):
                texts[-1] = text_of_reply(server.post(path, body), stream)
        assert all(text is None or text.startswith(TEXT) for text in texts), texts
        assert texts.count(None) == 1 or (stream and None not in texts)  # the call wrote nothing
    finally:
        server.kill()


# ---- Paths

def test_replies_have_no_paths(lrnn):
    chat = Chat(lrnn, "olmo-3")
    folder = lrnn.work / "secret-folder"
    for model in (lrnn.models / MODEL, chat.model):
        with serving(lrnn, model, "--state-dir", folder) as server:
            lrnn.write("secret-folder/damaged.state", "no state")
            (folder / "folder.state").mkdir(exist_ok=True)
            replies = [server.get(path) for path in ("/props", "/v1/models", "/slots", "/states")]
            for name in ("none", "damaged", "folder"):
                replies += [server.post(f"/states/{name}/load"),
                            server.post(f"/states/{name}/fork", {"name": "b"}),
                            server.post(f"/states/{name}", {"prompt": "a"}),
                            server.post("/v1/completions", {"prompt": "a", "state": name})]
                if name != "none":
                    replies.append(server.request("DELETE", f"/states/{name}"))
            replies.append(server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}))
            for reply in replies:
                assert b"secret-folder" not in reply.body, reply.body
                assert str(lrnn.models).encode() not in reply.body, reply.body
                assert str(lrnn.work).encode() not in reply.body, reply.body
            os.chmod(folder, 0o755)


# ---- Files that are not states

def test_pipe_among_the_states(server, lrnn):
    os.mkfifo(lrnn.work / "states/x.state")
    start = time.monotonic()
    assert server.get("/states").json() == {"states": [
        {"name": "x", "n_tokens": 0, "file_bytes": 0, "is_usable": False}]}
    server.post("/states/x/load").error(400)
    server.post("/v1/completions", {"state": "x", "prompt": "b"}).error(400)
    assert time.monotonic() < start + 30
