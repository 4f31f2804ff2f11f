"""States of lrnn-server: named ones are resumed bit for bit, stored ones change no result."""

import concurrent.futures
import contextlib
import http.client
import os
import resource
import signal
import struct
import threading
import time

import pytest
from server_client import Server, cached, serving

MODEL = "text-deltaproduct2-neg.gguf"
PROMPT = "The old man looked at the sea and at the boats that came home"
FIELDS = {"max_tokens": 30, "temperature": 0, "logprobs": 3}


@pytest.fixture
def server(lrnn):
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        yield server


def results(reply):
    """What a client sees of a completion, to the last digit."""
    return [(c["text"], c["logprobs"]["content"]) for c in reply["choices"]]


def test_save_and_continue(server):
    whole = server.complete(prompt=PROMPT + " in the evening", **FIELDS)
    saved = server.post("/states/sea", {"prompt": PROMPT}).json()
    assert saved["name"] == "sea" and saved["n_tokens"] == len(PROMPT)
    assert saved["state_bytes"] == 120320
    reply = server.complete(state="sea", prompt=" in the evening", **FIELDS)
    assert results(reply) == results(whole)
    assert reply["usage"]["prompt_tokens"] == len(PROMPT) + len(" in the evening")
    assert cached(reply) >= len(PROMPT) - 1
    same = server.complete(prompt=PROMPT, **FIELDS)
    assert results(server.complete(state="sea", prompt="", **FIELDS)) == results(same)
    assert results(server.complete(state="sea", prompt=[], **FIELDS)) == results(same)
    # a state after a state
    assert server.post("/states/evening", {"state": "sea", "prompt": " in the evening"}).json()[
        "n_tokens"] == len(PROMPT) + 15
    assert results(server.complete(state="evening", prompt=[], **FIELDS)) == results(whole)


def test_states_survive_a_kill(lrnn):
    """kill -9 loses nothing that was saved; another process continues with the same bits."""
    first = Server(lrnn, lrnn.models / MODEL, "--state-dir", "states")
    whole = first.complete(prompt=PROMPT + "!", **FIELDS)
    assert first.post("/states/a", {"prompt": PROMPT}).status == 200
    first.kill()
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        assert server.get("/states").json() == {"states": [
            {"name": "a", "n_tokens": len(PROMPT), "is_usable": True,
             "file_bytes": 40 + 120320 + 8 + 4 * len(PROMPT) + 8}]}
        reply = server.complete(state="a", prompt="!", **FIELDS)
        assert results(reply) == results(whole) and cached(reply) == len(PROMPT) - 1


def test_load(lrnn):
    """After a load, prompts with the same beginning continue from the state."""
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        server.post("/states/a", {"prompt": PROMPT})
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        fresh = server.complete(prompt="x" + PROMPT, **FIELDS)
        assert cached(fresh) == 0
        assert server.post("/states/a/load").json()["n_tokens"] == len(PROMPT)
        reply = server.complete(prompt=PROMPT + "!", **FIELDS)
        assert cached(reply) == len(PROMPT) - 1
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states", "--state-memory", 0) as server:
        server.post("/states/a/load").error(400)
        computed = server.complete(prompt=PROMPT + "!", **FIELDS)
        assert cached(computed) == 0 and results(computed) == results(reply)
        assert cached(server.complete(state="a", prompt="!", **FIELDS)) == len(PROMPT) - 1


def test_fork_and_delete(server):
    server.post("/states/a", {"prompt": PROMPT})
    assert server.post("/states/a/fork", {"name": "b"}).json()["name"] == "b"
    assert server.request("DELETE", "/states/a").json() == {"deleted": "a"}
    assert [s["name"] for s in server.get("/states").json()["states"]] == ["b"]
    server.request("DELETE", "/states/a").error(404)
    server.post("/states/a/load").error(404)
    server.post("/states/a/fork", {"name": "c"}).error(404)
    server.post("/v1/completions", {"state": "a", "prompt": ""}).error(404)
    assert results(server.complete(state="b", prompt="", **FIELDS)) == \
        results(server.complete(prompt=PROMPT, **FIELDS))


@pytest.mark.parametrize("name", ["..", ".a", "%2e%2e", "a%2fb", "..%2fa", "a%00b", "a b", "a%0ab",
                                  "\u00e4".encode().hex(), "x" * 65, "a\\b", "*"])
def test_names_cannot_leave_the_folder(server, lrnn, name):
    valid = name.isalnum() and len(name) <= 64
    for method, path in (("POST", ""), ("POST", "/load"), ("POST", "/fork"), ("DELETE", "")):
        reply = server.request(method, f"/states/{name}{path}".replace(" ", "%20"),
                               '{"prompt": "a", "name": "b"}')
        assert reply.status in ((200, 404) if valid else (400, 404)), (method, path, reply.body)
    if not valid:
        server.post("/states/a", {"prompt": "abc"})
        for to in ("../b", ".b", "", "a/b", "x" * 65):
            server.post("/states/a/fork", {"name": to}).error(400)
        assert os.listdir(lrnn.work / "states") == ["a.state"]
    assert not [p for p in os.listdir(lrnn.work) if p.endswith(".state")]


