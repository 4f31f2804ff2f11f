"""Types of tensors in the model file.

TYPES lists the types that --type offers. matrices.txt lists the tensors that --type applies to;
lrnn-quantize reads the same list.
"""

import re
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType, quants


@dataclass(frozen=True)
class Type:
    tensor: GGMLQuantizationType
    file_type: LlamaFileType               # general.file_type


TYPES = {
    "f32":  Type(GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "f16":  Type(GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "bf16": Type(GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16),
    "q8_0": Type(GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}

_NAME = re.compile(r"(?:blk\.\d+\.)?([\w.]+)\.weight")


def _read_matrices() -> frozenset[str]:
    text = files(__package__).joinpath("matrices.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.split("\n") if line and not line.startswith("#"))


MATRICES = _read_matrices()


def type_of(name: str, shape: tuple[int, ...], wanted: str) -> GGMLQuantizationType:
    """The type in which tensor `name` is stored with --type `wanted`."""
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in MATRICES:
        return GGMLQuantizationType.F32
    kind = TYPES[wanted].tensor
    block_length, _ = GGML_QUANT_SIZES[kind]
    # a row consists of whole blocks; F16 is the nearest type without blocks
    return kind if shape[-1] % block_length == 0 else GGMLQuantizationType.F16


def encode(x: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    return x if kind == GGMLQuantizationType.F32 else quants.quantize(x, kind)


def byte_count(shape: tuple[int, ...], kind: GGMLQuantizationType) -> int:
    block_length, block_bytes = GGML_QUANT_SIZES[kind]
    return int(np.prod(shape, dtype=np.int64)) // block_length * block_bytes
