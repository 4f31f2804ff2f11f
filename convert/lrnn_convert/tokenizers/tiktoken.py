"""tiktoken.model of Kimi: byte sequences with their ranks, which are the ids. At each step, the two
neighbors whose concatenation has the lowest rank are merged.

The expression that cuts a text into pieces is in the checkpoint's code, which is never executed;
tokenizer_config.json names the class, and the runtime knows the expression of that class.
"""

import base64
import binascii
from pathlib import Path

from ..errors import SHOWN, DataError, ModelError, shown
from ..readers.config import read_json
from .tokenizer import CONTROL, NORMAL, USER_DEFINED, UNUSED, Tokenizer

CLASS = "tokenization_kimi.TikTokenTokenizer"


def _alphabet() -> list[str]:
    """GPT-2's character for each byte: itself if it is printable in Latin-1, else U+0100 and up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


ALPHABET = _alphabet()


def written(token: bytes) -> str:
    return "".join(ALPHABET[b] for b in token)


def read(path: Path) -> Tokenizer:
    config_path = path.with_name("tokenizer_config.json")
    config = read_json(config_path) if config_path.is_file() else {}
    try:
        found = (config.get("auto_map") or {}).get("AutoTokenizer")
        if (found[0] if isinstance(found, list) and found else found) != CLASS:
            raise ModelError(f"{config_path}: auto_map.AutoTokenizer is {shown(found)}; expected "
                             f"{CLASS}, the only class of tiktoken.model that is supported")
        t = _read(path, _ranks(path))
        _add_special(config_path, config, t)
        return t
    except (AttributeError, TypeError, KeyError, ValueError) as e:
        raise DataError(f"{path}: not a tiktoken.model with its configuration "
                        f"({type(e).__name__}: {str(e)[:SHOWN]})") from None


def _ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise DataError(f"{path}: line {number} is {line[:40]!r}; expected base64 and a "
                            "rank") from None
    if not ranks or sorted(ranks.values()) != list(range(len(ranks))):
        raise DataError(f"{path}: the ranks of {len(ranks)} tokens are not 0, 1, 2, …")
    return ranks


def _last_merge(ranks: dict[bytes, int], token: bytes) -> list[bytes]:
    """The parts of a token before it is merged as a whole: two, unless merges never make it."""
    parts = [token[i:i + 1] for i in range(len(token))]
    limit = ranks[token]
    while len(parts) > 2:
        rank, i = min((ranks.get(a + b, limit), i)
                      for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if rank >= limit:
            break
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _read(path: Path, ranks: dict[bytes, int]) -> Tokenizer:
    tokens = sorted(ranks, key=ranks.__getitem__)
    merges = []
    for token in tokens:
        parts = _last_merge(ranks, token)
        if len(parts) == 2:                # others are found as whole pieces only
            merges.append(" ".join(map(written, parts)))
    return Tokenizer("gpt2", list(map(written, tokens)), [NORMAL]*len(tokens), pre="kimi-k2",
                     merges=merges)


def _add_special(path: Path, config: dict, t: Tokenizer) -> None:
    """The special tokens follow; the names of the others are in the checkpoint's code only."""
    added = {int(i): x for i, x in (config.get("added_tokens_decoder") or {}).items()}
    n = len(t.tokens)
    if added and min(added) < n:
        raise DataError(f"{path}: added token {min(added)} is one of the {n} ordinary tokens")
    if added and max(added) >= n + 65536:
        raise DataError(f"{path}: added token {max(added)} is far beyond the {n} ordinary tokens")
    for i in range(n, max(added, default=n - 1) + 1):
        x = added.get(i)
        t.tokens.append(x["content"] if x else f"[PAD{i}]")
        t.types.append(UNUSED if x is None else CONTROL if x.get("special") else USER_DEFINED)
    for name in ("bos", "eos", "unk", "pad"):
        text = config.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        if isinstance(text, str) and text in t.tokens:
            setattr(t, name, t.tokens.index(text))
