"""A tensor that is read when it is needed, and not kept."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str                             # F32 F16 BF16 F64, or another name that cannot be a weight
    file: str                              # for messages
    read: Callable[[], np.ndarray]         # raw elements in the shape above; BF16 as uint16

    def load(self) -> np.ndarray:
        """The values as float32. Exact for F32, F16 and BF16."""
        raw = self.read()
        if self.dtype == "BF16":
            # BF16 is the upper half of a float32
            bits = raw.astype(np.uint32)
            bits <<= np.uint32(16)
            return bits.view(np.float32)
        return np.ascontiguousarray(raw, dtype=np.float32).reshape(self.shape)


FLOAT_DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "F64": np.dtype("<f8")}
