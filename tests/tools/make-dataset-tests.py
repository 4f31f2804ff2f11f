#!/usr/bin/env python3
"""Writes tests/data/dataset/ and tests/data/json-cases.txt.

usage: make-dataset-tests.py tests/data

Needs pyarrow and the programs gzip and zstd. The folder contains the same records in every
container; test-dataset.c contains their fingerprint, which this program prints. The file contains
random JSON documents, intact and damaged, with the verdict of Python's json module: one line with
the document, and one line with "refused" or with the types of the document and of its values at the
paths k and o.k. Strings are followed by their bytes in hexadecimal.
"""

import hashlib
import json
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

# one line of the file each: hard cases for readers of lines and of JSON
LINES = [
    r'''{"text": "plain", "meta": {"redpajama_set_name": "RedPajamaC4"}}''',
    '''{"text": "a\u2028b\u2029c\u0085d\x7fe", "meta": {"redpajama_set_name": "RedPajamaBook"}}''',
    (r'''  {"meta":{"redpajama_set_name":"\u0052edPajama\u0043\u0034"} , '''
     r'''"te\u0078t" :"\u0041\/\b\f\n\r\t\"\\" }'''),
    ('''{"text": "\\uD83D\\uDE00 = \U0001F600, e\u0301, \ufeff", '''
     '''"meta": {"redpajama_set_name": "RedPajamaC4"}}'''),
    r'''{"text": "a\u0000b", "meta": {"redpajama_set_name": "RedPajamaC4"}}''',
    r'''{"text": "", "meta": {"redpajama_set_name": "RedPajamaC4"}}''',
    (r'''{"text": "first", "meta": {"redpajama_set_name": "x"}, '''
     r'''"text": "last", "meta": {"redpajama_set_name": "RedPajamaC4"}}'''),
    (r'''{"meta": {"text": "no", "redpajama_set_name": "RedPajamaC4"}, '''
     r'''"a": [{"text": "no"}, [], -0.5e+3, true, null], "text": "yes"}'''),
    json.dumps({"text": "".join(f"{i} words of a longer text, " for i in range(300)),
                "meta": {"redpajama_set_name": "RedPajamaC4"}}),
]
ENDS = ["\n", "\n\n", "\r\n", "\n \t\r\n", "\n", "\n", "\n", "\n", ""]


def tool(command, data):
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def skippable(data, number):
    return struct.pack("<II", 0x184D2A50 + number, len(data)) + data


def make_containers(folder):
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    records = [json.loads(line) for line in LINES]
    lines = "".join(line + end for line, end in zip(LINES, ENDS)).encode()
    cut = len(lines) // 3                  # members and frames do not end at line ends
    head, tail = lines[:cut], lines[cut:]
    wrapped = {"Version": 1.0, "Note": "\"Data\": [", "Data": records, "Domain": "Web",
               "More": {"Data": [1]}}
    members = [tool(["gzip", "-1n"], head), tool(["gzip", "-n"], b""),
               tool(["gzip", "-9n"], tail), bytes(512)]
    frames = [skippable(b"a skippable frame", 0), tool(["zstd", "-c"], head), skippable(b"", 15),
              tool(["zstd", "-c"], b""), tool(["zstd", "-c", "-19", "--no-check"], tail),
              skippable(b"end", 3)]
    files = {
        "lines":       lines,
        "lines-bom":   b"\xef\xbb\xbf" + lines + b"\n",
        "array":       json.dumps(records, indent=2).encode(),
        "array-dense": json.dumps(records, ensure_ascii=False,
                                  separators=(",", ":")).encode() + b"\n",
        "wrapped":     json.dumps(wrapped, indent=1).encode(),
        "values":      "\n".join(json.dumps(r, indent=4) for r in records).encode(),
        "gzip":        tool(["gzip", "-9n"], lines),
        "members":     b"".join(members),
        "zstd":        tool(["zstd", "-c", "--check"], lines),
        "frames":      b"".join(frames),
        "window":      tool(["zstd", "-c", "--long=28"], lines),
    }
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    table = pa.Table.from_pylist([
        {"text": r["text"], "meta": {"redpajama_set_name": r["meta"]["redpajama_set_name"]}}
        for r in records])
    pa.parquet.write_table(table, folder / "parquet", compression="snappy", row_group_size=4)
    with pa.ipc.new_stream(folder / "arrow-stream", table.schema) as w:
        w.write_table(table, max_chunksize=5)
    with pa.ipc.new_file(folder / "arrow-file", table.schema) as w:
        w.write_table(table, max_chunksize=5)

    digest = hashlib.sha256()
    for record in records:
        text = record["text"].encode()
        digest.update(struct.pack("<Q", len(text)) + text)
    print(f"{len(records)} records, fingerprint {digest.hexdigest()}")


#
# Random documents
#

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


def make_cases(path):
    r = random.Random(8259)
    with path.open("wb") as f:
        n = refused = 0
        while n < 900:
            before = space(r)
            value = random_object(r, 0) if r.random() < 0.8 else random_value(r, 0)
            data = (before + value + space(r)).encode()
            if n % 2 == 1:
                data = damage(r, data)
            if len(data) > 160:
                continue
            line = verdict(data)
            f.write(data + b"\n" + line.encode() + b"\n")
            n += 1
            refused += line == "refused"
    print(f"{n} documents, {refused} refused, {path.stat().st_size} bytes")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    make_containers(root / "dataset")
    make_cases(root / "json-cases.txt")
