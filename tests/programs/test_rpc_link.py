"""An RPC server behind a bad link: a proxy that delays, cuts into small pieces, stalls or ends the
connection. A client gives the same result or ends with one sentence, and files stay whole."""

import contextlib
import ctypes
import os
import re
import select
import socket
import threading
import time

import pytest
from test_rpc_server import Server, suppressions  # noqa: F401, a fixture

MODEL = "delta_net_neg.gguf"
N = 24  # tokens to generate


class Link:
    """Passes bytes between clients and a server, both ways. After `limit` bytes of all connections
    it ends them (`cut`) or passes nothing more. Each piece waits `delay` seconds."""

    def __init__(self, port, piece=65536, delay=0.0, limit=None, cut=True):
        self.port, self.piece, self.delay, self.limit, self.cut = port, piece, delay, limit, cut
        self.n_bytes, self.ended = 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=[client], daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as server, \
                contextlib.suppress(OSError):
            other = {client: server, server: client}
            while not self.ended.is_set():
                for source in select.select([client, server], [], [], 0.05)[0]:
                    data = source.recv(self.piece)
                    if not data:
                        return
                    time.sleep(self.delay)
                    self.n_bytes += len(data)
                    if self.limit is not None and self.n_bytes > self.limit:
                        if self.cut:
                            return
                        self.ended.wait()
                        return
                    other[source].sendall(data)

    def close(self):
        self.ended.set()
        self.listener.close()


@pytest.fixture
def link(lrnn):
    """link(**options): a link to a server of its own for the test."""
    server = Server(lrnn)
    links = []

    def make(**options):
        links.append(Link(server.port, **options))
        return links[-1]
    yield make
    for one in links:
        one.close()
    server.kill()


def generate(lrnn, link, *options):
    return lrnn.start("lrnn-cli", "-m", lrnn.golden / MODEL, "-p", "1 2 3", "-n", N, "-t", "1",
                      "--temp", "0", *(["--rpc", link.address, "-ngl", "99", "--rpc-timeout", "2"]
                                       if link else []), *options)


def test_slow_link(lrnn, link):
    """Pieces of 1,000 bytes, and a delay of a millisecond each: the same text."""
    plain, slow = link(), link(piece=1000, delay=0.001)
    expected = generate(lrnn, plain)
    assert expected.code == lrnn.Code.OK and plain.n_bytes > 10000, expected.stderr
    assert generate(lrnn, slow).stdout == expected.stdout


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "stalled"])
def test_lost_link(lrnn, link, cut):
    """One sentence, exit code 1 (2 before the model is placed), and the old state file."""
    whole = link()
    generate(lrnn, whole, "--state-save", "kept.state")
    kept = (lrnn.work / "kept.state").read_bytes()
    parts = (0.02, 0.3, 0.6, 0.9) if cut else (0.3, 0.9)
    for part in parts:
        bad = link(limit=int(part*whole.n_bytes), cut=cut)
        done = generate(lrnn, bad, "--state-save", "kept.state")
        assert done.code in (lrnn.Code.SYSTEM, lrnn.Code.USAGE), (part, done.stderr)
        assert re.fullmatch(r"lrnn-cli: [^\n]*server[^\n]*\n", done.stderr), (part, done.stderr)
        assert (lrnn.work / "kept.state").read_bytes() == kept
        assert not list(lrnn.work.glob("*.tmp*"))
        bad.close()  # the server has one client at a time
    assert generate(lrnn, whole, "--state-load", "kept.state").code == lrnn.Code.OK


def accepted_by(pid, client):
    """The server's end of a connection, as a socket of this process."""
    pidfd = os.pidfd_open(pid)
    pidfd_getfd = 438  # the number of the system call, on all machines
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            copy = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, pidfd, int(fd), 0)
            if copy < 0:
                pytest.skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
            try:
                other = socket.socket(fileno=copy)
            except OSError:  # another kind of file
                os.close(copy)
                continue
            with contextlib.suppress(OSError):  # it listens
                if other.getpeername() == client.getsockname():
                    os.close(pidfd)
                    return other
            other.close()
        time.sleep(0.05)
    raise AssertionError("the server accepted no connection")


def test_vanished_client(lrnn):
    """TCP gives up after 60 seconds, with keep-alive while nothing is on its way, and with its
    time-out while a reply is. The first connections may come before the server has found the
    socket on which ggml listens."""
    server = Server(lrnn)
    end = time.monotonic() + 20
    found = None
    try:
        while time.monotonic() < end and found != (1, 60, 60000):
            with socket.create_connection(("127.0.0.1", server.port)) as client, \
                    accepted_by(server.popen.pid, client) as other:
                def option(name):
                    return other.getsockopt(socket.IPPROTO_TCP, name)
                lost_after = option(socket.TCP_KEEPIDLE) + \
                    option(socket.TCP_KEEPCNT)*option(socket.TCP_KEEPINTVL)
                found = (other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), lost_after,
                         option(socket.TCP_USER_TIMEOUT))
        assert found == (1, 60, 60000)
    finally:
        server.kill()
