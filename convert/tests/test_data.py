"""Data sets in Parquet and Arrow: every container gives the same records in JSON lines."""

import gzip
import json
import math
import os
import shlex
import sys
from datetime import datetime
from decimal import Decimal

import pytest
from lrnn_convert.cli import main

pa = pytest.importorskip("pyarrow")
import pyarrow.ipc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

# hard cases for readers of lines and of JSON: line separators of Unicode, NUL, quotes, characters
# outside the first plane, an empty text, a missing one
TEXTS = ["plain", "a\u2028b\u2029c\u0085d\u000be", "\u0000 and \u001f", "\"quoted\" \\ back",
         "😀 e\u0301", "", None, "line\r\nline\n", "x" * 7000]
RECORDS = [{"text": t, "meta": {"redpajama_set_name": f"Set{i % 3}", "scores": [i, None]},
            "size": str(i), "n": i, "ok": i % 2 == 0}
           for i, t in enumerate(TEXTS * 40)]


def table():
    return pa.Table.from_pylist(RECORDS)


def write_stream(path, t, rows=50):
    with pa.ipc.new_stream(path, t.schema) as w:
        w.write_table(t, max_chunksize=rows)


def write_file(path, t, rows=50):
    with pa.ipc.new_file(path, t.schema) as w:
        w.write_table(t, max_chunksize=rows)


def parquet(**options):
    return lambda path, t: pq.write_table(t, path, **options)


CONTAINERS = {
    "snappy":       parquet(compression="snappy", row_group_size=100),
    "gzip":         parquet(compression="gzip", use_dictionary=False),
    "zstd":         parquet(compression="zstd", data_page_version="2.0", row_group_size=7),
    "uncompressed": parquet(compression="none", data_page_size=64),
    "arrow file":   write_file,
    "arrow stream": write_stream,
}


def convert(capsys, *args):
    code = main(["data", *map(str, args)])
    return code, capsys.readouterr().err


def read(path):
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data[:-1].split(b"\n")]


@pytest.mark.parametrize("container", CONTAINERS)
def test_records(container, tmp_path, capsys):
    source, out = tmp_path / "named-like-nothing", tmp_path / "out.jsonl"
    CONTAINERS[container](source, table())
    code, err = convert(capsys, source, "-o", out)
    assert code == 0 and f"{len(RECORDS)} records" in err
    assert read(out) == RECORDS
    assert not list(tmp_path.glob("*.part"))


def test_gzip_is_deterministic(tmp_path, capsys):
    write_stream(tmp_path / "a.arrow", table())
    for name in "x.jsonl.gz", "y.jsonl.gz":
        assert convert(capsys, tmp_path / "a.arrow", "-o", tmp_path / name)[0] == 0
    assert read(tmp_path / "x.jsonl.gz") == RECORDS
    assert (tmp_path / "x.jsonl.gz").read_bytes() == (tmp_path / "y.jsonl.gz").read_bytes()


def test_folders_in_the_order_of_names(tmp_path, capsys):
    folder = tmp_path / "set"
    (folder / "b").mkdir(parents=True)
    (folder / ".cache").mkdir()
    t = table()
    write_stream(folder / "c.arrow", t.slice(200))
    write_file(folder / "b" / "1.arrow", t.slice(100, 100))
    pq.write_table(t.slice(0, 100), folder / "a.parquet")
    pq.write_table(t, folder / ".cache" / "hidden.parquet")
    (folder / "README.md").write_text("# about\n")
    code, err = convert(capsys, folder, "-o", tmp_path / "out.jsonl")
    assert code == 0 and "README.md" in err and "hidden" not in err
    assert read(tmp_path / "out.jsonl") == RECORDS


def save_to_disk(folder, t, order):
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-00002.arrow" for i in order]
    write_stream(folder / names[0], t.slice(0, 150))
    write_stream(folder / names[1], t.slice(150))
    (folder / "dataset_info.json").write_text("{}")
    state = {"_data_files": [{"filename": n} for n in names]}
    (folder / "state.json").write_text(json.dumps(state))


def test_save_to_disk(tmp_path, capsys):
    save_to_disk(tmp_path / "saved", table(), [1, 0])
    assert convert(capsys, tmp_path / "saved", "-o", tmp_path / "out.jsonl")[0] == 0
    assert read(tmp_path / "out.jsonl") == RECORDS


def test_splits_are_not_mixed(tmp_path, capsys):
    for split in "train", "validation":
        save_to_disk(tmp_path / "dict" / split, table(), [0, 1])
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    code, err = convert(capsys, tmp_path / "dict", "-o", tmp_path / "out.jsonl")
    assert code == 2 and "train, validation" in err and not (tmp_path / "out.jsonl").exists()


def test_standard_output(tmp_path, capfdbinary):
    pq.write_table(table(), tmp_path / "a.parquet")
    assert main(["data", str(tmp_path / "a.parquet"), "-o", "-", "--quiet"]) == 0
    out, err = capfdbinary.readouterr()
    assert [json.loads(line) for line in out[:-1].split(b"\n")] == RECORDS and err == b""


