"""Reads files of torch.save (.bin, .pt, .pth) without torch and without executing anything.

A pickle is a program. The interpreter below knows the opcodes that torch writes. GLOBAL yields a
marker, never an imported object, and only for the names listed here. Tensors become views of the
memory-mapped file.
"""

import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np

from ..errors import SHOWN, DataError
from .tensor import FLOAT_DTYPES, MAX_RANK, Tensor, map_file

# dtype name, bytes per element, torch.<dtype>, storage class
TORCH_TYPES = (
    ("F32",  4, "float32",  "FloatStorage"),
    ("F16",  2, "float16",  "HalfStorage"),
    ("BF16", 2, "bfloat16", "BFloat16Storage"),
    ("F64",  8, "float64",  "DoubleStorage"),
    ("I64",  8, "int64",    "LongStorage"),
    ("I32",  4, "int32",    "IntStorage"),
    ("I16",  2, "int16",    "ShortStorage"),
    ("I8",   1, "int8",     "CharStorage"),
    ("U8",   1, "uint8",    "ByteStorage"),
    ("BOOL", 1, "bool",     "BoolStorage"),
)
DTYPES = {dtype: (name, size) for name, size, dtype, _ in TORCH_TYPES}
STORAGES = {storage: (name, size) for name, size, _, storage in TORCH_TYPES}
UNTYPED = {"UntypedStorage": ("U8", 1)}

ALLOWED = {
    "collections": {"OrderedDict"},
    "torch": {*STORAGES, *DTYPES, "Size", "device"},
    "torch.storage": {*UNTYPED, "TypedStorage"},
    "torch._utils": {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3",
                     "_rebuild_parameter", "_rebuild_parameter_with_state"},
    "torch._tensor": {"_rebuild_from_type_v2"},
    "torch.nn.parameter": {"Parameter"},
    "torch.serialization": {"_get_layout"},
    "_codecs": {"encode"},
}

# keys under which training programs save the state dict
NESTED = ("model", "state_dict", "model_state_dict")

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


@dataclass(frozen=True)
class Global:
    module: str
    name: str


@dataclass
class Storage:
    dtype: str
    itemsize: int
    key: str
    numel: int
    offset: int = 0                        # elements, for views of legacy files


@dataclass
class TensorRecord:
    storage: Storage
    dtype: str
    itemsize: int
    offset: int                            # elements
    shape: tuple[int, ...]
    stride: tuple[int, ...]                # elements


class Mark:
    pass


SCALARS = (str, bytes, int, float, type(None))
MAX_KEY = 16                               # entries of a tuple that is a key


def is_key(x: Any) -> bool:
    """A key that is hashed in bounded time. Nested pairs that share their parts are not: a pickle
    of 230 bytes can describe 2^60 leaves."""
    return isinstance(x, (*SCALARS, Global)) or (
        isinstance(x, tuple) and len(x) <= MAX_KEY and all(isinstance(y, SCALARS) for y in x))


