"""lrnn-perplexity export, against an independent reading of the score files."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_report_values import read_scores  # noqa: E402

COLUMNS = ["token", "position", "document", "byte", "loss"]
WINDOW = 300


def scores(lrnn, path, *settings):
    (lrnn.work / path).parent.mkdir(parents=True, exist_ok=True)
    lrnn.tool("make-scores", path, f"window={WINDOW}", "n_windows=8", "wobble=0.02",
              "doc_bytes=700", *settings)


def export(lrnn, *args):
    return lrnn.run("lrnn-perplexity", "export", *args)


def read_csv(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == COLUMNS
    return rows


def expected_rows(path):
    """(token, position, document, {bytes it may begin at}, loss) from the bytes of the file. In
    every document that begins inside a window, the bytes of all targets are known."""
    for w, (nll, n_bytes, _, spans) in enumerate(read_scores(path)):
        byte = None
        document = int(spans[0][1])
        starts = {int(first): (int(d), int(b)) for first, d, b in spans[1:]}
        for t, (loss, size) in enumerate(zip(nll, n_bytes), 1):
            if t in starts:
                document, byte = starts[t]
            yield w * WINDOW + t, t, document, byte, loss
            byte = None if byte is None else byte + int(size)


@pytest.mark.parametrize("settings", [[], ["nan_window=2", "nan_position=50"], ["norm=1.0"],
                                      ["short_every=3", "mode=document"]], ids=str)
def test_every_cell(lrnn, settings):
    scores(lrnn, "a.nll", "model=a", *settings)
    rows = read_csv(export(lrnn, "a.nll").stdout)
    expected = list(expected_rows(lrnn.work / "a.nll"))
    assert len(rows) == len(expected) > 1000
    n_known = 0
    for row, (token, position, document, byte, loss) in zip(rows, expected):
        assert (int(row["token"]), int(row["position"]), int(row["document"])) == \
            (token, position, document)
        assert np.array_equal(np.float32(row["loss"]), np.float32(loss), equal_nan=True)
        if byte is not None:
            n_known += 1
            assert int(row["byte"]) == byte
    assert n_known > 100

    export(lrnn, "a.nll", "--format", "csv", "--out", "a.csv")
    assert read_csv((lrnn.work / "a.csv").read_text()) == rows
    export(lrnn, "a.nll", "--format", "npy", "--out", "a.npy")
    array = np.load(lrnn.work / "a.npy")
    assert list(array.dtype.names) == COLUMNS
    for name in COLUMNS[:4]:
        assert array[name].tolist() == [int(row[name] or -1) for row in rows]
    assert np.array_equal(array["loss"], np.float32([row["loss"] for row in rows]), equal_nan=True)


def test_shards(lrnn):
    scores(lrnn, "a.nll", "model=a")
    for shard in (1, 2, 3):
        scores(lrnn, f"shards/{shard}.nll", "model=a", f"shard={shard}", "n_shards=3")
    assert export(lrnn, "shards").stdout == export(lrnn, "a.nll").stdout


def test_logits(lrnn):
    """Losses and bytes of a real run: tokens are the bytes of the text."""
    model = lrnn.text_model("delta_net_neg", "m.gguf")
    text = bytes(97 + (i * i // 7 + i) % 26 for i in range(400))
    lrnn.write("text.txt", text)
    lrnn.run("lrnn-perplexity", "run", "-m", model, "--data", "text.txt", "-w", "64", "--bos",
             "none", "--out", "out", "-t", "1")
    lrnn.write("ids.txt", " ".join(map(str, text[:64])))
    lrnn.run("lrnn-perplexity", "logits", "-m", model, "--tokens", "ids.txt", "--out", "l.npy",
             "-q", "-t", "1")
    rows = read_csv(export(lrnn, "out").stdout)
    logits = np.load(lrnn.work / "l.npy").astype(float)
    assert [int(row["byte"]) for row in rows[:63]] == list(range(1, 64))
    for t in range(1, 64):
        z = logits[t - 1]
        loss = np.log(np.exp(z - z[text[t]]).sum())
        assert float(rows[t - 1]["loss"]) == pytest.approx(loss, abs=1e-3)


def test_refusals(lrnn):
    scores(lrnn, "runs/a.nll", "model=a")
    scores(lrnn, "runs/b.nll", "model=b")
    scores(lrnn, "part.nll", "model=a", "n_write=5")
    code = lrnn.Code
    lrnn.fail(code.DATA, "lrnn-perplexity", "export", "runs", stderr="2 runs; expected 1")
    lrnn.fail(code.DATA, "lrnn-perplexity", "export", "part.nll", stderr="unfinished")
    assert len(read_csv(export(lrnn, "part.nll", "--partial").stdout)) == 5 * (WINDOW - 1)
    lrnn.fail(code.USAGE, "lrnn-perplexity", "export")
    lrnn.fail(code.USAGE, "lrnn-perplexity", "export", "part.nll", "--format", "json")
    before = (lrnn.work / "part.nll").read_bytes()
    lrnn.run("lrnn-perplexity", "export", "part.nll", "--partial", "--out", "part.nll",
             code=code.USAGE)
    assert (lrnn.work / "part.nll").read_bytes() == before
