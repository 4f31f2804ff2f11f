"""safetensors: u64 header length, JSON header, data.

The header is checked completely before anything is believed: the tensors must tile the data without holes, overlaps or
trailing bytes, so a truncated or edited file is noticed here and not as a strange model later.
"""

import json
import mmap
import os
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..transforms import size_of
from .tensor import FLOAT_DTYPES, Tensor

HEADER_MAX = 100_000_000

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}


def _no_duplicates(pairs):
    out = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f'the name "{key}" occurs twice')
        out[key] = value
    return out


def _is_size(x) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**63


def read_safetensors(path: Path) -> dict[str, Tensor]:
    size = os.path.getsize(path)
    if size < 8:
        raise DataError(f"{path}: the file has {size} bytes, a safetensors file has at least 8")
    with open(path, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    n = int.from_bytes(data[:8], "little")
    if n > HEADER_MAX or 8 + n > size:
        raise DataError(f"{path}: the header claims {n} bytes, the file has {size - 8} after its first 8 (truncated?)")
    text = data[8 : 8 + n]
    if text[:1] != b"{":
        raise DataError(f"{path}: the header starts with {text[:1]!r}, expected '{{'")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: the header is not valid JSON: {e}") from None

    meta = header.pop("__metadata__", {})
    if not isinstance(meta, dict) or not all(isinstance(v, str) for v in meta.values()):
        raise DataError(f"{path}: __metadata__ does not map strings to strings")

    spans = []
    tensors = {}
    for name, info in header.items():
        if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
            raise DataError(f"{path}: tensor {name}: expected dtype, shape and data_offsets")
        dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
        if dtype not in BITS:
            raise DataError(f"{path}: tensor {name}: unknown dtype {dtype!r}")
        if not isinstance(shape, list) or not all(map(_is_size, shape)):
            raise DataError(f"{path}: tensor {name}: shape {shape!r} is not a list of sizes")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
            raise DataError(f"{path}: tensor {name}: data_offsets {offsets!r} is not a pair of sizes")
        begin, end = offsets
        bits = BITS[dtype]
        for dim in shape:
            bits *= dim
        if bits % 8 or begin + bits // 8 != end:
            raise DataError(f"{path}: tensor {name}: {end - begin} bytes for {dtype} {shape}, expected {bits // 8}")
        spans.append((begin, end, name))
        tensors[name] = Tensor(name, tuple(shape), dtype, str(path), _reader(data, 8 + n + begin, dtype, tuple(shape)))

    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise DataError(f"{path}: tensor {name} starts at byte {begin} of the data, expected {at} (a hole or an overlap)")
        at = end
    if at != size - 8 - n:
        raise DataError(f"{path}: the header describes {at} bytes of data, the file has {size - 8 - n} (truncated?)")
    return tensors


def _reader(data, start, dtype, shape):
    def read():
        # a view of the mapped file; numpy copes with offsets that are not aligned for the element type
        count = size_of(shape)
        kind = FLOAT_DTYPES[dtype]
        return np.frombuffer(data, kind, count, start).reshape(shape) if count else np.empty(shape, kind)

    return read
