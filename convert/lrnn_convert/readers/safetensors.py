"""safetensors: u64 header length, JSON header, data.

The whole header is checked first: the tensors must tile the data without holes, overlaps or
trailing bytes. A truncated or edited file is detected here, not as a strange model later.
"""

import json
import math
from pathlib import Path

import numpy as np

from ..errors import DataError, shown
from .tensor import FLOAT_DTYPES, MAX_RANK, Tensor, map_file

HEADER_MAX = 100_000_000

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
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


def _are_sizes(x) -> bool:
    return isinstance(x, list) and len(x) <= MAX_RANK and all(map(_is_size, x))


def _read_header(path: Path, data, n: int) -> dict:
    text = data[8 : 8 + n]
    if text[:1] != b"{":
        raise DataError(f"{path}: the header starts with {text[:1]!r}; expected '{{'")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: the header is not valid JSON: {e}") from None
    meta = header.pop("__metadata__", {})
    if not isinstance(meta, dict) or not all(isinstance(v, str) for v in meta.values()):
        raise DataError(f"{path}: __metadata__ does not map strings to strings")
    return header


def read_safetensors(path: Path) -> dict[str, Tensor]:
    data = map_file(path, 8, "safetensors")
    n = int.from_bytes(data[:8], "little")
    if n > HEADER_MAX or 8 + n > len(data):
        raise DataError(f"{path}: the header claims {n} bytes; the file has {len(data) - 8} after "
                        "its first 8 (truncated?)")
    spans = []
    tensors = {}
    for name, info in _read_header(path, data, n).items():
        where = f"{path}: tensor {name}"
        if not isinstance(info, dict) or set(info) != {"dtype", "shape", "data_offsets"}:
            raise DataError(f"{where}: expected dtype, shape and data_offsets")
        dtype, shape, offsets = info["dtype"], info["shape"], info["data_offsets"]
        if not isinstance(dtype, str) or dtype not in BITS:
            raise DataError(f"{where}: dtype is {shown(dtype)}, which is unknown")
        if not _are_sizes(shape):
            raise DataError(f"{where}: shape is {shown(shape)}; expected a list of at most "
                            f"{MAX_RANK} sizes")
        if not _are_sizes(offsets) or len(offsets) != 2:
            raise DataError(f"{where}: data_offsets is {shown(offsets)}; expected a pair of sizes")
        begin, end = offsets
        bits = BITS[dtype] * math.prod(shape)
        if bits % 8 or begin + bits // 8 != end:
            raise DataError(f"{where}: {end - begin} bytes for {dtype} {shown(shape)}; "
                            f"expected {bits // 8}")
        spans.append((begin, end, name))
        tensors[name] = Tensor(name, tuple(shape), dtype, str(path),
                               _reader(data, 8 + n + begin, dtype, tuple(shape)), data)

    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise DataError(f"{path}: tensor {name} starts at byte {begin} of the data; expected "
                            f"{at} (a hole or an overlap)")
        at = end
    if at != len(data) - 8 - n:
        raise DataError(f"{path}: the header describes {at} bytes of data; the file has "
                        f"{len(data) - 8 - n} (truncated?)")
    return tensors


def _reader(data, start, dtype, shape):
    def read():
        # a view of the mapped file; numpy accepts offsets that are not aligned for the type
        count = math.prod(shape)
        kind = FLOAT_DTYPES[dtype]
        if count == 0:
            return np.empty(shape, kind)
        return np.frombuffer(data, kind, count, start).reshape(shape)

    return read
