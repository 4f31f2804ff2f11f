"""A tokenizer, in the terms of the model file."""

from dataclasses import dataclass

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass
class Tokenizer:
    model: str
    tokens: list[str]
    types: list[int]
    pre: str | None = None
    scores: list[float] | None = None
    merges: list[str] | None = None
    bos: int | None = None
    eos: int | None = None
    eot: int | None = None
    unk: int | None = None
    pad: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool | None = None
    normalizer: str | None = None
