"""Tokenizers: from the files next to the weights to keys of the model file.

A tokenizer that the runtime does not implement is an error that names the unknown part.
"""

from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError
from ..model import Model
from . import hf_json, rwkv_world, sentencepiece, tiktoken
from .tokenizer import BYTE, UNUSED, Tokenizer

# in order of preference: the library of the checkpoint itself reads tokenizer.json
FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "rwkv_vocab*.txt")
CONFIG_FILES = ("tokenizer_config.json", "special_tokens_map.json")
READERS = {".json": hf_json.read, ".model": sentencepiece.read, ".txt": rwkv_world.read}


def read(path: Path) -> Tokenizer:
    return tiktoken.read(path) if path.name == "tiktoken.model" else READERS[path.suffix](path)


def bytes_tokenizer() -> Tokenizer:
    """One token per byte: --tokenizer bytes."""
    tokens = [f"<0x{i:02X}>" for i in range(256)]
    return Tokenizer("lrnn-bytes", tokens, [BYTE] * 256, add_bos=False, add_eos=False)


def input_files(path: Path) -> Iterator[Path]:
    """Files that `find` may read. They need not exist."""
    folder = path
    if not path.is_dir():
        yield path
        folder = path.parent
    for pattern in (*FILES, *CONFIG_FILES):
        yield from folder.glob(pattern)


def find(path: Path, required: bool) -> Tokenizer | None:
    """The tokenizer in a file or folder; None if a folder has none and none is required."""
    if required and str(path) == "bytes":
        return bytes_tokenizer()
    if path.is_file():
        if path.suffix not in READERS:
            raise DataError(f"{path}: expected a tokenizer.json, a SentencePiece .model or an RWKV "
                            "World .txt")
        return read(path)
    for pattern in FILES:
        found = sorted(p for p in path.glob(pattern) if p.is_file()) if path.is_dir() else []
        if found:
            return read(found[0])
    if required:
        raise DataError(f"{path}: no tokenizer; expected {', '.join(FILES)} or the word bytes")
    return None


def _id(m: Model, t: Tokenizer, own: int | None, key: str) -> int | None:
    """A special token of the tokenizer, or else of config.json. There eos may be a list; its first
    entry ends a text."""
    if own is not None:
        return own
    value = m.config.get(key)
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and 0 <= value < len(t.tokens) else None


def write(m: Model, t: Tokenizer | None, vocab: int) -> str:
    """Sets the keys of the tokenizer and returns its line of the summary."""
    if t is None:
        m.set_str("tokenizer.ggml.model", "none")
        return "none found; the file has ids only (--tokenizer PATH adds one)"
    if len(t.tokens) > vocab:
        raise DataError(f"the tokenizer has {len(t.tokens)} tokens; expected at most {vocab}, the "
                        "number of rows of the embedding")
    n = len(t.tokens)
    bos, eos = _id(m, t, t.bos, "bos_token_id"), _id(m, t, t.eos, "eos_token_id")

    for added, name, value in ((t.add_bos, "bos", bos), (t.add_eos, "eos", eos)):
        if added and value is None:
            raise DataError(f"the tokenizer adds {name} to a text, but neither it nor config.json "
                            f"gives the id of {name}")

    # rows that pad the embedding have no token, but readers expect one name per row
    pad = vocab - n
    tokens = t.tokens + [f"[PAD{i}]" for i in range(n, vocab)]
    m.set_str("tokenizer.ggml.model", t.model)
    if t.pre is not None:
        m.set_str("tokenizer.ggml.pre", t.pre)
    m.set_array("tokenizer.ggml.tokens", "str", tokens)
    if t.scores is not None:
        m.set_array("tokenizer.ggml.scores", "f32", t.scores + [0.0] * pad)
    m.set_array("tokenizer.ggml.token_type", "i32", t.types + [UNUSED] * pad)
    if t.merges:                           # GGUF has no empty arrays
        m.set_array("tokenizer.ggml.merges", "str", t.merges)
    # always explicit: readers have their own defaults for missing keys
    padding = _id(m, t, t.pad, "pad_token_id")
    for key, value in (("bos", bos), ("eos", eos), ("eot", t.eot), ("unknown", t.unk),
                       ("padding", padding)):
        if value is not None:
            m.set_u32(f"tokenizer.ggml.{key}_token_id", value)
    m.set_bool("tokenizer.ggml.add_bos_token", t.add_bos)
    m.set_bool("tokenizer.ggml.add_eos_token", t.add_eos)
    if t.add_space_prefix is not None:
        m.set_bool("tokenizer.ggml.add_space_prefix", t.add_space_prefix)
    if t.normalizer is not None:
        m.set_str("lrnn.tokenizer.normalizer", t.normalizer)

    words = [t.model + (f" ({t.pre})" if t.pre else ""),
             f"{n} tokens" + (f" and {pad} padding rows" if pad else "")]
    words += [f"{name} {i}" for name, i in (("bos", bos), ("eos", eos)) if i is not None]
    if t.add_bos:
        words.append("bos is prepended")
    if t.normalizer:
        words.append(t.normalizer.upper())
    return ", ".join(words)
