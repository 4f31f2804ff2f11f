"""Lazy tensors and memory-mapped files."""

import math
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

from ..errors import DataError

FLOAT_DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"),
                "F64": np.dtype("<f8")}

MAX_RANK = 64                              # torch has no larger tensors
PIECE = 1 << 20                            # values of a tensor that are in memory as float32


def row_pieces(shape: tuple[int, ...]) -> Iterator[slice | EllipsisType]:
    """Indices of the rows of a tensor, of about PIECE values each. A vector is one piece."""
    if len(shape) < 2:
        yield ...
        return
    step = max(1, PIECE // max(1, math.prod(shape[1:])))
    yield from (slice(first, first + step) for first in range(0, shape[0], step))


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str                             # a key of FLOAT_DTYPES, or a type that no weight has
    file: str                              # for error messages
    read: Callable[[], np.ndarray]         # raw elements in this shape; BF16 as uint16
    mapped: mmap.mmap | None = None        # the file, if read() returns views of it

    def load(self) -> np.ndarray:
        """The values as float32. Exact for F32, F16 and BF16."""
        return self._floats(self.read())

    def pieces(self, part: Any = ...) -> Iterator[np.ndarray]:
        """The values of a part as float32, a few rows at a time. part: an index."""
        raw = self.read()[part]
        for rows in row_pieces(raw.shape):
            yield self._floats(raw[rows])
            self.release()

    def _floats(self, raw: np.ndarray) -> np.ndarray:
        if self.dtype == "BF16":
            # BF16 is the upper half of a float32
            bits = raw.astype(np.uint32)
            bits <<= np.uint32(16)
            return bits.view(np.float32)
        return np.asarray(raw, dtype=np.float32, order="C")

    def release(self) -> None:
        """Frees the pages of the file that were read. A large checkpoint does not fit into memory;
        views stay valid, since the pages are read again when somebody needs them."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


def map_file(path: Path, least: int, kind: str) -> mmap.mmap:
    size = os.path.getsize(path)
    if size < least:
        raise DataError(f"{path}: the file has {size} bytes; a {kind} file has at least {least}")
    with open(path, "rb") as f:
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