class Unpickler:
    """Pickle protocol 2 as torch writes it (its weights-only subset), and a few opcodes of
    protocol 4. Time and memory are linear in the size of the pickle."""

    allowed = ALLOWED
    next_step = "; save the weights alone with torch: torch.save(model.state_dict(), 'weights.pth')"

    def __init__(self, data, at: int, where: str, persistent: Callable[[tuple], Storage]):
        self.data, self.at, self.where, self.persistent = data, at, where, persistent
        self.copied = 0                    # entries of containers

    def fail(self, what: str):
        raise DataError(f"{self.where}: {what} at byte {self.at} of the pickle")

    def bytes(self, n: int) -> bytes:
        piece = self.data[self.at : self.at + n]
        if n < 0 or len(piece) != n:
            self.fail("the pickle ends early")
        self.at += n
        return piece

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            self.fail("the pickle ends early")
        text = self.bytes(end - self.at).decode("utf-8", "replace")
        self.at += 1
        return text

    def uint(self, n: int) -> int:
        return int.from_bytes(self.bytes(n), "little")

    def signed(self, n: int) -> int:
        return int.from_bytes(self.bytes(n), "little", signed=True)

    def load(self) -> Any:
        stack: list[Any] = []
        memo: dict[int, Any] = {}

        def pop():
            if not stack:
                self.fail("the stack is empty")
            return stack.pop()

        def pop_mark() -> list:
            for i in range(len(stack) - 1, -1, -1):
                if isinstance(stack[i], Mark):
                    items = stack[i + 1 :]
                    del stack[i:]
                    return items
            self.fail("a mark is missing")

        def container(kind):
            if not stack or not isinstance(stack[-1], kind):
                self.fail(f"expected a {kind.__name__}")
            return stack[-1]

        def set_items(items: list):
            if len(items) % 2:
                self.fail("a key without a value")
            target = container(dict)
            for key, value in zip(items[::2], items[1::2]):
                target[self.key(key)] = value

        def text(n: int) -> str:
            try:
                return self.bytes(n).decode("utf-8")
            except UnicodeDecodeError:
                self.fail("a text that is not UTF-8")

        while True:
            op = self.bytes(1)[0]
            match op:
                case 0x80: self.uint(1)                                     # PROTO
                case 0x95: self.uint(8)                                     # FRAME
                case 0x2E: return pop()                                     # STOP
                case 0x28: stack.append(Mark())                             # MARK
                case 0x63: stack.append(self.named(self.line(), self.line()))   # GLOBAL
                case 0x93:                                                  # STACK_GLOBAL
                    name, module = pop(), pop()
                    stack.append(self.named(module, name))
                case 0x52:                                                  # REDUCE
                    args, fn = pop(), pop()
                    stack.append(self.call(fn, args))
                case 0x81:                                                  # NEWOBJ
                    args, fn = pop(), pop()
                    stack.append(self.call(fn, args))
                case 0x62:                                                  # BUILD
                    state = pop()
                    self.build(container(object), state)
                case 0x51: stack.append(self.persist(pop()))                # BINPERSID
                case 0x7D: stack.append({})
                case 0x5D: stack.append([])
                case 0x29: stack.append(())
                case 0x8F: stack.append(set())
                case 0x74: stack.append(tuple(pop_mark()))                  # TUPLE
                case 0x85: stack.append((pop(),))
                case 0x86:
                    b, a = pop(), pop()
                    stack.append((a, b))
                case 0x87:
                    c, b, a = pop(), pop(), pop()
                    stack.append((a, b, c))
                case 0x73:                                                  # SETITEM
                    value, key = pop(), pop()
                    set_items([key, value])
                case 0x75: set_items(pop_mark())                            # SETITEMS
                case 0x61:                                                  # APPEND
                    value = pop()
                    container(list).append(value)
                case 0x65:                                                  # APPENDS
                    items = pop_mark()
                    container(list).extend(items)
                case 0x90:                                                  # ADDITEMS
                    items = pop_mark()
                    hashable = (str, int, float, bytes)
                    container(set).update(x for x in items if isinstance(x, hashable))
                case 0x58: stack.append(text(self.uint(4)))                 # BINUNICODE
                case 0x8C: stack.append(text(self.uint(1)))                 # SHORT_BINUNICODE
                case 0x55:                                                  # SHORT_BINSTRING
                    stack.append(self.bytes(self.uint(1)).decode("latin-1"))
                case 0x42: stack.append(self.bytes(self.uint(4)))           # BINBYTES
                case 0x43: stack.append(self.bytes(self.uint(1)))           # SHORT_BINBYTES
                case 0x4A: stack.append(self.signed(4))                        # BININT
                case 0x4B: stack.append(self.uint(1))
                case 0x4D: stack.append(self.uint(2))
                case 0x8A: stack.append(self.signed(self.uint(1)))             # LONG1
                case 0x47:                                                  # BINFLOAT, big-endian
                    stack.append(struct.unpack(">d", self.bytes(8))[0])
                case 0x4E: stack.append(None)
                case 0x88: stack.append(True)
                case 0x89: stack.append(False)
                case 0x71 | 0x72 | 0x94:                       # BINPUT, LONG_BINPUT, MEMOIZE
                    index = len(memo) if op == 0x94 else self.uint(1 if op == 0x71 else 4)
                    if not stack:
                        self.fail("the stack is empty")
                    memo[index] = stack[-1]
                case 0x68 | 0x6A:                                           # BINGET, LONG_BINGET
                    index = self.uint(1 if op == 0x68 else 4)
                    if index not in memo:
                        self.fail(f"memo {index} is not set")
                    stack.append(memo[index])
                case _: self.fail(f"opcode 0x{op:02x} is not allowed")

    def key(self, x: Any) -> Any:
        if not is_key(x):
            self.fail(f"a {type(x).__name__} as a key; expected a name or a number")
        return x

    def copy(self, x: Any) -> list:
        """The entries of a list or a tuple. A pickle cannot repeat them more often than it has
        bytes."""
        if not isinstance(x, (list, tuple)):
            self.fail(f"a {type(x).__name__} in place of a list")
        self.copied += len(x)
        if self.copied > len(self.data):
            self.fail("too many copies")
        return list(x)

    def named(self, module, name) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            self.fail("a name that is not a string")
        if name not in self.allowed.get(module, ()):
            raise DataError(f"{self.where}: the pickle refers to {module[:SHOWN]}.{name[:SHOWN]}; "
                            f"refused, because weights do not need it{self.next_step}")
        return Global(module, name)

    def build(self, target: Any, state: Any) -> None:
        """Attributes such as _metadata are not weights."""

    def persist(self, pid) -> Storage:
        if (not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage"
                or not isinstance(pid[1], Global)):
            self.fail("an unknown persistent id")
        if not isinstance(pid[2], str) or not isinstance(pid[4], int) or pid[4] < 0:
            self.fail("a malformed storage")
        return self.persistent(pid)

    def call(self, fn, args):
        if not isinstance(fn, Global) or not isinstance(args, tuple):
            self.fail("a call of something other than a listed name")
        match fn.name:
            case "OrderedDict":
                pairs = [self.copy(pair) for pair in self.copy(args[0])] if args else []
                if any(len(pair) != 2 for pair in pairs):
                    self.fail("a malformed dictionary")
                return {self.key(key): value for key, value in pairs}
            case "_rebuild_tensor_v2" | "_rebuild_tensor" | "_rebuild_tensor_v3":
                return self.tensor(fn.name, args)
            case "_rebuild_parameter" | "_rebuild_parameter_with_state" | "Parameter":
                return args[0] if args else self.fail("a parameter without data")
            case "_rebuild_from_type_v2":
                if len(args) < 3 or not isinstance(args[2], tuple):
                    self.fail("a malformed tensor")
                return self.call(args[0], args[2])
            case "Size":
                return tuple(self.copy(args[0])) if args else ()
            case _:
                return None                # device, layout, encoded strings: not weights

    def tensor(self, kind: str, args: tuple) -> TensorRecord:
        if len(args) < 4 or not isinstance(args[0], Storage):
            self.fail("a malformed tensor")
        storage, offset, shape, stride = args[:4]
        dtype, itemsize = storage.dtype, storage.itemsize
        if kind == "_rebuild_tensor_v3":
            if len(args) < 7 or not isinstance(args[6], Global) or args[6].name not in DTYPES:
                self.fail("a tensor without a known dtype")
            dtype, itemsize = DTYPES[args[6].name]
        if (not isinstance(shape, tuple) or not isinstance(stride, tuple)
                or len(shape) > MAX_RANK or len(stride) > MAX_RANK):
            self.fail("a malformed tensor")
        if (not all(isinstance(x, int) and 0 <= x < 2**62 for x in (offset, *shape, *stride))
                or len(shape) != len(stride)):
            self.fail("a malformed tensor")
        if all(shape):
            last = offset + sum((n - 1) * s for n, s in zip(shape, stride))
            room = storage.numel * storage.itemsize // itemsize
            if last >= room:
                self.fail(f"a tensor that reaches element {last} of a storage of {room}")
        return TensorRecord(storage, dtype, itemsize, offset + storage.offset, shape, stride)


