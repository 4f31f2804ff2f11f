"""Writes a model file: the header first, then the tensors, a few rows at a time."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf import GGUFValueType as V
from gguf.gguf_writer import WriterState

from .atomic import replacing
from .errors import DataError
from .model import Model, all_finite
from .progress import ProgressLine
from .types import byte_count, encode, type_of

VALUE_TYPES = {"u32": V.UINT32, "i32": V.INT32, "f32": V.FLOAT32, "bool": V.BOOL, "str": V.STRING}


def write_gguf(m: Model, path: Path, wanted: str) -> int:
    """Writes the model and returns the size of the file. On an error, no file is left."""
    with replacing(path) as file:
        write(m, file, wanted)
        return file.tell()


def encoded(name: str, piece: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """The bytes of some rows of a tensor."""
    with np.errstate(over="ignore"):
        data = encode(piece, kind)
    if data.dtype == np.float16 and not all_finite(data):
        raise DataError(f"tensor {name} has values outside the range of f16; use --type bf16")
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def write(m: Model, file: BinaryIO, wanted: str) -> None:
    writer = GGUFWriter(None, m.arch)
    for key, (kind, value) in m.kv.items():
        if key == "general.architecture":
            continue                       # GGUFWriter writes it first
        if kind.startswith("["):
            writer.add_key_value(key, value, V.ARRAY, sub_type=VALUE_TYPES[kind[1:-1]])
        else:
            writer.add_key_value(key, value, VALUE_TYPES[kind])
    kinds = [type_of(out.name, out.shape, wanted) for out in m.outs]
    sizes = [byte_count(out.shape, kind) for out, kind in zip(m.outs, kinds)]
    for out, kind, size in zip(m.outs, kinds, sizes):
        writer.add_tensor_info(out.name, out.shape, np.dtype(np.float32), size, raw_dtype=kind)
    total, done = max(sum(sizes), 1), 0
    writer.fout, writer.state = [file], WriterState.EMPTY      # the file is already open
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with ProgressLine() as progress:
        for out, kind, size in zip(m.outs, kinds, sizes):
            writer.write_padding(file, file.tell())
            for piece in out.pieces():
                # not write_tensor_data: numpy's tofile() does not tell why a write failed
                file.write(encoded(out.name, piece, kind))
            writer.write_padding(file, size)
            for source in out.sources:
                source.release()
            done += size
            progress.draw_share(done, total, out.name)
