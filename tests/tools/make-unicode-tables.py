#!/usr/bin/env python3
"""Writes src/base/unicode-tables.h.

usage: make-unicode-tables.py OUT.h

Token ids must equal those of the reference library (`tokenizers`), so the tables must agree with
its Unicode data. The library has two versions of Unicode, an older one for normalization. The
classes \\p{L}, \\p{M}, \\p{N} and \\s are queried from it, one code point at a time. Canonical
decompositions and combining classes come from Python's unicodedata, except for characters that the
library's NFC does not know yet: it treats them as starters.
"""

import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    """Code points that the library's regular expressions match with `pattern`."""
    remove = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for i in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[i:i + 4096]
        kept = set("".join(s for s, _ in remove.pre_tokenize_str("".join(map(chr, block)))))
        found.update(c for c in block if chr(c) not in kept)
    return found


NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def combining(c):
    """Canonical combining class, 0 if the library does not reorder the mark."""
    ccc = unicodedata.combining(chr(c))
    other = "\u0334" if ccc > 1 else "\u0327"  # classes 1 and 202
    pair = chr(c) + other if ccc > 1 else other + chr(c)
    return ccc if ccc and NFD("a" + pair) == "a" + pair[::-1] else 0


def runs(value_of):
    """[(first code point, value)] of the ranges of equal value."""
    out = []
    for c in range(0x110000):
        v = value_of(c)
        if not out or out[-1][1] != v:
            out.append((c, v))
    return out


def write_array(f, declaration, items):
    f.write(f"{declaration} = {{\n")
    line = ""
    for item in items:
        if line and len(line) + len(item) + 7 > 100:
            f.write(f"    {line},\n")
            line = ""
        line = f"{line}, {item}" if line else item
    f.write(f"    {line},\n}};\n\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    letters, numbers, spaces = members(r"\p{L}"), members(r"\p{N}"), members(r"\s")
    marks = members(r"\p{M}")

    def class_of(c):
        return 1 if c in letters else 2 if c in numbers else 3 if c in spaces else 0

    pairs = []     # (code point, first, second or 0), without Hangul, which is computed
    for c in CODE_POINTS:
        d = unicodedata.decomposition(chr(c))
        if d and not d.startswith("<") and NFD(chr(c)) != chr(c):
            p = [int(x, 16) for x in d.split()] + [0]
            pairs.append((c, p[0], p[1]))

    assert all(NFC(chr(c)) == unicodedata.normalize("NFC", chr(c)) for c, _, _ in pairs)

    # a pair composes unless the character is excluded from composition (NFC leaves it decomposed)
    composing = [(a, b, c) for c, a, b in pairs if b and NFC(chr(c)) == chr(c)]
    index = {c: i for i, (c, _, _) in enumerate(pairs)}

    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write("#pragma once\n\n")
        f.write("// Made by tests/tools/make-unicode-tables.py with tokenizers "
                f"{tokenizers.__version__} and Unicode {unicodedata.unidata_version}.\n"
                "// Do not edit.\n// clang-format off\n\n#include <stdint.h>\n\n")

        f.write("// first code point of a range << 2 | class: "
                "0 other, 1 letter, 2 number, 3 white space\n")
        write_array(f, "static const uint32_t unicode_classes[]",
                    [f"0x{c << 2 | v:06x}" for c, v in runs(class_of)])

        f.write("// first code point of a range << 1 | 1 for marks\n")
        write_array(f, "static const uint32_t unicode_marks[]",
                    [f"0x{c << 1 | v:06x}" for c, v in runs(lambda c: int(c in marks))])

        f.write("// first code point of a range << 8 | canonical combining class\n")
        write_array(f, "static const uint32_t unicode_combining[]",
                    [f"0x{c << 8 | v:08x}" for c, v in runs(combining)])

        f.write("// code point and its decomposition into one (then 0) or two, "
                "sorted by code point\n")
        write_array(f, "static const uint32_t unicode_decompositions[][3]",
                    [f"{{0x{c:x},0x{a:x},0x{b:x}}}" for c, a, b in pairs])

        f.write("// indices of the decompositions that NFC undoes, "
                "sorted by the two code points\n")
        write_array(f, "static const uint16_t unicode_compositions[]",
                    [str(index[c]) for _, _, c in sorted(composing)])


main()