def read_torch(path: Path) -> dict[str, Tensor]:
    data = map_file(path, 4, "torch")
    read = {b"PK": _read_zip, b"\x80\x02": _read_legacy}.get(data[:2])
    if read is None:
        raise DataError(f"{path}: starts with {bytes(data[:4])!r}; expected a torch file (zip or "
                        "pickle)")
    try:
        obj, starts = read(path, data)
    except RecursionError:
        raise DataError(f"{path}: the pickle is nested too deeply") from None
    return _collect(path, data, obj, starts)


def _collect(path: Path, data, obj, starts: dict[str, int]) -> dict[str, Tensor]:
    for _ in NESTED:
        if isinstance(obj, dict) and not any(isinstance(v, TensorRecord) for v in obj.values()):
            obj = next((obj[key] for key in NESTED if isinstance(obj.get(key), dict)), obj)
    if not isinstance(obj, dict):
        raise DataError(f"{path}: contains a {type(obj).__name__}; expected names and tensors")
    tensors = {}
    for name, record in obj.items():
        # other entries, such as step counters, are not weights
        if isinstance(name, str) and isinstance(record, TensorRecord):
            count, room = math.prod(record.shape), record.storage.numel
            if count * record.itemsize > room * record.storage.itemsize:
                raise DataError(f"{path}: tensor {name} has {count} elements in a storage of "
                                f"{room}")
            start = starts[record.storage.key]
            tensors[name] = Tensor(name, record.shape, record.dtype, str(path),
                                   _reader(data, start, record), data)
    if not tensors:
        raise DataError(f"{path}: no tensors at the top level or under {', '.join(NESTED)}")
    return tensors


