"""lrnn-paper, which the target `paper` runs: a page with the results of the paper."""

import re
import shutil

# Table 3 of arXiv 2411.12537: model, then parity, arithmetic without and with brackets
PAPER = """
    Transformer       0.022  0.031  0.067
    mLSTM             0.087  0.040  0.114
    sLSTM             1.000  0.787  0.178
    Mamba [0,1]       0.000  0.095  0.123
    Mamba [-1,1]      1.000  0.241  0.116
    DeltaNet [0,1]    0.017  0.314  0.194
    DeltaNet [-1,1]   1.000  0.971  0.260
"""


def page(lrnn, models):
    lrnn.run("lrnn-paper", "--models", models, "--work", ".", "--trials", 64, "--sequences", 8,
             "-o", "page.html")
    return (lrnn.work / "page.html").read_text()


def test_shipped_and_missing_models(lrnn):
    """A shipped model has its score, any other one of the 21 cells is marked."""
    folder = lrnn.work / "some"
    folder.mkdir()
    for name in ("parity-delta-neg", "parity-delta-pos", "arith5-delta-neg",
                 "s3-deltaproduct2-neg"):
        shutil.copy(lrnn.models / f"{name}.gguf", folder)
    html = page(lrnn, folder)
    assert html.count("<td>not trained</td>") == 21 - 2
    for line in PAPER.split("\n")[1:-1]:
        model, *scores = re.split(r"  +", line.strip())
        cells = re.findall(rf"<th>{re.escape(model)} ?</th><td>(.*?)</td>", html)
        assert cells == scores, model
    row, = re.findall(r"<th>DeltaNet \[-1,1\]</th>(.*?)<td>parity-delta-neg</td>", html)
    # 64 of 64: Wilson's interval ends at 64/(64 + z²), scaled (x − 1/2) · 2
    low = 2 * 64 / (64 + 1.959964**2) - 1
    assert row.count(f"<td>1.000 [{low:.3f}, 1.000]</td>") == 2  # F32 and Q8_0
    assert "<td>+0.0</td>" in row                                # points above the paper
    hinted, = re.findall(r"<th>DeltaNet \[-1,1\], with hints</th>(.*?)<td>arith5-", html)
    score, points = re.match(r"<td></td><td>(\S+) \[.*?\]</td><td>(\S+)</td>", hinted).groups()
    assert abs(100 * (float(score) - 0.971) - float(points)) < 0.11  # both are rounded
    assert html.count("<svg xmlns") == 1                         # of S3
    assert html.count("Not trained: ") == 8
    # self-contained, and nothing is left behind
    assert not re.search(r"<script|<link|src=", html)
    assert sorted(p.name for p in lrnn.work.iterdir()) == ["page.html", "some"]


def test_refusals(lrnn):
    lrnn.write("bad/parity-slstm.gguf", "not a model")
    lrnn.fail(lrnn.Code.MODEL, "lrnn-paper", "--models", "bad", "-o", "page.html",
              stderr="parity-slstm.gguf")
    assert not (lrnn.work / "page.html").exists()
    lrnn.fail(lrnn.Code.USAGE, "lrnn-paper")
