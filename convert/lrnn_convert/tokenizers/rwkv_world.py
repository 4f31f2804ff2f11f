"""RWKV World vocabulary: lines of `id literal length`, a literal being Python's for a string or for bytes."""

import ast
from pathlib import Path

from ..errors import DataError
from .tokenizer import CONTROL, NORMAL, UNUSED, Tokenizer

END_OF_TEXT = 0                            # not in the file: the text's end
END_OF_TURN = b"\n\n"


def escape(data: bytes) -> str:
    """Bytes as printable text: \\t \\n \\r \\\\ and \\xNN. Tokens need not be valid UTF-8."""
    named = {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}
    return "".join(named.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)


def read(path: Path) -> Tokenizer:
    found: dict[int, bytes] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8") from None
    # not splitlines(): literals hold characters such as U+2028 unescaped
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line:
            continue
        try:
            # the literal may hold spaces: cut at the first and at the last
            first, last = line.index(" "), line.rindex(" ")
            index, length = int(line[:first]), int(line[last + 1 :])
            value = ast.literal_eval(line[first + 1 : last])
            # in a string \xNN is a code point, in bytes it is a byte: the length tells whether it was read right
            data = value.encode("utf-8") if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else None
        except (ValueError, SyntaxError, TypeError):
            raise DataError(f"{path}: line {number}: {line[:40]!r} is not an id, a literal and a length") from None
        if data is None or len(data) != length or index < 1 or index in found:
            raise DataError(f"{path}: line {number}: {line[:40]!r}: expected a new id and a token of {length} bytes")
        found[index] = data
    if not found:
        raise DataError(f"{path}: no tokens")
    n = max(found) + 1
    if n > 1 << 24:
        raise DataError(f"{path}: the largest id is {n - 1}")
    tokens, types = ["<s>"], [CONTROL]
    for i in range(1, n):
        tokens.append(escape(found[i]) if i in found else f"[PAD{i}]")
        types.append(NORMAL if i in found else UNUSED)
    eot = next((i for i, data in found.items() if data == END_OF_TURN), None)
    return Tokenizer("rwkv", tokens, types, bos=END_OF_TEXT, eos=END_OF_TEXT, eot=eot)
