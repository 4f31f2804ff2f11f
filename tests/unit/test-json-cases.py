"""Writes the cases of test-json.c: random JSON documents, intact and damaged, with the verdict of
Python's json module. A line with the document is followed by one with "refused", or with the types
of the document and of its values at the paths k and o.k. Strings are followed by their bytes in
hexadecimal."""

import json
import random
import re
import sys

ESCAPES = [
    "\\n", "\\\"", "\\\\", "\\/", "\\b", "\\u0000", "\\u00e9", "\\uD83D\\uDE00", "\\ud83d",
    "\\uDE00", "\\uD83D\\u0041", "\\uffff", "\\uD83D\\uD83D\\uDE00",
]
PIECES = ["a", "Z9", " ", "é", "😀", "\u2028", "\x7f", "\ufeff", "\U0010ffff", "/", "'", "{", "]",
          ",", ":"]
NUMBERS = ["0", "-0", "1", "-12", "3.25", "1e5", "1E-5", "-0.5e+3",
           "123456789012345678901234567890", "1e999"]


def random_string(r):
    pieces = [r.choice(ESCAPES if r.random() < 0.3 else PIECES) for _ in range(r.randrange(8))]
    return '"' + "".join(pieces) + '"'


def random_key(r):
    return r.choice(['"k"', '"o"', '"\\u006b"', '"K"', '""', '"k.k"', '"o.k"', random_string(r)])


def space(r):
    return r.choice(["", "", "", " ", "\t", " \r "])


def random_value(r, depth):
    kind = r.randrange(8 if depth < 5 else 5)
    if kind < 2:
        return random_string(r)
    if kind == 2:
        return r.choice(NUMBERS)
    if kind < 5:
        return r.choice(["true", "false", "null"])
    if kind == 5:
        values = [space(r) + random_value(r, depth + 1) + space(r) for _ in range(r.randrange(4))]
        return "[" + ",".join(values) + "]"
    return random_object(r, depth)


def random_object(r, depth):
    members = [space(r) + random_key(r) + space(r) + ":" + space(r) + random_value(r, depth + 1)
               + space(r) for _ in range(r.randrange(6))]
    return "{" + (",".join(members) or space(r)) + "}"


def damage(r, data):
    data = bytearray(data)
    for _ in range(r.randrange(1, 3)):
        i = r.randrange(len(data))
        what = r.randrange(4)
        if what == 0:
            del data[i]
        elif what == 1:
            data[i] = r.choice(b'{}[]",:\\ue0123-+.tfn \x00\x01\x7f\x80\xc3\xed\xf4\xff')
        elif what == 2:
            data[i:i] = bytes([r.choice(b'{}[]",:\\u0-+.e\x1f\xa0')])
        else:
            del data[i:]
        if not data:
            data = bytearray(b"0")
    return bytes(data).replace(b"\n", b"")


def refuse(name):
    raise ValueError(name)


def describe(value):
    if isinstance(value, str):
        return "s" + re.sub("[\ud800-\udfff]", "\ufffd", value).encode().hex()
    return {dict: "o", list: "a", bool: "t" if value is True else "f", type(None): "z", int: "n",
            float: "n"}[type(value)]


def verdict(data):
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except ValueError:
        return "refused"
    top = value if isinstance(value, dict) else {}
    inner = top["o"] if isinstance(top.get("o"), dict) else {}
    at_k = [describe(d["k"]) if "k" in d else "-" for d in (top, inner)]
    return " ".join([describe(value)[0], *at_k])


def main():
    r = random.Random(8259)
    n = 0
    with open(sys.argv[1], "wb") as f:
        while n < 900:
            before = space(r)
            value = random_object(r, 0) if r.random() < 0.8 else random_value(r, 0)
            data = (before + value + space(r)).encode()
            if n % 2 == 1:
                data = damage(r, data)
            if len(data) <= 160:
                f.write(data + b"\n" + verdict(data).encode() + b"\n")
                n += 1


main()
