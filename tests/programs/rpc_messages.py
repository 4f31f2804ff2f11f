"""Messages of ggml's RPC protocol, byte by byte, for tests of lrnn-rpc-server."""

import itertools
import re
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("ALLOC_BUFFER", "GET_ALIGNMENT", "GET_MAX_SIZE", "BUFFER_GET_BASE", "FREE_BUFFER",
            "BUFFER_CLEAR", "SET_TENSOR", "SET_TENSOR_HASH", "GET_TENSOR", "COPY_TENSOR",
            "GRAPH_COMPUTE", "GET_DEVICE_MEMORY", "INIT_TENSOR", "GET_ALLOC_SIZE", "HELLO",
            "DEVICE_COUNT", "GRAPH_RECOMPUTE", "MEMSET_TENSOR")

F32, F16, Q4_0, REMOVED_TYPE, Q8_0, Q8_K, I32, I64, BF16 = 0, 1, 2, 4, 8, 15, 26, 27, 30
TYPE_SIZES = {F32: 4, F16: 2, Q4_0: 18, Q8_0: 34, Q8_K: 292, I32: 4, I64: 8, BF16: 2}
BLOCK_SIZES = {Q4_0: 32, Q8_0: 32, Q8_K: 256}
HUGE = 2**64 - 1

MAX_SRC = 10
TENSOR = struct.Struct(f"<QIQ4I4II16ii{MAX_SRC}QQQQ64si")


def op_numbers(ggml):
    """The numbers of ggml's ops, by name, from the header of the build."""
    header = (Path(ggml) / "include/ggml.h").read_text()
    body = re.search(r"enum ggml_op \{(.*?)\};", header, re.DOTALL).group(1)
    names = re.findall(r"^\s*GGML_OP_(\w+)", body, re.MULTILINE)
    return {name: i for i, name in enumerate(names)}


@dataclass
class Tensor:
    """A tensor as a client describes it. Strides are those of a contiguous tensor by default."""
    ne: tuple
    buffer: int = 0
    data: int = 0
    type: int = F32
    nb: tuple = None
    op: int = 0
    params: bytes = b""
    flags: int = 16  # computed
    src: tuple = ()
    view_src: int = 0
    view_offs: int = 0
    name: bytes = b"x"
    use_count: int = 1
    id: int = field(default_factory=itertools.count(1).__next__)

    def __post_init__(self):
        self.ne = (*self.ne, 1, 1, 1)[:4]
        if self.nb is None:
            first = TYPE_SIZES.get(self.type, 4)
            row = first * (self.ne[0] // BLOCK_SIZES.get(self.type, 1))
            nb = [first, row, row * self.ne[1], row * self.ne[1] * self.ne[2]]
            self.nb = tuple(n % 2**32 for n in nb)

    @property
    def bytes(self):
        return self.nb[3] * self.ne[3]

    def pack(self):
        params = struct.unpack("<16i", self.params.ljust(64, b"\0"))
        src = [s.id if isinstance(s, Tensor) else s for s in self.src]
        src += [0] * (MAX_SRC - len(src))
        view = self.view_src.id if isinstance(self.view_src, Tensor) else self.view_src
        return TENSOR.pack(self.id, self.type, self.buffer, *self.ne, *self.nb, self.op, *params,
                           self.flags, *src, view, self.view_offs, self.data, self.name,
                           self.use_count)


def graph(tensors, nodes, device=0, n_nodes=None, n_tensors=None):
    """The body of GRAPH_COMPUTE."""
    ids = [t.id if isinstance(t, Tensor) else t for t in nodes]
    count = len(ids) if n_nodes is None else n_nodes
    out = struct.pack(f"<II{len(ids)}Q", device, count, *ids)
    out += struct.pack("<I", len(tensors) if n_tensors is None else n_tensors)
    return out + b"".join(t.pack() for t in tensors)


class Client:
    """A connection after the handshake, with a buffer of the server and its address."""

    def __init__(self, port, size=1 << 16):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send("HELLO", bytes(24))
        assert len(self.answer()) == 28
        self.buffer, self.size = self.alloc(size)
        assert self.buffer != 0 and self.size >= size
        self.base = self.get_base(self.buffer)
        self.used = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, command, body=b"", size=None):
        number = COMMANDS.index(command) if isinstance(command, str) else command
        self.sock.sendall(struct.pack("<BQ", number, len(body) if size is None else size) + body)

    def receive(self, n):
        out = b""
        while len(out) < n:
            part = self.sock.recv(n - len(out))
            if not part:
                raise ConnectionError("closed by the server")
            out += part
        return out

    def answer(self):
        return self.receive(struct.unpack("<Q", self.receive(8))[0])

    def alloc(self, size, device=0):
        self.send("ALLOC_BUFFER", struct.pack("<IQ", device, size))
        return struct.unpack("<QQ", self.answer())

    def get_base(self, buffer):
        self.send("BUFFER_GET_BASE", struct.pack("<Q", buffer))
        return struct.unpack("<Q", self.answer())[0]

    def tensor(self, *ne, **fields):
        """A tensor at the next free place of the buffer."""
        t = Tensor(ne, self.buffer, self.base + self.used, **fields)
        self.used += (t.bytes + 63) // 64 * 64
        assert self.used <= self.size, "the buffer of the test is full"
        return t

    def set(self, tensor, data, offset=0, cache=0):
        self.send("SET_TENSOR", tensor.pack() + struct.pack("<BQ", cache, offset) + data)

    def get(self, tensor, offset=0, size=None):
        size = tensor.bytes if size is None else size
        self.send("GET_TENSOR", tensor.pack() + struct.pack("<QQ", offset, size))
        return self.answer()

    def alive(self):
        """True if the server still answers this client."""
        try:
            self.send("DEVICE_COUNT")
            return self.answer() == struct.pack("<I", 1)
        except OSError:
            return False