def _reader(data, start: int, r: TensorRecord):
    def read():
        kind = FLOAT_DTYPES[r.dtype]
        if not all(r.shape):
            return np.empty(r.shape, kind)
        count = 1 + sum((n - 1) * s for n, s in zip(r.shape, r.stride))
        begin = start + r.offset * r.itemsize
        flat = np.frombuffer(data, kind, count, begin)
        strides = tuple(s * r.itemsize for s in r.stride)
        view = np.lib.stride_tricks.as_strided(flat, r.shape, strides, writeable=False)
        return np.ascontiguousarray(view)

    return read


def _storage_type(where: str, g: Global) -> tuple[str, int]:
    known = STORAGES | UNTYPED
    if g.name not in known:
        raise DataError(f"{where}: the storage type {g.module}.{g.name} is unknown")
    return known[g.name]


# -- zip: stored members under one root

def read_record(path: str, file, data: bytes) -> tuple[Any, Callable[[], np.ndarray]]:
    """A file of torch.save that is a single tensor: (record, function that reads it). The record is
    something else if the file is."""
    obj, starts = _read_zip(path, data, file)
    if not isinstance(obj, TensorRecord) or obj.dtype not in FLOAT_DTYPES:
        return obj, lambda: np.empty(0)
    return obj, _reader(data, starts[obj.storage.key], obj)


