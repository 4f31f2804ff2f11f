"""Reads checkpoints of torch.distributed.checkpoint without torch: a folder with `.metadata`, and
`.distcp` files that hold the chunks of the tensors.

`.metadata` is a pickle: the shape, type and chunks of every tensor, and for every chunk the file
and the bytes in which torch.save stored it. The interpreter of torch_pickle.py reads both.
"""

import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, shown
from .tensor import FLOAT_DTYPES, MAX_RANK, Tensor, map_file
from .torch_pickle import ALLOWED, DTYPES, NESTED, Global, TensorRecord, Unpickler, read_record

METADATA = ".metadata"
SUFFIX = ".distcp"

# classes whose instances become a Record
CLASSES = {"Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
           "TensorProperties", "MetadataIndex", "StorageMeta", "_StorageInfo", "_StoragePrefix"}
PATHS = {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"}
ALLOWED_HERE = ALLOWED | {
    "torch.distributed.checkpoint.metadata": CLASSES | {"_MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": CLASSES,
    # before torch 2.3
    "torch.distributed._shard.sharded_tensor.metadata": {"TensorProperties", "MEM_FORMAT_ENCODING"},
    # name of the folder; not read
    "pathlib": PATHS,
    "pathlib._local": PATHS,
}

Index = tuple[int, ...]


@dataclass
class Record:
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    state: Any = None                      # of an object that has no dictionary

    def get(self, name: str) -> Any:
        return self.fields.get(name)


class MetadataUnpickler(Unpickler):
    allowed = ALLOWED_HERE
    next_step = ""

    def call(self, fn, args):
        if isinstance(fn, Global) and fn.name in CLASSES:
            return Record(fn.name)
        return super().call(fn, args)

    def build(self, target, state):
        if isinstance(target, Record):
            target.state = state
            target.fields = state if isinstance(state, dict) else {}

    def key(self, x):
        """A MetadataIndex is a key: the name of a tensor and the offset of a chunk."""
        if not isinstance(x, Record):
            return super().key(x)
        name, offset = x.get("fqn"), x.get("offset")
        if not isinstance(name, str) or not (offset is None or is_index(offset)):
            self.fail("a malformed key")
        return name, offset


@dataclass(frozen=True)
class Chunk:
    offset: Index
    shape: Index
    file: Path
    begin: int                             # bytes
    end: int


def is_index(x: Any) -> bool:
    return (isinstance(x, tuple) and len(x) <= MAX_RANK
            and all(isinstance(n, int) and 0 <= n < 2**62 for n in x))


def read_distcp(folder: Path) -> dict[str, Tensor]:
    path = folder / METADATA
    data = map_file(path, 4, METADATA)

    def refuse(_):
        raise DataError(f"{path}: contains a tensor; expected none")

    try:
        root = MetadataUnpickler(data, 0, str(path), refuse).load()
    except RecursionError:
        raise DataError(f"{path}: the pickle is nested too deeply") from None
    entries = root.get("state_dict_metadata") if isinstance(root, Record) else None
    stored = root.get("storage_data") if isinstance(root, Record) else None
    if not isinstance(entries, dict) or not isinstance(stored, dict):
        raise DataError(f"{path}: no state_dict_metadata and storage_data; expected the metadata "
                        "of torch.distributed.checkpoint")
    files: dict[str, int] = {}             # name -> size
    tensors = {}
    for key, name in _weights(entries, root.get("planner_data")).items():
        tensors[name] = _tensor(folder, path, key, name, entries[key], stored, files)
    if not tensors:
        raise DataError(f"{path}: no tensors at the top level or under {', '.join(NESTED)}")
    return tensors


def _weights(entries: dict, paths: Any) -> dict[str, str]:
    """Keys of the model's tensors -> their names. The planner keeps the path of each key: (model,
    NAME), or (NAME) if the model was saved at the top level. All other tensors belong to the
    optimizer."""
    found: dict[int, dict[str, str]] = {1: {}, 2: {}}
    for key, entry in entries.items():
        if isinstance(key, str) and isinstance(entry, Record) and \
                entry.kind == "TensorStorageMetadata":
            path = paths.get(key) if isinstance(paths, dict) else None
            path = path if isinstance(path, tuple) and path else (key,)
            if len(path) == 1 and isinstance(path[0], str):
                found[1][key] = path[0]
            elif len(path) == 2 and path[0] in NESTED and isinstance(path[1], str):
                found[2][key] = path[1]
    return found[2] or found[1]


def _tensor(folder: Path, path: Path, key: str, name: str, entry: Record, stored: dict,
            files: dict[str, int]) -> Tensor:
    where = f"{path}: tensor {key}"
    shape, chunks, properties = (entry.get(x) for x in ("size", "chunks", "properties"))
    if not is_index(shape) or not isinstance(chunks, list) or not isinstance(properties, Record):
        raise DataError(f"{where} is malformed")
    state = properties.state
    kind = state[0] if isinstance(state, tuple) and state else properties.get("dtype")
    if not isinstance(kind, Global) or kind.name not in DTYPES:
        raise DataError(f"{where} has no known type")
    dtype, itemsize = DTYPES[kind.name]
    found = {}
    for chunk in chunks:
        offset = chunk.get("offsets") if isinstance(chunk, Record) else None
        size = chunk.get("sizes") if isinstance(chunk, Record) else None
        if (not is_index(offset) or not is_index(size) or len(offset) != len(shape)
                or len(size) != len(shape)):
            raise DataError(f"{where}: a chunk is malformed")
        if not all(size):
            continue                       # of a process that had nothing left to hold
        if offset in found:
            raise DataError(f"{where}: two chunks start at {list(offset)}")
        chunk = _chunk(folder, where, stored.get((key, offset)), offset, size, files)
        if chunk.end - chunk.begin < math.prod(size) * itemsize:
            raise DataError(f"{where}: the chunk at {list(offset)} has shape {list(size)} in "
                            f"{chunk.end - chunk.begin} bytes")
        found[offset] = chunk
    if all(shape):
        _check_tiling(where, shape, found)
    parts = list(found.values())
    return Tensor(name, shape, dtype, str(path), lambda: _read(where, shape, dtype, parts))


def _chunk(folder: Path, where: str, info: Any, offset: Index, shape: Index,
           files: dict[str, int]) -> Chunk:
    if not isinstance(info, Record):
        raise DataError(f"{where}: the chunk at {list(offset)} is stored nowhere")
    name, begin, length = (info.get(x) for x in ("relative_path", "offset", "length"))
    if not isinstance(name, str) or "/" in name or "\\" in name or name in ("", ".", ".."):
        raise DataError(f"{where}: the file name is {shown(name)}; expected a plain file name")
    if info.get("transform_descriptors"):
        raise DataError(f"{where}: stored with the transformations "
                        f"{shown(info.get('transform_descriptors'))}; expected none")
    if not is_index((begin, length)):
        raise DataError(f"{where}: the chunk at {list(offset)} is malformed")
    file = folder / name
    if name not in files:
        if not file.is_file():
            raise DataError(f"{file}: this file of {METADATA} is missing")
        files[name] = file.stat().st_size
    if begin + length > files[name]:
        raise DataError(f"{where}: the chunk at {list(offset)} ends at byte {begin + length} of "
                        f"{file}, which has {files[name]} (truncated?)")
    return Chunk(offset, shape, file, begin, begin + length)


def _check_tiling(where: str, shape: Index, chunks: dict[Index, Chunk]) -> None:
    """The chunks form a grid that covers the tensor: along every dimension they are cut at the same
    places."""
    cuts = [sorted({offset[d] for offset in chunks}) for d in range(len(shape))]
    ends = [dict(zip(c, [*c[1:], n])) for c, n in zip(cuts, shape)]
    fits = all(chunk.offset[d] + chunk.shape[d] == ends[d][chunk.offset[d]]
               for chunk in chunks.values() for d in range(len(shape)))
    if (not chunks or any(c[0] != 0 for c in cuts) or not fits
            or math.prod(len(c) for c in cuts) != len(chunks)):
        raise DataError(f"{where}: {len(chunks)} chunks do not cover the shape {list(shape)}")


def _read(where: str, shape: Index, dtype: str, chunks: list[Chunk]) -> np.ndarray:
    out = np.empty(shape, FLOAT_DTYPES[dtype])
    for chunk in chunks:
        place = tuple(slice(o, o + n) for o, n in zip(chunk.offset, chunk.shape))
        out[place] = _read_chunk(where, dtype, chunk).reshape(chunk.shape)
    return out


def _read_chunk(where: str, dtype: str, chunk: Chunk) -> np.ndarray:
    """A chunk is a whole file of torch.save inside of a .distcp file."""
    name = f"{chunk.file} at byte {chunk.begin}"
    with memoryview(map_file(chunk.file, 4, "torch")) as view:
        data = bytes(view[chunk.begin : chunk.end])
    record, read = read_record(name, io.BytesIO(data), data)
    if not isinstance(record, TensorRecord) or (record.shape, record.dtype) != (chunk.shape, dtype):
        found = (f"{record.dtype} {list(record.shape)}" if isinstance(record, TensorRecord)
                 else f"a {type(record).__name__}")
        raise DataError(f"{where}: {name} has {found}; expected {dtype} {list(chunk.shape)}")
    return read()
