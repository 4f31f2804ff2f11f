"""SentencePiece .model, a protobuf message.

    ModelProto {1: pieces {1: text, 2: score, 3: type}, 2: trainer_spec, 3: normalizer_spec}
"""

import struct
from pathlib import Path
from typing import Iterator

from ..errors import SHOWN, DataError, ModelError, shown
from ..readers.config import read_json
from .tokenizer import CONTROL, USER_DEFINED, Tokenizer

BPE = 2                                    # trainer_spec.model_type; 1 is unigram
ALGORITHMS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


def _fields(path: Path, data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message as (number, integer or bytes)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise DataError(f"{path}: not a SentencePiece model (truncated?)")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size = varint()
        if size is None or at + size > len(data):
            raise DataError(f"{path}: not a SentencePiece model (truncated?)")
        yield tag >> 3, data[at : at + size]
        at += size


def read(path: Path) -> Tokenizer:
    try:
        t = _read(path)
        _add_config(path, t)
        return t
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as e:
        raise DataError(f"{path}: not a SentencePiece model with its configuration "
                        f"({type(e).__name__}: {str(e)[:SHOWN]})") from None


def _read(path: Path) -> Tokenizer:
    tokens, scores, types = [], [], []
    algorithm, normalizer, prefix = 1, "identity", True
    ids = {"unk": 0, "bos": 1, "eos": 2, "pad": -1}
    for field, value in _fields(path, path.read_bytes()):
        if field == 1:
            piece = dict(_fields(path, value))
            tokens.append(piece.get(1, b"").decode("utf-8"))
            scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
            types.append(piece.get(3, 1))
        elif field == 2:
            spec = dict(_fields(path, value))
            algorithm = spec.get(3, 1)
            for name, number in (("unk", 40), ("bos", 41), ("eos", 42), ("pad", 43)):
                if number in spec:
                    # -1 is stored as a large varint
                    ids[name] = spec[number] if spec[number] < 2**31 else -1
        elif field == 3:
            spec = dict(_fields(path, value))
            normalizer = spec.get(1, b"identity").decode("utf-8")
            prefix = bool(spec.get(3, 1))
    if algorithm != BPE:
        raise ModelError(f"{path}: the tokenizer model is {ALGORITHMS.get(algorithm, algorithm)}; "
                         "expected bpe")
    if normalizer != "identity":
        raise ModelError(f"{path}: the normalizer is {normalizer}; expected identity")

    t = Tokenizer("llama", tokens, types, scores=scores, add_space_prefix=prefix, add_bos=True)
    for name, value in ids.items():
        if 0 <= value < len(tokens):
            setattr(t, name, value)
    return t


def _add_config(path: Path, t: Tokenizer) -> None:
    """Tokens added after training, and whether bos and eos are added, from tokenizer_config.json
    next to the file."""
    config_path = path.with_name("tokenizer_config.json")
    config = read_json(config_path) if config_path.is_file() else {}
    added = {int(i): x for i, x in (config.get("added_tokens_decoder") or {}).items()}
    for i in sorted(added):
        content, special = added[i]["content"], added[i].get("special", False)
        if i < len(t.tokens):
            if t.tokens[i] != content:
                raise DataError(f"{config_path}: added token {shown(content)} has the id {i}, "
                                f"which belongs to {shown(t.tokens[i])}")
            continue
        if i != len(t.tokens):
            raise DataError(f"{config_path}: added token {shown(content)} has the id {i}; "
                            f"expected {len(t.tokens)}")
        t.tokens.append(content)
        t.scores.append(0.0)
        t.types.append(CONTROL if special else USER_DEFINED)
    t.add_bos = bool(config.get("add_bos_token", True))
    t.add_eos = bool(config.get("add_eos_token", False))