def _read_zip(path: Path | str, data, file=None) -> tuple[Any, dict[str, int]]:
    """data: the bytes of `file`, or of the file at `path`."""
    members = _zip_members(path, data, file)
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise DataError(f"{path}: {len(pickles)} members are named data.pkl; expected one")
    root = pickles[0][: -len("data.pkl")]
    if root + "byteorder" in members:
        start, size = members[root + "byteorder"]
        order = bytes(data[start : start + size])
        if order != b"little":
            raise DataError(f"{path}: byteorder is {order!r}; expected 'little'")
    starts: dict[str, int] = {}

    def persistent(pid) -> Storage:
        dtype, itemsize = _storage_type(str(path), pid[1])
        key, numel = pid[2], pid[4]
        member = members.get(f"{root}data/{key}")
        if member is None:
            raise DataError(f"{path}: storage {key} is missing")
        if numel * itemsize != member[1]:
            raise DataError(f"{path}: storage {key} has {member[1]} bytes; "
                            f"expected {numel * itemsize}")
        starts[key] = member[0]
        return Storage(dtype, itemsize, key, numel)

    start, size = members[pickles[0]]
    unpickler = Unpickler(data[start : start + size], 0, f"{path}: data.pkl", persistent)
    return unpickler.load(), starts


def _zip_members(path: Path | str, data, file=None) -> dict[str, tuple[int, int]]:
    """name -> (first byte, length), with the sizes of the central directory: local headers lack
    them."""
    try:
        with zipfile.ZipFile(file or path) as z:
            infos = z.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as e:
        raise DataError(f"{path}: not a complete zip file: {e} (truncated?)") from None
    members = {}
    for info in infos:
        at = info.header_offset
        where = f"{path}: member {info.filename}"
        if info.compress_type != 0 or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise DataError(f"{where} is compressed or encrypted; expected stored")
        if data[at : at + 4] != b"PK\x03\x04":
            raise DataError(f"{where} has no header at byte {at}")
        # the local extra field contains the padding that aligns the data
        name_length, extra_length = struct.unpack("<HH", data[at + 26 : at + 30])
        start = at + 30 + name_length + extra_length
        if start + info.file_size > len(data):
            raise DataError(f"{where} extends past the end of the file (truncated?)")
        members[info.filename] = (start, info.file_size)
    return members


# -- before torch 1.6: five pickles, then the storages in the order that the last one lists

def _read_legacy(path: Path, data) -> tuple[Any, dict[str, int]]:
    where = str(path)
    storages: dict[str, Storage] = {}

    def persistent(pid) -> Storage:
        dtype, itemsize = _storage_type(where, pid[1])
        view = pid[5] if len(pid) == 6 else None
        root = storages.setdefault(pid[2], Storage(dtype, itemsize, pid[2], pid[4]))
        if view is None:
            return root
        if (not isinstance(view, tuple) or len(view) != 3 or not isinstance(view[1], int)
                or not isinstance(view[2], int) or view[1] < 0
                or view[1] + view[2] > root.numel):
            raise DataError(f"{path}: a malformed view of storage {pid[2]}")
        return Storage(dtype, itemsize, pid[2], view[2], view[1])

    at = 0
    parts = []
    for _ in range(5):
        u = Unpickler(data, at, where, persistent)
        parts.append(u.load())
        at = u.at
    magic, protocol, info, obj, keys = parts
    if magic != LEGACY_MAGIC or protocol != LEGACY_PROTOCOL:
        raise DataError(f"{path}: not written by torch; expected its magic number and protocol "
                        f"{LEGACY_PROTOCOL}")
    if not isinstance(info, dict) or info.get("little_endian") is not True:
        raise DataError(f"{path}: the byte order is not little-endian")
    if (not isinstance(keys, list) or not all(isinstance(k, str) for k in keys)
            or set(keys) != set(storages)):
        raise DataError(f"{path}: the list of storages does not match the tensors")
    starts = {}
    for key in keys:
        s = storages[key]
        numel = int.from_bytes(data[at : at + 8], "little")
        starts[key] = at + 8
        at += 8 + s.numel * s.itemsize
        if numel != s.numel or at > len(data):
            raise DataError(f"{path}: storage {key} has {numel} elements; expected {s.numel}, all "
                            "of them within the file (truncated?)")
    return obj, starts
