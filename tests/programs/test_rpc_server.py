"""lrnn-rpc-server: the same bytes as local devices, and clear errors when a server is unusable."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

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


# ---- command lines that the server rejects


def test_server_refusals(lrnn, spawn):
    system, usage = lrnn.Code.SYSTEM, lrnn.Code.USAGE
    server = spawn.server("--cache", lrnn.work / "cache")
    lrnn.fail(system, "lrnn-rpc-server", "--port", server.port,
              stderr=f"cannot listen on {server.address}")
    lrnn.fail(usage, "lrnn-rpc-server", "--port", "0")
    lrnn.fail(usage, "lrnn-rpc-server", "--device", "no-such-device",
              stderr="no device 'no-such-device'")
    lrnn.fail(system, "lrnn-rpc-server", "--cache", "no/such/folder")
    lrnn.write("file", "")
    lrnn.fail(system, "lrnn-rpc-server", "--cache", "file", stderr="is not a folder")


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


# ---- the same bytes as local devices


# Every kind of op: Householder scan, several factors, signed-gate scan, rank one, attention.
@pytest.mark.parametrize("model", ["delta_net_neg", "gated_deltaproduct2_neg", "mamba_neg", "rwkv7",
                                   "olmo_hybrid"])
def test_same_bytes(lrnn, spawn, model):
    remote = on_servers(spawn.server("--cache", lrnn.work / "cache"), spawn.server())
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
