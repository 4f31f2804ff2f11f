#!/usr/bin/env python3
"""Writes src/base/unicode-tables.inc.

usage: make-unicode-tables.py OUT.inc

Token ids must equal those of the reference library (`tokenizers`), so the tables must agree with
its Unicode data. The library has two versions of Unicode, an older one for normalization. The
classes \\p{L}, \\p{Lu}, \\p{Lt}, \\p{Ll}, \\p{M}, \\p{N}, \\s and \\p{Han} are queried from it, one
code point at a time. Canonical
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


def write_array(f, name, numbers):
    f.write(f"static const uint32_t {name}[] = {{\n")
    line = ""
    for item in (f"0x{n:x}" if n > 9 else str(n) for n in numbers):
        if line and len(line) + len(item) + 7 > 100:
            f.write(f"    {line},\n")
            line = ""
        line = f"{line}, {item}" if line else item
    f.write(f"    {line},\n}};\n\n")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    upper, lower = members(r"[\p{Lu}\p{Lt}]"), members(r"\p{Ll}")
    letters = members(r"\p{L}") - upper - lower
    kinds = (letters, members(r"\p{N}"), members(r"\s"), members(r"\p{M}"), upper, lower)
    han = members(r"\p{Han}")

    def class_of(c):
        return next((i + 1 for i, kind in enumerate(kinds) if c in kind), 0) | (c in han) << 3

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

    # code points with decompositions form runs; the characters of a pair that come second are few
    starts = [i for i, (c, _, _) in enumerate(pairs) if i == 0 or pairs[i - 1][0] != c - 1]
    seconds = sorted({b for _, _, b in pairs})
    assert len(pairs) < 1 << 12 and max(a for _, a, _ in pairs) < 1 << 20

    with open(sys.argv[1], "w", encoding="ascii") as f:
        f.write("// Made by tests/tools/make-unicode-tables.py with tokenizers "
                f"{tokenizers.__version__} and Unicode {unicodedata.unidata_version}.\n"
                "// Do not edit.\n\n#include <stdint.h>\n\n")

        f.write("// first code point of a range << 4 | Han << 3 | class: 0 other, 1 other letter, "
                "2 number,\n// 3 white space, 4 mark, 5 letter of upper or title case, "
                "6 letter of lower case\n")
        write_array(f, "unicode_classes", [c << 4 | v for c, v in runs(class_of)])

        f.write("// first code point of a range << 8 | canonical combining class\n")
        write_array(f, "unicode_combining", [c << 8 | v for c, v in runs(combining)])

        f.write("// first code point of a run that decomposes << 12 "
                "| index of its decomposition\n")
        write_array(f, "unicode_runs", [pairs[i][0] << 12 | i for i in starts])

        f.write("// decompositions: index of the second code point << 20 | the first\n")
        write_array(f, "unicode_decompositions",
                    [seconds.index(b) << 20 | a for _, a, b in pairs])

        f.write("// second code points; 0: there is none\n")
        write_array(f, "unicode_seconds", seconds)

        f.write("// indices of the decompositions that NFC undoes, "
                "sorted by the two code points\n")
        write_array(f, "unicode_compositions", [index[c] for _, _, c in sorted(composing)])


main()
