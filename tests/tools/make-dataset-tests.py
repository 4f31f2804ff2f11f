#!/usr/bin/env python3
"""Writes tests/data/dataset/: the same records in every container.

usage: make-dataset-tests.py tests/data/dataset

Needs pyarrow and the programs gzip and zstd. test-dataset.c contains the fingerprint of the
records, which this program prints.
"""

import hashlib
import json
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


def indented(records, indent):
    """The text of each record: the first one with line breaks, the others on a line each."""
    return [json.dumps(r, indent=indent if r is records[0] else None) for r in records]


def make_containers(folder):
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    records = [json.loads(line) for line in LINES]
    lines = "".join(line + end for line, end in zip(LINES, ENDS)).encode()
    cut = len(lines) // 3                  # members and frames do not end at line ends
    head, tail = lines[:cut], lines[cut:]
    before = '{\n "Version": 1.0,\n "Note": "\\"Data\\": [",\n "Data": [\n'
    after = '\n ],\n "Domain": "Web",\n "More": {\n  "Data": [1]\n }\n}'
    members = [tool(["gzip", "-1n"], head), tool(["gzip", "-n"], b""),
               tool(["gzip", "-9n"], tail), bytes(512)]
    frames = [skippable(b"a skippable frame", 0), tool(["zstd", "-c"], head), skippable(b"", 15),
              tool(["zstd", "-c"], b""), tool(["zstd", "-c", "-19", "--no-check"], tail),
              skippable(b"end", 3)]
    files = {
        "lines":       lines,
        "lines-bom":   b"\xef\xbb\xbf" + lines + b"\n",
        "array":       ("[\n" + ",\n".join(indented(records, 2)) + "\n]").encode(),
        "array-dense": json.dumps(records, ensure_ascii=False,
                                  separators=(",", ":")).encode() + b"\n",
        "wrapped":     (before + ",\n".join(indented(records, 1)) + after).encode(),
        "values":      "\n".join(indented(records, 4)).encode(),
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


if __name__ == "__main__":
    make_containers(Path(sys.argv[1]))
