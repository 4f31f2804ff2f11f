"""lrnn-convert on a terminal: the progress line is redrawn in place and leaves nothing behind."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "convert"), str(ROOT / "convert" / "tests")]

import tiny  # noqa: E402


def screen(text, columns):
    """What a terminal of endless height shows."""
    lines, row, column = [""], 0, 0
    for c in text.replace("\r\n", "\n"):
        if c == "\r":
            column = 0
            continue
        if c == "\n" or column == columns:
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        if c != "\n":
            lines[row] = lines[row][:column].ljust(column) + c + lines[row][column + 1:]
            column += 1
    return [line.rstrip() for line in lines]


def test_the_screen():
    assert screen("ab\rc\r\nde", 80) == ["cb", "de"]
    assert screen("abcde\rf\n", 3) == ["abc", "fe", ""]


def on_terminal(lrnn, columns, *args):
    """Runs the converter on a terminal and on a pipe. Both show the same in the end. Returns what
    was printed on the terminal."""
    terminal = lrnn.on_terminal("lrnn-convert", *args, columns=columns)
    assert terminal.close() == 0, terminal.text()
    piped = lrnn.run("lrnn-convert", *args)
    assert screen(terminal.text(), columns) == screen(piped.stderr, columns)
    return terminal.text()


@pytest.mark.parametrize("columns", [200, 80, 40, 12, 1])
def test_conversion(lrnn, columns):
    from safetensors.numpy import save_file
    config, tensors = tiny.delta_net()
    lrnn.write("ckpt/config.json", json.dumps(config))
    save_file(tensors, lrnn.work / "ckpt/model.safetensors")
    text = on_terminal(lrnn, columns, "ckpt", "-o", "out.gguf")
    drawn = [line for line in text.split("\r") if line.startswith("[")]
    assert len(drawn) == len(tensors) * (columns > 1)
    if columns >= 40:                      # the bar, the percentage and the name of a tensor
        assert "#] 100 %  blk.1.ffn_down" in drawn[-1]


def test_an_error_stands_alone(lrnn):
    from safetensors.numpy import save_file
    config, tensors = tiny.delta_net()
    lrnn.write("ckpt/config.json", json.dumps(config))
    tensors["model.layers.1.mlp.down_proj.weight"][0, 0] = 1e30
    save_file(tensors, lrnn.work / "ckpt/model.safetensors")
    args = ["ckpt", "-o", "out.gguf", "--type", "f16"]
    terminal = lrnn.on_terminal("lrnn-convert", *args, columns=80)
    assert terminal.close() == lrnn.Code.DATA and "[##" in terminal.text()
    piped = lrnn.run("lrnn-convert", *args, code=lrnn.Code.DATA, stderr="use --type bf16")
    assert screen(terminal.text(), 80) == screen(piped.stderr, 80)


@pytest.mark.parametrize("columns", [80, 40])
def test_data(lrnn, columns):
    import pyarrow as pa
    import pyarrow.parquet
    name = "records" * 20 + ".parquet"
    pa.parquet.write_table(pa.table({"text": ["a"] * 30001}), lrnn.work / name)
    text = on_terminal(lrnn, columns, "data", name, "-o", "out.jsonl")
    assert "20000 records" in text