def test_values_that_json_lacks(tmp_path, capsys):
    t = pa.table({"when": [datetime(2024, 1, 2, 3, 4, 5)], "raw": [b"\xff\x00"],
                  "exact": [Decimal("1.10")], "nan": [math.nan],
                  "inf": pa.array([math.inf], pa.float32()),
                  "words": pa.array(["w"]).dictionary_encode(), "none": [None]})
    write_file(tmp_path / "a.arrow", t)
    assert convert(capsys, tmp_path / "a.arrow", "-o", tmp_path / "out.jsonl")[0] == 0
    assert read(tmp_path / "out.jsonl") == [
        {"when": "2024-01-02T03:04:05", "raw": "/wA=", "exact": "1.10", "nan": None, "inf": None,
         "words": "w", "none": None}]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_file_that_is_cut_off(container, share, tmp_path, capsys):
    source = tmp_path / "cut"
    CONTAINERS[container](source, table())
    data = source.read_bytes()
    source.write_bytes(data[:int(share * len(data))])
    code, err = convert(capsys, source, "-o", tmp_path / "out.jsonl")
    assert code == 3 and str(source) in err
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]


def test_a_stream_that_is_cut_between_batches(tmp_path, capsys):
    write_stream(tmp_path / "a.arrow", table())
    assert "cut off" not in convert(capsys, tmp_path / "a.arrow", "-o", tmp_path / "out.jsonl")[1]
    data = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(data[:-8])
    code, err = convert(capsys, tmp_path / "a.arrow", "-o", tmp_path / "out.jsonl")
    assert code == 0 and "may be cut off" in err and read(tmp_path / "out.jsonl") == RECORDS


def test_text_that_is_not_utf8(tmp_path, capsys):
    raw = pa.array([b"fine", b"\xff\xfe"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    write_stream(tmp_path / "a.arrow", pa.table({"text": text}))
    code, err = convert(capsys, tmp_path / "a.arrow", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "not UTF-8" in err and not (tmp_path / "out.jsonl").exists()


def test_other_files_are_refused(tmp_path, capsys):
    (tmp_path / "a.parquet").write_text('{"text": "JSON under another name"}\n')
    code, err = convert(capsys, tmp_path / "a.parquet", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "neither Parquet nor Arrow" in err
    code, err = convert(capsys, tmp_path / "missing.parquet", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "missing.parquet" in err
    (tmp_path / "empty").mkdir()
    code, err = convert(capsys, tmp_path / "empty", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "empty" in err


def test_without_pyarrow(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, err = convert(capsys, tmp_path, "-o", tmp_path / "out.jsonl")
    assert code == 2 and f"{shlex.quote(sys.executable)} -m pip install pyarrow" in err


#
# Links and special files
#

@pytest.mark.parametrize("links", [["up"], ["up1", "up2"]])
def test_links_that_lead_back(links, tmp_path, capsys):
    """Two of them describe 2^32 paths of at most 32 folders."""
    folder = tmp_path / "set" / "deep"
    folder.mkdir(parents=True)
    write_stream(folder / "a.arrow", table())
    for link in links:
        (folder / link).symlink_to("..")
    code, err = convert(capsys, tmp_path / "set", "-o", tmp_path / "out.jsonl")
    assert code == 3 and err == (f"lrnn-convert: {folder / links[0]}: is a loop of links: it leads "
                                 "to a folder that contains it\n")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_link_to_itself(tmp_path, capsys):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "self").symlink_to("self")
    code, err = convert(capsys, tmp_path / "set", "-o", tmp_path / "out.jsonl")
    assert code == 3 and err.count("\n") == 1 and str(tmp_path / "set" / "self") in err


def test_a_folder_is_read_once(tmp_path, capsys):
    """Also if links lead to it from several places, as in lrnn-perplexity run --data."""
    folder = tmp_path / "set"
    (folder / "b").mkdir(parents=True)
    write_stream(folder / "b" / "a.arrow", table())
    (folder / "c").symlink_to("b")
    (folder / "a").symlink_to("b")
    code, err = convert(capsys, folder, "-o", tmp_path / "out.jsonl")
    assert code == 0 and read(tmp_path / "out.jsonl") == RECORDS and "a/a.arrow" in err
    # folders that are named are read as often as they are named
    code, err = convert(capsys, folder, folder, "-o", tmp_path / "out.jsonl")
    assert code == 0 and read(tmp_path / "out.jsonl") == RECORDS + RECORDS


@pytest.mark.parametrize("depth, code", [(32, 0), (33, 3)])
def test_nested_folders(depth, code, tmp_path, capsys):
    folder = tmp_path / "set"
    deepest = folder.joinpath(*["d"] * (depth - 1))
    deepest.mkdir(parents=True)
    write_stream(deepest / "a.arrow", table())
    found, err = convert(capsys, folder, "-o", tmp_path / "out.jsonl")
    assert found == code and ("more than 32 nested folders" in err) == (code == 3)


def test_special_files(tmp_path, capsys):
    folder = tmp_path / "set"
    folder.mkdir()
    write_stream(folder / "a.arrow", table())
    os.mkfifo(folder / "pipe")             # opening it would wait for a writer
    code, err = convert(capsys, folder, "-o", tmp_path / "out.jsonl")
    assert code == 0 and f"skipped:   {folder / 'pipe'}" in err
    code, err = convert(capsys, folder / "pipe", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "expected a regular file" in err


@pytest.mark.parametrize("name", ["../a.arrow", "/etc/hostname", "", "..", 1, None, [],
                                  "x/a.arrow"])
def test_state_files_name_files_of_their_folder(name, tmp_path, capsys):
    save_to_disk(tmp_path / "saved", table(), [0, 1])
    write_stream(tmp_path / "a.arrow", table())
    state = {"_data_files": [{"filename": name}]}
    (tmp_path / "saved" / "state.json").write_text(json.dumps(state))
    code, err = convert(capsys, tmp_path / "saved", "-o", tmp_path / "out.jsonl")
    assert code == 3 and "state.json" in err and err.count("\n") == 1
