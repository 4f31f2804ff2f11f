"""Tokenizers: from the files beside the weights to GGUF keys. What the runtime does not know is refused by name."""

from pathlib import Path

from ..errors import DataError
from ..model import Model
from . import hf_json, rwkv_world, sentencepiece
from .tokenizer import BYTE, UNUSED, Tokenizer

# a folder's files in order of preference: tokenizer.json is what the checkpoint's own library reads
FILES = (("tokenizer.json", hf_json.read), ("tokenizer.model", sentencepiece.read))
WORLD = "rwkv_vocab*.txt"


def bytes_tokenizer() -> Tokenizer:
    """One id a byte: --tokenizer bytes."""
    return Tokenizer("lrnn-bytes", [f"<0x{i:02X}>" for i in range(256)], [BYTE] * 256, add_bos=False, add_eos=False)


def find(path: Path, required: bool) -> Tokenizer | None:
    """The tokenizer in a file or folder; None where a folder has none and none was asked for."""
    if required and str(path) == "bytes":
        return bytes_tokenizer()
    if path.is_file():
        if path.suffix == ".json":
            return hf_json.read(path)
        if path.suffix == ".model":
            return sentencepiece.read(path)
        if path.suffix == ".txt":
            return rwkv_world.read(path)
        raise DataError(f"{path}: expected a tokenizer.json, a SentencePiece .model or an RWKV World .txt")
    for name, read in FILES:
        if (path / name).is_file():
            return read(path / name)
    world = sorted(path.glob(WORLD)) if path.is_dir() else []
    if world:
        return rwkv_world.read(world[0])
    if required:
        raise DataError(f"{path}: no tokenizer found, expected tokenizer.json, tokenizer.model or {WORLD}")
    return None


def _id(m: Model, t: Tokenizer, own: int | None, key: str) -> int | None:
    """A special token: what the tokenizer says, else config.json (its eos may be a list, the first ends a text)."""
    if own is not None:
        return own
    value = m.config.get(key)
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and 0 <= value < len(t.tokens) else None


def write(m: Model, t: Tokenizer | None, vocab: int) -> str:
    """The tokenizer's keys; gives the summary's line."""
    if t is None:
        m.set_str("tokenizer.ggml.model", "none")
        return "none found: the file has ids only (--tokenizer PATH adds one)"
    if len(t.tokens) > vocab:
        raise DataError(f"the tokenizer has {len(t.tokens)} tokens, the embedding has {vocab} rows, expected at least as many rows")
    n = len(t.tokens)
    bos, eos = _id(m, t, t.bos, "bos_token_id"), _id(m, t, t.eos, "eos_token_id")

    for added, who, value in ((t.add_bos, "bos", bos), (t.add_eos, "eos", eos)):
        if added and value is None:
            raise DataError(f"the tokenizer adds {who} to a text, but neither it nor config.json says which token that is")

    # rows that pad the embedding have no token; readers want one name a row
    pad = vocab - n
    tokens = t.tokens + [f"[PAD{i}]" for i in range(n, vocab)]
    m.set_str("tokenizer.ggml.model", t.model)
    if t.pre is not None:
        m.set_str("tokenizer.ggml.pre", t.pre)
    m.set_array("tokenizer.ggml.tokens", "str", tokens)
    if t.scores is not None:
        m.set_array("tokenizer.ggml.scores", "f32", t.scores + [0.0] * pad)
    m.set_array("tokenizer.ggml.token_type", "i32", t.types + [UNUSED] * pad)
    if t.merges is not None:
        m.set_array("tokenizer.ggml.merges", "str", t.merges)
    # explicit always: readers have defaults of their own for what is missing
    for key, value in (("bos", bos), ("eos", eos), ("eot", t.eot), ("unknown", t.unk), ("padding", _id(m, t, t.pad, "pad_token_id"))):
        if value is not None:
            m.set_u32(f"tokenizer.ggml.{key}_token_id", value)
    m.set_bool("tokenizer.ggml.add_bos_token", t.add_bos)
    m.set_bool("tokenizer.ggml.add_eos_token", t.add_eos)
    if t.add_space_prefix is not None:
        m.set_bool("tokenizer.ggml.add_space_prefix", t.add_space_prefix)
    if t.normalizer is not None:
        m.set_str("lrnn.tokenizer.normalizer", t.normalizer)

    words = [t.model + (f" ({t.pre})" if t.pre else ""), f"{n} tokens" + (f" and {pad} padding rows" if pad else "")]
    words += [f"{name} {value}" for name, value in (("bos", bos), ("eos", eos)) if value is not None]
    if t.add_bos:
        words.append("bos is prepended")
    if t.normalizer:
        words.append(t.normalizer.upper())
    return ", ".join(words)