def test_damaged_states_are_refused(server, lrnn):
    server.post("/states/a", {"prompt": PROMPT})
    path = lrnn.work / "states/a.state"
    good = path.read_bytes()
    damage = [good[:-1], good + b"\0", good[:100], b"", b"x" * len(good),
              good[:16] + b"\0" * 8 + good[24:],  # another model
              good[:24] + (2**62).to_bytes(8, "little") + good[32:],
              good[:24] + (-1).to_bytes(8, "little", signed=True) + good[32:],
              good[:40] + (300).to_bytes(4, "little") + good[44:],  # a token out of range
              good[:5000] + bytes([good[5000] ^ 1]) + good[5001:]]
    for data in damage:
        path.write_bytes(data)
        server.post("/states/a/load").error(400)
        server.post("/v1/completions", {"state": "a", "prompt": "b"}).error(400)
        assert len(server.get("/states").json()["states"]) == 1
    path.write_bytes(good)
    assert server.post("/states/a/load").status == 200


def test_other_files_are_not_replaced(server, lrnn):
    lrnn.write("states/a.state", "not a state, and precious")
    server.post("/states/a", {"prompt": "abc"}).error(400)
    assert (lrnn.work / "states/a.state").read_text() == "not a state, and precious"
    (lrnn.work / "states/d.state").mkdir()
    server.post("/states/d", {"prompt": "abc"}).error(500)
    server.post("/states/d/load").error(400)
    server.request("DELETE", "/states/d").error(500)


def test_bad_state_requests(server):
    server.post("/states/a", {}).error(400)
    server.post("/states/a", {"prompt": ["a", "b"]}).error(400)
    server.post("/states/a", {"prompt": "a", "n": 2}).error(400)
    server.post("/states/a", {"prompt": ""}).error(400)
    server.post("/states/a", b"nothing").error(400)
    server.post("/states/a/fork", {}).error(400)
    server.get("/states/a").error(405)
    server.post("/states/a/b/c").error(404)
    assert server.get("/states").json() == {"states": []}


def test_without_a_folder(lrnn):
    with serving(lrnn, lrnn.models / MODEL) as server:
        assert server.get("/states").json() == {"states": []}
        server.post("/states/a", {"prompt": "abc"}).error(400)
        server.request("DELETE", "/states/a").error(400)
    lrnn.write("file", "")
    lrnn.fail(lrnn.Code.SYSTEM, "lrnn-server", "-m", lrnn.models / MODEL, "--state-dir", "file",
              stderr="not a folder")


def test_full_disk(lrnn):
    """A save that cannot be written leaves the previous file and no temporary one."""
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        server.post("/states/a", {"prompt": PROMPT})
        before = (lrnn.work / "states/a.state").read_bytes()
        # a file may not grow beyond 64 kB, which for the writer is like a full disk
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (65536, 65536))
        assert "a.state" in server.post("/states/a", {"prompt": PROMPT + "!"}).error(500)["message"]
        assert os.listdir(lrnn.work / "states") == ["a.state"]
        assert (lrnn.work / "states/a.state").read_bytes() == before
        assert server.get("/health").status == 200


def test_stored_states_have_a_limit(lrnn):
    """Memory stays within --state-memory; the oldest states go first."""
    with serving(lrnn, lrnn.models / MODEL, "--state-memory", 1) as server:
        prompts = [chr(ord("a") + i) * 40 for i in range(20)]
        for prompt in prompts:
            server.complete(prompt=prompt, max_tokens=1)
        assert server.metric("states") == 8  # of 120 kB each in 1 MiB
        assert server.metric("states_bytes") <= server.metric("states_bytes_max") == 1 << 20
        assert server.metric("states_evicted_total") == 12
        assert cached(server.complete(prompt=prompts[0], max_tokens=1)) == 0
        assert cached(server.complete(prompt=prompts[-1], max_tokens=1)) == 39


def test_long_prompts_store_states_on_the_way(lrnn):
    with serving(lrnn, lrnn.models / MODEL, "--state-every", 100, "-b", 64) as server:
        text = ("Call me Ishmael. " * 40)[:555]
        whole = server.complete(prompt=text, **FIELDS)
        other = server.complete(prompt=text[:430] + "!" * 10, max_tokens=1)
        assert cached(other) == 400
        again = server.complete(prompt=text, **FIELDS)
        assert cached(again) == 554 and results(again) == results(whole)
    with serving(lrnn, lrnn.models / MODEL, "--state-memory", 0, "-b", 33) as server:
        reply = server.complete(prompt=text, **FIELDS)
        assert cached(reply) == 0 and results(reply) == results(whole)


