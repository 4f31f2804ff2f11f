"""Writes the cases of test-unicode.c, one per line: the code points of a text, a semicolon, and
those of its NFC by Python's unicodedata.

Only characters of Unicode 3.2 occur. The tables of src/base/unicode-tables.inc have a later
version, and Unicode never changes the normalization of a character.
"""

import random
import sys
import unicodedata

OLD = unicodedata.ucd_3_2_0
KNOWN = [chr(c) for c in range(0x110000)
         if not 0xD800 <= c < 0xE000 and OLD.category(chr(c)) not in ("Cn", "Co")]


def canonical(c):
    """The characters of a canonical decomposition; empty: none."""
    d = unicodedata.decomposition(c)
    return "" if d.startswith("<") else "".join(chr(int(x, 16)) for x in d.split())


def marks_by_class():
    marks = {}
    for c in KNOWN:
        if unicodedata.combining(c):
            marks.setdefault(unicodedata.combining(c), []).append(c)
    return marks


def blocking_cases(pairs, marks, rng):
    """A starter and a mark that compose, with something between them: a mark of a lower, equal or
    higher class, or a starter. Only marks of the same class and starters block."""
    for starter, mark in rng.sample(pairs, 30):
        ccc = unicodedata.combining(mark)
        between = [rng.choice(marks[other]) for other in sorted(marks)
                   if other in (1, 7, 9, ccc, 202, 216, 220, 230, 232, 240)]
        for m in between + ["\u034f", "x"]:
            yield starter + m + mark
            yield starter + mark + m
            yield starter + m + m + mark


def nested_cases(decomposing):
    """Characters that decompose in two steps, with a mark that belongs between the two."""
    for c in decomposing:
        if len(canonical(c)) == 2 and canonical(canonical(c)[0]):
            for mark in "\u0323\u0327\u0345":
                yield c + mark


def random_cases(pairs, marks, rng):
    starters = [starter for starter, _ in pairs] + ["x", "\u1100", "\u1161", "\u11a8", "\uac00"]
    every_mark = [m for group in marks.values() for m in group]
    for _ in range(300):
        text = ""
        for _ in range(rng.randint(1, 3)):
            text += rng.choice(starters)
            text += "".join(rng.choice([rng.choice(every_mark), rng.choice(pairs)[1]])
                            for _ in range(rng.randint(0, 4)))
        yield text


def main():
    rng = random.Random(1)
    decomposing = [c for c in KNOWN if canonical(c)]
    pairs = [tuple(canonical(c)) for c in decomposing
             if len(canonical(c)) == 2 and unicodedata.normalize("NFC", c) == c
             and unicodedata.combining(canonical(c)[1])]
    marks = marks_by_class()
    texts = [c for c in decomposing if ord(c) < 0xF900] + decomposing[-600::20]
    texts += [unicodedata.normalize("NFD", c) for c in decomposing[::3]]
    # Hangul
    texts += [chr(0xAC00 + i) for i in range(0, 11172, 797)]
    texts += [unicodedata.normalize("NFD", chr(0xAC00 + i)) for i in range(0, 11172, 311)]
    texts += ["\uac00\u11a7", "\uac00\u11a8", "\uac01\u11a8", "\u1100\u1161\u11a7",
              "\u1100\u0300\u1161", "\uac00\u0300\u11a8"]
    texts += nested_cases(decomposing)
    texts += blocking_cases(pairs, marks, rng)
    texts += random_cases(pairs, marks, rng)

    def points(text):
        return " ".join(f"{ord(c):04X}" for c in text)

    with open(sys.argv[1], "w", encoding="ascii") as f:
        for text in dict.fromkeys(texts):
            f.write(f"{points(text)};{points(unicodedata.normalize('NFC', text))}\n")


main()
