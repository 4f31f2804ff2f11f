"""RWKV World vocabulary: lines of `id literal length`; the literal is a Python string or bytes."""

import ast
from pathlib import Path

from ..errors import DataError
from .tokenizer import CONTROL, NORMAL, UNUSED, Tokenizer

END_OF_TEXT = 0                            # not listed in the file
END_OF_TURN = b"\n\n"


def escape(data: bytes) -> str:
    """Bytes as printable text with \\t \\n \\r \\\\ and \\xNN. Tokens need not be valid UTF-8."""
    named = {9: "\\t", 10: "\\n", 13: "\\r", 92: "\\\\"}
    return "".join(named.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)


def read(path: Path) -> Tokenizer:
    found: dict[int, bytes] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8") from None
    # not splitlines(): literals contain unescaped characters such as U+2028
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line:
            continue
        where = f"{path}: line {number} is {line[:40]!r}"
        try:
            # the literal may contain spaces: split at the first and the last space
            first, last = line.index(" "), line.rindex(" ")
            index, length = int(line[:first]), int(line[last + 1 :])
            value = ast.literal_eval(line[first + 1 : last])
            # \xNN is a code point in a string and a byte in bytes; the length confirms the reading
            data = value.encode("utf-8") if isinstance(value, str) else value
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise DataError(f"{where}; expected an id, a literal and a length") from None
        if not isinstance(data, bytes) or len(data) != length or index < 1 or index in found:
            raise DataError(f"{where}; expected a new id and a token of {length} bytes")
        found[index] = data
    if not found:
        raise DataError(f"{path}: no tokens")
    n = max(found) + 1
    if n > 1 << 24:
        raise DataError(f"{path}: the largest id is {n - 1}; expected less than {1 << 24}")
    tokens, types = ["<s>"], [CONTROL]
    for i in range(1, n):
        tokens.append(escape(found[i]) if i in found else f"[PAD{i}]")
        types.append(NORMAL if i in found else UNUSED)
    eot = next((i for i, data in found.items() if data == END_OF_TURN), None)
    return Tokenizer("rwkv", tokens, types, bos=END_OF_TEXT, eos=END_OF_TEXT, eot=eot)