def test_signal_during_save(lrnn):
    """SIGTERM while clients save states: whole files only, and every save that succeeded."""
    server = Server(lrnn, lrnn.models / MODEL, "--state-dir", "states")
    saves, is_over = [], threading.Event()  # (begin, end, name, status)

    def save(client):
        for i in range(1000):
            name, begin, status = f"s{client}-{i}", time.monotonic(), None
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = server.post(f"/states/{name}", {"prompt": PROMPT + name}).status
            saves.append((begin, time.monotonic(), name, status))
            if is_over.is_set():
                break

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(save, client) for client in range(8)]
        while len(saves) < 40:
            time.sleep(0.001)
        stopped = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        is_over.set()
        for client in clients:
            client.result()
    saved = {name for _, _, name, status in saves if status == 200}
    assert {status for *_, status in saves} <= {200, 503, None} and len(saved) >= 40
    assert any(begin < stopped < end and name in saved for begin, end, name, _ in saves)
    files = os.listdir(lrnn.work / "states")
    assert {f"{name}.state" for name in saved} <= set(files)
    assert all(name.endswith(".state") for name in files)
    with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as server:
        assert all(state["is_usable"] for state in server.get("/states").json()["states"])
        assert all(server.post(f"/states/{name}/load").status == 200 for name in saved)


def test_parallel_saves_of_one_state(server, lrnn):
    """All succeed, the file is one of them, and nothing is left behind."""
    def save(i):
        return server.post("/states/same", {"prompt": f"Once upon a time {i}"}).status
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(save, range(96))) == {200}
    assert server.complete(state="same", prompt=" a", max_tokens=1)
    folder = server.log.parent / "states"
    assert not list(folder.glob("*.tmp"))
    server.request("DELETE", "/states/same")


# ---- States that do not fit: nothing of a file is believed

def with_checksum(data):
    """A state file with these bytes before its checksum, FNV-1a."""
    total = 0xcbf29ce484222325
    for byte in data:
        total = (total ^ byte) * 0x100000001b3 % 2**64
    return data + total.to_bytes(8, "little")


def refused(server, name, reason):
    """The state is refused everywhere, and the prompts of others are answered."""
    fresh = server.complete(prompt=PROMPT[::-1], **FIELDS)
    entry = next(s for s in server.get("/states").json()["states"] if s["name"] == name)
    assert reason in server.post(f"/states/{name}/load").error(400)["message"]
    for fields in ({"prompt": "!"}, {"prompt": ""}):
        error = server.post("/v1/completions", {"state": name} | fields).error(400)
        assert reason in error["message"] and error["param"] == "state"
    server.post("/states/after", {"state": name, "prompt": "b"}).error(400)
    server.post(f"/states/{name}/fork", {"name": "copy"}).error(400)
    assert cached(server.complete(prompt=PROMPT + "!", **FIELDS)) == 0
    assert results(server.complete(prompt=PROMPT[::-1], **FIELDS)) == results(fresh)
    return entry["is_usable"]


def test_state_of_another_cache(lrnn):
    """Its type is part of the identity of a state; it must also have room for the tokens."""
    model = lrnn.text_model("delta_net_hybrid", "hybrid.gguf")

    def serve(cache_type, *more):
        return serving(lrnn, model, "--state-dir", "states", "--cache-type", cache_type, *more)

    with serve("f32") as server:
        server.post("/states/a", {"prompt": PROMPT})
    with serve("f16") as server:
        assert not refused(server, "a", "f32; expected f16")
    with serve("f32", "-c", 32) as server:
        assert not server.get("/states").json()["states"][0]["is_usable"]
        assert "expected 0 to 32" in server.post("/states/a/load").error(400)["message"]
    with serve("f32") as server:
        assert server.get("/states").json()["states"][0]["is_usable"]
        assert server.post("/states/a/load").status == 200
        assert cached(server.complete(prompt=PROMPT + "!", **FIELDS)) == len(PROMPT) - 1


def test_short_and_infinite_states(server, lrnn):
    server.post("/states/a", {"prompt": PROMPT})
    path = lrnn.work / "states/a.state"
    good = path.read_bytes()
    assert with_checksum(good[:-8]) == good
    n_memory = struct.unpack_from("<Q", good, 32)[0]
    nan = struct.pack("<f", float("nan"))
    for at, reason in ((40, "finite"), (40 + n_memory - 4, "finite"), (None, "bytes")):
        if at is None:  # a float less
            data = good[:32] + struct.pack("<Q", n_memory - 4) + good[44:-8]
        else:
            data = good[:at] + nan + good[at + 4:-8]
        path.write_bytes(with_checksum(data))
        # the tree of stored states knows the prompt since it was saved: ask another server
        with serving(lrnn, lrnn.models / MODEL, "--state-dir", "states") as other:
            refused(other, "a", reason)
