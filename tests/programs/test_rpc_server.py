"""lrnn-rpc-server: the same bytes as local devices, and clear errors when a server is unusable."""

import contextlib
import dataclasses
import itertools
import json
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from rpc_messages import (BF16, F16, F32, HUGE, I32, I64, MAX_SRC, Q4_0, Q8_0, Q8_K, REMOVED_TYPE,
                          Client, Tensor, graph, op_numbers)

POLL_SECONDS = 0.05

# Leaks of ggml-rpc: it keeps its servers and buffer types as long as the process lives, and does
# not free the events of a scheduler.
SUPPRESSIONS = """\
leak:^ggml_backend_rpc_add_server$
leak:^ggml_backend_rpc_buffer_type$
leak:^ggml_backend_rpc_device_event_new$
"""


@pytest.fixture(autouse=True)
def suppressions(lrnn, monkeypatch):
    path = lrnn.write("suppressions", SUPPRESSIONS)
    monkeypatch.setenv("LSAN_OPTIONS", f"suppressions={path}:print_suppressions=0")


class Process:
    """A program in the background. Its output goes to files."""

    def __init__(self, lrnn, program, *args):
        self.out, self.err = (lrnn.work / f"{program}-{time.monotonic_ns()}.{stream}"
                              for stream in ("out", "err"))
        with self.out.open("w") as out, self.err.open("w") as err:
            self.popen = subprocess.Popen([lrnn.bin / program, *map(str, args)], cwd=lrnn.work,
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def finish(self, *codes):
        """Waits for the end, checks the exit code and returns stderr."""
        code = self.popen.wait()
        assert code in codes, f"exit code {code}, expected {codes}: {self.err.read_text()}"
        return self.err.read_text()


class Server(Process):
    """An lrnn-rpc-server on a free port of the loopback."""

    def __init__(self, lrnn, *args):
        while True:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            super().__init__(lrnn, "lrnn-rpc-server", "--port", self.port, "-t", "1", *args)
            self.address = f"127.0.0.1:{self.port}"
            if self.wait_until_ready(lrnn):
                return

    def wait_until_ready(self, lrnn):
        while self.running():  # it ends at once if another process took the port
            done = lrnn.start("lrnn-inspect", "--devices", "--rpc", self.address)
            if done.code == lrnn.Code.OK:
                return True
            assert done.code == lrnn.Code.USAGE, done.stderr  # does not listen yet
            time.sleep(POLL_SECONDS)
        self.finish(lrnn.Code.SYSTEM)
        return False


@pytest.fixture
def spawn(lrnn):
    """spawn(program, ...) and spawn.server(...) start processes that end with the test."""
    processes = []

    def start(program, *args):
        processes.append(Process(lrnn, program, *args))
        return processes[-1]

    def server(*args):
        processes.append(Server(lrnn, *args))
        return processes[-1]

    start.server = server
    yield start
    for process in processes:
        if process.running():
            process.kill()


def on_servers(*servers):
    return ["--rpc", ",".join(s.address for s in servers), "--tensor-split", "1,1"]


# ---- a client that is stopped and continued


def test_stopped_client(lrnn, spawn):
    """Ctrl-Z and fg interrupt a call that waits for the server. The client must wait again."""
    server = spawn.server()
    model = lrnn.models / "text-delta-neg.gguf"
    generate = ["lrnn-cli", "-m", model, "-p", "a", "-n", "200", "-s", "1", "-q"]
    expected = lrnn.run(*generate).stdout
    client = spawn(*generate, "--rpc", server.address)
    while client.running() and not client.out.read_text():
        time.sleep(0.001)
    server.signal(signal.SIGSTOP)          # now the client waits for an answer
    time.sleep(0.3)
    assert client.running()
    for number in (signal.SIGSTOP, signal.SIGCONT):
        client.signal(number)
        time.sleep(0.1)
    server.signal(signal.SIGCONT)
    client.finish(lrnn.Code.OK)
    assert client.out.read_text() == expected


# ---- command lines that the server rejects


def test_server_refusals(lrnn, spawn):
    system, usage = lrnn.Code.SYSTEM, lrnn.Code.USAGE
    server = spawn.server("--weight-cache", lrnn.work / "cache")
    lrnn.fail(system, "lrnn-rpc-server", "--port", server.port,
              stderr=f"cannot listen on {server.address}")
    lrnn.fail(usage, "lrnn-rpc-server", "--port", "0")
    lrnn.fail(usage, "lrnn-rpc-server", "--device", "no-such-device",
              stderr="no device 'no-such-device'")
    lrnn.fail(system, "lrnn-rpc-server", "--weight-cache", "no/such/folder")
    lrnn.write("file", "")
    lrnn.fail(system, "lrnn-rpc-server", "--weight-cache", "file", stderr="is not a folder")


def test_warning_beyond_the_loopback(lrnn, spawn):
    # an address that no machine has: the server warns, then cannot listen
    said = spawn("lrnn-rpc-server", "--host", "192.0.2.1").finish(lrnn.Code.SYSTEM)
    assert re.fullmatch(r"lrnn-rpc-server: warning: [^\n]*neither passwords nor encryption[^\n]*\n"
                        r"lrnn-rpc-server: cannot listen on 192.0.2.1[^\n]*\n", said)
    assert "warning" not in spawn.server().err.read_text()


# ---- servers that a client rejects


def test_addresses_that_are_refused(lrnn, spawn):
    server = spawn.server()
    port = server.port
    for servers in ("nonsense", ":1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                    "127.0.0.1:1x", f"{server.address},{server.address}",
                    f"localhost:{port},{server.address}"):
        lrnn.fail(lrnn.Code.USAGE, "lrnn-inspect", "--devices", "--rpc", servers)
    lrnn.fail(lrnn.Code.USAGE, "lrnn-inspect", "--devices", "--rpc", f"{server.address},",
              stderr="'' is not a server")
    server.kill()
    lrnn.fail(lrnn.Code.USAGE, "lrnn-inspect", "--devices", "--rpc", server.address,
              stderr="refused")


def protocol_version(config, name):
    header = (Path(config["ggml"]) / "include/ggml-rpc.h").read_text()
    return int(re.search(rf"RPC_PROTO_{name}\s+\(?(\d+)", header).group(1))


def greeting(config, patch):
    """The answer to a handshake: size, version, no capabilities."""
    version = [protocol_version(config, "MAJOR_VERSION"), protocol_version(config, "MINOR_VERSION")]
    return (28).to_bytes(8, "little") + bytes([*version, patch]) + bytes(25)


@contextlib.contextmanager
def fake_server(answer):
    """Answers every client with the same bytes, then closes the connection. With an empty answer it
    waits for the client to give up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):  # closed at the end of the test, or by the client
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(64)
                        client.sendall(answer)
                        while not answer and client.recv(64):
                            pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


@pytest.mark.parametrize("kind, stderr", [
    ("silent", "no answer within 5 seconds"),
    ("noise", "not a ggml RPC server"),
    ("short", "not a ggml RPC server"),
    ("stock", "without the ops of lrnn"),
    ("newer", "expected [0-9.]+, as spoken by an lrnn-rpc-server of this version")])
def test_unusable_servers(lrnn, spawn, config, kind, stderr):
    stock = protocol_version(config, "PATCH_VERSION_GGML")
    ours = protocol_version(config, "PATCH_VERSION") + stock
    answer = {"silent": b"", "noise": noise(), "short": greeting(config, ours)[:11],
              "stock": greeting(config, stock), "newer": greeting(config, ours + 1)}[kind]
    server = spawn.server()
    with fake_server(answer) as port:
        start = time.monotonic()
        said = lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", "-m", "x", "-p", "1", "--rpc",
                         f"{server.address},127.0.0.1:{port}", stderr=stderr)
        seconds = time.monotonic() - start
    if kind == "silent":  # with time for a busy machine
        assert 4.9 < seconds < 20, f"{seconds:.1f} seconds instead of 5"
        assert f"server 127.0.0.1:{port}" in said


def noise():
    return np.random.default_rng(1).bytes(4096)


def test_server_survives_noise(lrnn, spawn):
    server = spawn.server()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(noise())
    out = lrnn.run("lrnn-inspect", "--devices", "--rpc", server.address, "--json").stdout
    device = json.loads(out)["devices"][1]
    assert device["name"] == "RPC0"
    assert device["description"] == server.address
    assert device["memory_bytes"] > 0


# ---- malformed messages of a client that greets properly


@pytest.fixture(scope="module")
def ops(config):
    return op_numbers(config["ggml"])


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def ints(*values):
    return struct.pack(f"<{len(values)}i", *values)


def valid_nodes(c, ops):
    """One valid node for each op that a server computes, by name. The ids are in the server."""
    def ids(*values, **fields):
        t = c.tensor(len(values), type=I32, **fields)
        c.set(t, ints(*values))
        return t

    def unary(name, *, params=b"", ne=(8, 3)):
        return c.tensor(*ne, op=ops[name], params=params, src=(c.tensor(*ne),))

    def binary(name):
        return c.tensor(8, 3, op=ops[name], src=(c.tensor(8, 3), c.tensor(8)))

    nodes = {name: binary(name) for name in ("ADD", "SUB", "MUL", "DIV")}
    nodes |= {name: unary(name) for name in ("SQR", "CONT", "FILL")}
    nodes["SCALE"] = unary("SCALE", params=floats(2, 1))
    nodes["CLAMP"] = unary("CLAMP", params=floats(-1, 1))
    nodes |= {name: unary(name, params=floats(1e-5)) for name in ("NORM", "RMS_NORM", "L2_NORM")}
    nodes |= {f"UNARY {i}": unary("UNARY", params=ints(i)) for i in (2, 4, 5, 6, 7, 10, 13, 15)}
    nodes["SUM_ROWS"] = c.tensor(1, 3, op=ops["SUM_ROWS"], src=(c.tensor(8, 3),))
    nodes["REPEAT"] = c.tensor(8, 6, op=ops["REPEAT"], src=(c.tensor(8, 3),))
    nodes["GLU"] = c.tensor(8, 3, op=ops["GLU"], params=ints(2),
                            src=(c.tensor(8, 3), c.tensor(8, 3)))
    nodes["GLU of one"] = c.tensor(8, 3, op=ops["GLU"], params=ints(2), src=(c.tensor(16, 3),))
    nodes["SOFT_MAX"] = unary("SOFT_MAX", params=floats(1, 0))
    nodes["ARGSORT"] = c.tensor(8, 3, type=I32, op=ops["ARGSORT"], params=ints(1),
                                src=(c.tensor(8, 3),))
    nodes["MUL_MAT_ID"] = c.tensor(5, 2, 1, op=ops["MUL_MAT_ID"],
                                   src=(c.tensor(32, 5, 4), c.tensor(32, 1, 1), ids(3, 0)))
    nodes["MUL_MAT"] = c.tensor(5, 3, op=ops["MUL_MAT"], src=(c.tensor(32, 5), c.tensor(32, 3)))
    nodes["MUL_MAT q"] = c.tensor(5, 3, op=ops["MUL_MAT"],
                                  src=(c.tensor(32, 5, type=Q4_0), c.tensor(32, 3)))
    nodes["GET_ROWS"] = c.tensor(32, 3, op=ops["GET_ROWS"], src=(c.tensor(32, 5), ids(4, 0, 2)))
    nodes["GET_ROWS q"] = c.tensor(32, 2, op=ops["GET_ROWS"],
                                   src=(c.tensor(32, 5, type=Q4_0), ids(4, 1)))
    cache = c.tensor(8, 5)
    rows = c.tensor(2, type=I64)
    c.set(rows, struct.pack("<2q", 4, 1))
    nodes["SET_ROWS"] = Tensor((8, 5), c.buffer, cache.data, op=ops["SET_ROWS"], view_src=cache,
                               src=(c.tensor(8, 2), rows, cache))
    nodes["CONCAT"] = c.tensor(8, 5, op=ops["CONCAT"], params=ints(1),
                               src=(c.tensor(8, 2), c.tensor(8, 3)))
    rope = ints(0, 8, 2, 0, 0) + floats(10000, 1, 0, 1, 0, 0)
    nodes["ROPE"] = c.tensor(8, 2, 3, op=ops["ROPE"], params=rope,
                             src=(c.tensor(8, 2, 3), ids(0, 1, 2), c.tensor(4)))
    for name, type in (("f32", F32), ("f16", F16), ("q8_0", Q8_0)):  # 4 heads share 2 of the cache
        mask = c.tensor(6, 3, type=F16)
        nodes[f"FLASH_ATTN_EXT {name}"] = c.tensor(
            32, 4, 3, op=ops["FLASH_ATTN_EXT"], params=floats(1, 0, 0) + ints(10),
            src=(c.tensor(32, 3, 4), c.tensor(32, 6, 2, type=type), c.tensor(32, 6, 2, type=type),
                 mask))
    nodes["ARANGE"] = c.tensor(7, op=ops["ARANGE"], params=floats(5, 12, 1))

    # 2 heads of 4 × 4, 2 slots, 3 tokens, one sequence
    slots = c.tensor(4, 1, type=I32)
    c.set(slots, ints(0, 1, 0, 3))
    state, one = c.tensor(32, 2), (1, 2, 1, 3)
    qkv = [c.tensor(4, 2, 1, 3) for _ in range(3)]
    scan = ops["HOUSEHOLDER_SCAN"]
    nodes["HOUSEHOLDER_SCAN"] = c.tensor(4, 2, 3, op=scan, params=floats(1),
                                         src=(state, slots, *qkv, c.tensor(*one), c.tensor(*one)))
    nodes["HOUSEHOLDER_SCAN r"] = c.tensor(
        4, 2, 3, op=scan, params=floats(1),
        src=(state, slots, *qkv, 0, 0, c.tensor(4, 2, 1, 3), c.tensor(4, 2, 1, 3)))
    scan = ops["SIGNED_SCAN"]
    for kind, more in enumerate([(), (c.tensor(*one),), (c.tensor(4, 2, 1, 3),),
                                 (c.tensor(4, 2, 1, 3), c.tensor(4, 4, 2)),
                                 (c.tensor(*one), c.tensor(1, 1, 2))]):
        nodes[f"SIGNED_SCAN {kind}"] = c.tensor(4, 2, 3, op=scan, src=(state, slots, *qkv, *more),
                                                params=floats(1, 0) + ints(0, kind))
    nodes["SIGNED_SCAN 5"] = c.tensor(
        4, 2, 3, op=scan, params=floats(1, 0) + ints(0, 5),
        src=(c.tensor(42, 2), slots, *qkv, c.tensor(*one), c.tensor(*one)))
    nodes["SHORT_CONV"] = c.tensor(8, 3, op=ops["SHORT_CONV"], params=bytes(24) + ints(1),
                                   src=(c.tensor(24, 2), slots, c.tensor(8, 3), c.tensor(4, 8),
                                        c.tensor(8)))
    nodes["token shift"] = c.tensor(8, 3, op=ops["SHORT_CONV"],
                                    src=(c.tensor(8, 2), slots, c.tensor(8, 3)))
    return nodes


def compute(c, node, **options):
    src = [s for s in node.src if isinstance(s, Tensor)]
    c.send("GRAPH_COMPUTE", graph([*src, node], [node], **options))


NUMBERS = (0, 1, 2, 3, 5, 7, 31, 33, 255, 4096, 65536, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


def field_changes(n_ops):
    """Changes of one field of a tensor: dicts of a field, an index in it, and a value."""
    for i, value in itertools.product(range(4), NUMBERS):
        yield {"field": "ne", "at": i, "value": value}
        yield {"field": "nb", "at": i, "value": value}
    for i, value in itertools.product(range(16), (0, 1, -1, 3, 2**31 - 1, 0x7fc00000)):
        yield {"field": "params", "at": i, "value": value}
    for i, value in itertools.product(range(MAX_SRC), (0, "self", "next", 12345, HUGE)):
        yield {"field": "src", "at": i, "value": value}
    for value in (F32, F16, Q4_0, REMOVED_TYPE, Q8_0, Q8_K, I32, I64, BF16, 24, 43, 2**32 - 1):
        yield {"field": "type", "value": value}
    for value in (*range(n_ops + 2), 2**31, 2**32 - 1):
        yield {"field": "op", "value": value}
    for base, value in itertools.product(("base", "end", None), (0, 1, 2, 4, 64, -1, -4, -64)):
        yield {"field": "data", "base": base, "value": value}
    for value in (0, 1, 4096, HUGE):
        yield {"field": "buffer", "value": value}
    for value in ("self", "next", 12345, HUGE):
        yield {"field": "view_src", "value": value}
    for name, value in (("name", b"x" * 64), ("flags", -1), ("use_count", -2**31),
                        ("view_offs", HUGE), ("id", 0), ("id", HUGE)):
        yield {"field": name, "value": value}


def changed(c, t, change, other=None):
    """The tensor with a change."""
    name, value = change["field"], change["value"]
    value = {"self": t.id, "next": (other or t).id}.get(value, value)
    if name == "data":
        value = (value + {"base": c.base, "end": c.base + c.size, None: 0}[change["base"]]) % 2**64
    elif name == "params":
        words = bytearray(t.params.ljust(64, b"\0"))
        words[4 * change["at"]:4 * change["at"] + 4] = ints(value)
        value = bytes(words)
    elif name in ("ne", "nb", "src"):
        values = [*getattr(t, name), *[0] * (MAX_SRC if name == "src" else 0)]
        values[change["at"]] = value
        value = tuple(values[:MAX_SRC if name == "src" else 4])
    return dataclasses.replace(t, **{"id": t.id, name: value})


class Attacker:
    """Sends malformed messages. The server may close the connection, but must not end."""

    def __init__(self, server, prepare):
        self.server, self.prepare, self.client, self.refused = server, prepare, None, 0

    def send(self, what, message):
        """message(client, prepared) sends one message."""
        if self.client is None:
            self.client = Client(self.server.port)
            self.prepared = self.prepare(self.client)
        try:
            message(self.client, self.prepared)
            dropped = not self.client.alive()
        except OSError:
            dropped = True
        if dropped:
            self.refused += 1
            self.close()
            for _ in range(100):  # a server that has crashed may still write its message
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", self.server.port)).close()
                    break
                time.sleep(POLL_SECONDS)
        assert self.server.running(), f"{what}: {self.server.err.read_text()[-2000:]}"

    def close(self):
        if self.client is not None:
            self.client.sock.close()
            self.client = None


def served(lrnn, server):
    """A valid client gets the same text as without the server."""
    command = ["lrnn-cli", "-m", lrnn.golden / "delta_net_neg.gguf", "-p", "1 2 3", "-n", "5", "-t",
               "1", "-q", "-s", "3"]
    assert lrnn.run(*command, "--rpc", server.address).stdout == lrnn.run(*command).stdout


def test_valid_nodes(spawn, ops):
    server = spawn.server()
    with Client(server.port) as c:
        for name, node in valid_nodes(c, ops).items():
            compute(c, node)
            assert c.alive(), f"{name}: {server.err.read_text()}"
            c.send("GRAPH_RECOMPUTE", struct.pack("<I", 0))
            assert c.alive(), f"{name}: {server.err.read_text()}"


def test_malformed_tensors(lrnn, spawn, ops):
    """Each request with changed fields of its tensor."""
    server = spawn.server("--weight-cache", lrnn.work / "cache")
    attacker = Attacker(server, lambda c: (c.tensor(8, 3), c.tensor(8, 3)))
    requests = {
        "SET_TENSOR": lambda t, _: t + bytes(9) + bytes(4),
        "SET_TENSOR_HASH": lambda t, _: t + struct.pack("<QQ", 0, 0xcbf29ce484222325),
        "GET_TENSOR": lambda t, _: t + struct.pack("<QQ", 0, 4),
        "INIT_TENSOR": lambda t, _: t,
        "COPY_TENSOR": lambda t, other: t + other,
        "COPY_TENSOR ": lambda t, other: other + t,
        "MEMSET_TENSOR": lambda t, _: t + struct.pack("<QQB", 0, 4, 1),
        "GET_ALLOC_SIZE": lambda t, other: bytes(4) + t + other + bytes(296 * 9),
        "GET_ALLOC_SIZE ": lambda t, other: bytes(4) + other + t + bytes(296 * 9),
    }
    answered = ("SET_TENSOR_HASH", "GET_TENSOR", "COPY_TENSOR", "GET_ALLOC_SIZE")
    attacker.send("cache", lambda c, t: c.set(t[0], b"", cache=1))
    for (name, body), change in itertools.product(requests.items(), field_changes(ops["COUNT"])):
        def message(c, tensors):
            t, other = tensors
            c.send(name.strip(), body(changed(c, t, change, other).pack(), other.pack()))
            if name.strip() in answered:
                c.answer()
        attacker.send(f"{name} {change}", message)
    assert attacker.refused > 0
    attacker.close()
    served(lrnn, server)


def test_malformed_offsets(lrnn, spawn):
    server = spawn.server("--weight-cache", lrnn.work / "cache")
    attacker = Attacker(server, lambda c: [c.tensor(64), c.tensor(8, 3)][1])
    for offset, size in ((0, 97), (96, 1), (97, 0), (4, HUGE - 3), (HUGE - 3, 4), (HUGE, HUGE),
                         (2**63, 2**63), (HUGE - 63, 64), (HUGE - 63, 4), (0, 1 << 40)):
        for command in ("SET_TENSOR", "GET_TENSOR", "MEMSET_TENSOR", "SET_TENSOR_HASH"):
            def message(c, t):
                body = {"SET_TENSOR": struct.pack("<BQ", 0, offset) + bytes(min(size, 4096)),
                        "MEMSET_TENSOR": struct.pack("<QQB", offset, size, 1)}
                c.send(command, t.pack() + body.get(command, struct.pack("<QQ", offset, size)))
                if command in ("GET_TENSOR", "SET_TENSOR_HASH"):
                    c.answer()
            attacker.send(f"{command} {offset:#x}, {size:#x}", message)
    attacker.close()
    served(lrnn, server)


def test_malformed_buffers_and_sizes(lrnn, spawn):
    server = spawn.server()
    attacker = Attacker(server, lambda c: c)
    for size in (0, 1, 1 << 50, 2**63, HUGE - 4096, HUGE - 64, HUGE):
        def message(c, _):
            buffer, n = c.alloc(size)
            assert n < 1 << 40
            if n > 0:
                c.send("BUFFER_CLEAR", struct.pack("<QB", buffer, 1))
            c.set(Tensor((4,), buffer, c.get_base(buffer)), bytes(16))
        attacker.send(f"buffer of {size}", message)
    for command, value in itertools.product(
            ("BUFFER_GET_BASE", "FREE_BUFFER", "BUFFER_CLEAR"), (0, 1, 4096, HUGE)):
        attacker.send(f"{command} {value:#x}", lambda c, _: c.send(
            command, struct.pack("<QB", value, 1)[:9 if command == "BUFFER_CLEAR" else 8]))
    for _ in range(2):
        attacker.send("free", lambda c, _: c.send("FREE_BUFFER", struct.pack("<Q", c.buffer)))
    for device, command in itertools.product((1, 2**31, 2**32 - 1), (
            "ALLOC_BUFFER", "GET_ALIGNMENT", "GET_MAX_SIZE", "GET_DEVICE_MEMORY",
            "GRAPH_RECOMPUTE", "GET_ALLOC_SIZE")):
        rest = {"ALLOC_BUFFER": 8, "GET_ALLOC_SIZE": 11 * 296}.get(command, 0)
        attacker.send(f"{command} of device {device}", lambda c, _: c.send(
            command, struct.pack("<I", device) + bytes(rest)))
    for command, size in itertools.product((*range(20), 255), (0, 1, 7, 296, 1 << 40, HUGE)):
        attacker.send(f"command {command}, size {size:#x}", lambda c, _: (
            c.send(command, bytes(64), size=size), c.sock.shutdown(socket.SHUT_WR)))
    attacker.close()
    served(lrnn, server)


def test_malformed_graphs(lrnn, spawn, ops):
    """Each op with changed fields of its node and its sources: every change of a stride, because
    kernels look at strides of dimensions of one element too, and a seeded sample of the others."""
    server = spawn.server()
    attacker = Attacker(server, lambda c: valid_nodes(c, ops))
    with Client(server.port) as c:
        names = {name: len(node.src) + 1 for name, node in valid_nodes(c, ops).items()}
    changes = list(field_changes(ops["COUNT"]))
    strides = [k for k, change in enumerate(changes) if change["field"] == "nb"]
    rng = np.random.default_rng(1)
    for name, n in names.items():
        for i in range(n):
            for k in {*strides, *rng.choice(len(changes), 25, replace=False)}:
                def message(c, nodes):
                    node = nodes[name]
                    tensors = [s for s in node.src if isinstance(s, Tensor)] + [node]
                    t = tensors[i % len(tensors)]
                    tensors[i % len(tensors)] = changed(c, t, changes[k], tensors[0])
                    c.send("GRAPH_COMPUTE", graph(tensors, [node.id]))
                attacker.send(f"{name}, tensor {i}, {changes[k]}", message)
    assert attacker.refused > 0
    attacker.close()
    served(lrnn, server)


# Graphs that no single change of a field makes.
def choice(c, ops, n_experts, n_scores, **fields):
    """A product with the 2 of n_experts matrices that have the largest of n_scores scores."""
    scores = c.tensor(n_scores, 3)
    sort = c.tensor(n_scores, 3, type=I32, op=ops["ARGSORT"], params=ints(1), src=(scores,),
                    **fields)
    best = Tensor((2, 3), c.buffer, sort.data, type=I32, nb=sort.nb, op=ops["VIEW"], src=(sort,),
                  view_src=sort)
    x, matrices = c.tensor(32, 1, 3), c.tensor(32, 5, n_experts)
    product = c.tensor(5, 2, 3, op=ops["MUL_MAT_ID"], src=(matrices, x, best))
    return [scores, matrices, x], sort, best, product


def test_computed_ids(spawn, ops):
    server = spawn.server()
    with Client(server.port) as c:
        data, sort, best, product = choice(c, ops, 6, 6)
        c.send("GRAPH_COMPUTE", graph([*data, sort, best, product], [sort, best, product]))
        assert c.alive(), server.err.read_text()[-2000:]


def bad_choices(c, ops):
    """Numbers of experts that the graph computes, and that may not exist."""
    data, sort, best, product = choice(c, ops, 4, 5)
    yield "more scores than experts", graph([*data, sort, best, product], [sort, best, product])
    data, sort, best, product = choice(c, ops, 5, 5)
    tensors = [*data, sort, best, product]
    yield "no sort", graph(tensors, [best, product])
    yield "sort after its use", graph(tensors, [best, product, sort])
    fill = Tensor((2,), c.buffer, best.data, op=ops["FILL"], params=floats(1e9),
                  src=(Tensor((2,), c.buffer, best.data),))
    yield "ids overwritten", graph([*tensors, *fill.src, fill], [sort, fill, best, product])
    data, sort, best, product = choice(c, ops, 5, 5, flags=0)
    yield "sort that is skipped", graph([*data, sort, best, product], [sort, best, product])


def bad_graphs(c, ops):
    nodes = valid_nodes(c, ops)
    add = nodes["ADD"]
    tensors = [*add.src, add]

    yield "no nodes", graph(tensors, [])
    yield "no tensors", graph([], [add])
    yield "node without a tensor", graph(tensors, [12345])
    yield "node 0", graph(tensors, [0, add])
    yield "node twice", graph(tensors, [add, add])
    yield "device", graph(tensors, [add], device=1)
    for n in (2, 1000, 2**29, 2**32 - 1):
        yield f"{n} nodes", graph(tensors, [add], n_nodes=n)
        yield f"{n} tensors", graph(tensors, [add], n_tensors=n)
    yield "truncated", graph(tensors, [add])[:-1]
    yield "empty", b""

    for name in ("HOUSEHOLDER_SCAN", "HOUSEHOLDER_SCAN r", "SIGNED_SCAN 3", "SIGNED_SCAN 5",
                 "SHORT_CONV"):
        node = nodes[name]
        sources = [x for x in node.src if isinstance(x, Tensor)]
        five = c.tensor(5)
        for i, x in itertools.product(range(4), (0, five)):
            wrong = dataclasses.replace(node, id=node.id, src=(*node.src[:i], x, *node.src[i + 1:]))
            yield f"{name}, source {i}", graph([*sources, five, wrong], [wrong])
        for i, value in ((2, 4), (2, -1), (3, 6), (4, 2), (6, 2), (7, 1)):
            params = bytearray(node.params.ljust(64, b"\0"))
            params[4 * i:4 * i + 4] = ints(value)
            wrong = dataclasses.replace(node, id=node.id, params=bytes(params))
            yield f"{name}, parameter {i} = {value}", graph([*sources, wrong], [wrong])

    # ids that are out of range, or that the graph itself writes
    for name, values in (("GET_ROWS", (4, 5, 2)), ("GET_ROWS", (-1, 0, 2)),
                         ("HOUSEHOLDER_SCAN", (0, 2, 0, 3)), ("HOUSEHOLDER_SCAN", (0, 1, 1, 3)),
                         ("SHORT_CONV", (-2, 1, 0, 3)), ("SIGNED_SCAN 0", (0, 1, 0, 2))):
        ids = nodes[name].src[1]
        c.set(ids, ints(*values))
        yield f"{name} with ids {values}", graph([*nodes[name].src, nodes[name]], [nodes[name]])
        c.set(ids, ints(*(0, 1, 0, 3)[:len(values)]))
    node = nodes["GET_ROWS"]
    ids = Tensor((3,), c.buffer, node.src[1].data)
    fill = Tensor((3,), c.buffer, ids.data, op=ops["FILL"], src=(ids,), params=floats(1e9))
    yield "ids written by the graph", graph([*node.src, node, ids, fill], [fill, node])
    yield from bad_choices(c, ops)
    view = dataclasses.replace(node.src[1], id=node.src[1].id, view_src=Tensor((3,), type=I32))
    yield "ids in another buffer than their view", graph([view.view_src, node.src[0], view, node],
                                                         [node])
    node = nodes["SHORT_CONV"]
    inside = dataclasses.replace(node, id=node.id, data=node.src[0].data + 4)
    yield "output in the state", graph([*node.src, inside], [inside])
    node = nodes["CONT"]
    inside = dataclasses.replace(node, id=node.id, data=node.src[0].data + 4)
    yield "output inside its source", graph([*node.src, inside], [inside])
    deep = [Tensor((8, 3), c.buffer, add.data, op=ops["SQR"]) for _ in range(50000)]
    for a, b in itertools.pairwise(deep):
        a.src = (b,)
    deep[-1].src = (add.src[0],)
    yield "chain", graph([*deep, add.src[0]], [deep[0]])


def test_bad_graphs(lrnn, spawn, ops):
    server = spawn.server()
    with Client(server.port) as c:
        names = [name for name, _ in bad_graphs(c, ops)]
    for i, name in enumerate(names):
        with Client(server.port) as c:
            _, body = next(itertools.islice(bad_graphs(c, ops), i, None))
            with contextlib.suppress(OSError):
                c.send("GRAPH_COMPUTE", body)
            assert not c.alive(), f"{name} was accepted"
        assert server.running(), f"{name}: {server.err.read_text()[-2000:]}"
    served(lrnn, server)


# ---- the same bytes as local devices


# Every kind of op: Householder scan, several factors, signed-gate scan, rank one, attention,
# experts.
@pytest.mark.parametrize("model", ["delta_net_neg", "gated_deltaproduct2_neg", "mamba_neg", "rwkv7",
                                   "olmo_hybrid", "nemotron_h_moe", "qwen35moe", "bailingmoe3_q"])
def test_same_bytes(lrnn, spawn, model):
    remote = on_servers(spawn.server("--weight-cache", lrnn.work / "cache"), spawn.server())
    path = lrnn.golden / f"{model}.gguf"
    lrnn.write("ids.txt", "5 1 4 2 3 9 8 7 6 11 10 13 12 0 " * 4)
    command = ["lrnn-perplexity", "logits", "-m", path, "--tokens", "ids.txt", "-t", "1", "--cut",
               "13,1,1,7"]
    lrnn.run(*command, "--out", "local.npy")
    lrnn.run(*command, "--out", "remote.npy", *remote, "-v", stderr="RPC0.*RPC1")
    assert same_files(lrnn, "local.npy", "remote.npy")

    # a state file of servers continues locally, a local one on servers
    command = ["lrnn-cli", "-m", path, "-t", "1", "-q", "-s", "3"]
    start = [*command, "-p", "1 2 3 4 5", "-n", "5", "--state-save"]
    local = lrnn.run(*start, "local.state").stdout
    assert lrnn.run(*start, "remote.state", *remote).stdout == local
    assert same_files(lrnn, "local.state", "remote.state")
    local = lrnn.run(*command, "--state-load", "remote.state", "-n", "7").stdout
    assert lrnn.run(*command, "--state-load", "local.state", "-n", "7", *remote).stdout == local


def same_files(lrnn, a, b):
    return (lrnn.work / a).read_bytes() == (lrnn.work / b).read_bytes()


# ---- lost servers


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["ends", "hangs"])
def test_lost_server(lrnn, spawn, number):
    first, second = spawn.server(), spawn.server()
    cli = spawn("lrnn-cli", "-m", lrnn.golden / "delta_net_neg.gguf", "-p", "1 2 3", "-n", "-1",
                "-t", "1", *on_servers(first, second), "--rpc-timeout", "2")
    while cli.out.stat().st_size == 0 and cli.running():
        time.sleep(POLL_SECONDS)
    second.signal(number)
    said = cli.finish(lrnn.Code.SYSTEM)
    lost = {signal.SIGKILL: f"server {second.address} is lost: the connection is closed",
            signal.SIGSTOP: f"one of the servers {first.address}, {second.address} is lost: "
                            "no answer within 2 seconds"}[number]
    assert re.fullmatch(rf"lrnn-cli: {lost}[^\n]*\n", said), said


def test_resume_after_a_lost_server(lrnn, spawn):
    """A run continues from its last checkpoint, and the scores have the same bytes."""
    lrnn.text_model("delta_net_neg", "text.gguf")
    lrnn.write("text.txt", "".join(
        f"Line {i} says {i * 7919 % 1009}, and {i * 7919 % 1009} it is.\n" for i in range(1, 2001)))
    command = ["lrnn-perplexity", "run", "-m", "text.gguf", "--data", "text.txt", "-w", "1024",
               "-b", "8", "--group", "1", "--max-windows", "16", "--checkpoint-every", "128",
               "-t", "1", "-q"]
    lrnn.run(*command, "-o", "local")
    first = spawn.server()
    for attempt in range(20):  # again if the run ends before its server does
        second, folder = spawn.server(), f"remote-{attempt}"
        run = spawn(*command, "-o", folder, *on_servers(first, second))
        while run.running() and not list(lrnn.work.glob(f"{folder}/*.checkpoint/*")):
            pass
        second.kill()
        said = run.finish(lrnn.Code.OK, lrnn.Code.SYSTEM)
        if run.popen.returncode == lrnn.Code.SYSTEM:
            break
    assert re.fullmatch(rf"lrnn-perplexity run: server {second.address} is lost[^\n]*\n", said)
    lrnn.run(*command, "-o", folder, *on_servers(first, spawn.server()), "--resume")
    assert same_files(lrnn, "local/text.text.nll", f"{folder}/text.text.nll")
