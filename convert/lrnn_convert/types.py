"""Output types. Which tensors may leave F32 is one table, matrices.txt, which the quantiser reads too."""

import re
from importlib.resources import files

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import LlamaFileType as F
from gguf import quants

TYPES = {"f32": (T.F32, F.ALL_F32), "f16": (T.F16, F.MOSTLY_F16), "bf16": (T.BF16, F.MOSTLY_BF16), "q8_0": (T.Q8_0, F.MOSTLY_Q8_0)}

Q8_0_BLOCK = 32

_NAME = re.compile(r"(?:blk\.\d+\.)?(\w+)\.weight")


def _read_matrices() -> frozenset[str]:
    text = files(__package__).joinpath("matrices.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.split("\n") if line and not line.startswith("#"))


MATRICES = _read_matrices()


def type_of(name: str, shape: tuple[int, ...], wanted: str) -> T:
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in MATRICES:
        return T.F32
    if wanted == "q8_0" and shape[-1] % Q8_0_BLOCK:
        # a row must be whole blocks; F16 is the nearest type without blocks
        return T.F16
    return TYPES[wanted][0]


def encode(x: np.ndarray, kind: T) -> np.ndarray:
    return x if kind == T.F32 else quants.quantize(x, kind)


def byte_count(shape: tuple[int, ...], kind: T) -> int:
    n = int(np.prod(shape, dtype=np.int64))
    return {T.F32: 4 * n, T.F16: 2 * n, T.BF16: 2 * n, T.Q8_0: n // Q8_0_BLOCK * 34}[kind]
