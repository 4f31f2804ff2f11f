"""lrnn-perplexity report and compare on synthetic score files."""

import csv
import itertools
import json
import re
import subprocess
from xml.etree import ElementTree

import pytest

FILES = ["report.json", "buckets.csv", "prefix.csv", "report.svg", "report.html"]
POS = ["model=pos", "dataset=code", "rise=0.2", "wobble=0.02"]
NEG = ["model=neg", "dataset=code", "wobble=0.02"]
PROSE = ["model=neg", "dataset=prose"]


class Reports:
    def __init__(self, lrnn):
        self.lrnn, self.work, self.Code = lrnn, lrnn.work, lrnn.Code
        self.scores("runs/pos.nll", *POS)
        self.scores("runs/neg.nll", *NEG)
        self.scores("runs/prose.nll", *PROSE)

    def scores(self, path, *settings):
        (self.work / path).parent.mkdir(parents=True, exist_ok=True)
        self.lrnn.tool("make-scores", path, "trained_length=256", "window=1024", "n_windows=12",
                       *settings)

    def run(self, *args, **options):
        return self.lrnn.run("lrnn-perplexity", *args, **options)

    def fail(self, code, *args, **options):
        return self.lrnn.fail(code, "lrnn-perplexity", *args, **options)

    def files(self, folder):
        return {name: (self.work / folder / name).read_bytes() for name in FILES}


@pytest.fixture
def reports(lrnn):
    return Reports(lrnn)


def test_every_format(reports):
    done = reports.run("report", "runs", "--format", "table,json,csv,svg,html", "--baseline", "pos",
                       "--out", "a", stderr="wrote a/report.svg")
    for title in ("The first L tokens: perplexity", "-- trained on 256 --",
                  "Difference from pos, paired by window"):
        assert title in done.stdout
    for name in FILES:
        assert (reports.work / "a" / name).exists()

    # with both streams in one file, messages are after the table and not inside a line of it
    with open(reports.work / "both", "w") as both:
        subprocess.run([reports.lrnn.bin / "lrnn-perplexity", "report", "runs", "--baseline", "pos",
                        "--format", "table,json,csv,svg,html", "--out", "a"],
                       cwd=reports.work, stdout=both, stderr=both, check=True)
    assert (reports.work / "both").read_text() == done.stdout + done.raw_stderr

    report = json.loads((reports.work / "a/report.json").read_text())
    assert report["schema"] == "lrnn-perplexity/2"
    assert len(report["runs"]) == 3
    assert report["runs"][0]["model"]["name"] == "neg"
    assert len(report["runs"][0]["windows"]) == 12
    assert report["runs"][0]["prefix"][0]["length"] == 128
    assert report["comparisons"][0]["beyond_trained_length"]["won"] == 12

    rows = (reports.work / "a/prefix.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 * 4  # 3 runs with prefixes of 128, 256, 512, 1024
    assert rows[0].startswith("model,dataset,protocol,length,tokens,")


# names that need escapes in every format, a degrading model, non-finite losses, two tokenizers
ODD = {"plain": ["norm=1"],
       "<script>\"x\" & 'y', z</script>-q4_k": ["quantization=q4_k", "level=0.61"],
       "a name that is a good deal longer than any table or chart would like it to be é中":
           ["trained_length=1024", "rise=2"],
       "nan": ["nan_window=5", "nan_position=3000"], "other tokens": ["tokenizer=t1"],
       "few windows": ["dataset=other", "window=600", "n_windows=2"]}


@pytest.mark.parametrize("options", [[], ["--y", "nats", "--x", "linear"], ["--y", "bpb"],
                                     ["--y", "bpb", "--smooth", "101"]])
def test_every_format_is_well_formed(reports, options):
    for i, (name, settings) in enumerate(ODD.items()):
        reports.scores(f"odd/{i}.nll", f"model={name}", "window=4096", "trained_length=512",
                       "sources=web\t<b>&\"books\"", *settings)
    for source in ("odd", "odd/0.nll"):
        table = reports.run("report", source, "--format", "table,json,csv,svg,html", "--out", "a",
                            *options).stdout
        files = {name: data.decode() for name, data in reports.files("a").items()}
        for name in ("report.svg", "report.html"):
            ElementTree.fromstring(files[name])
            # no external resources; the name of a namespace is not fetched
            text = files[name].replace('"http://www.w3.org/2000/svg"', "")
            assert not re.search(r"http|<script|url\(|@import", text), name
            assert "prefers-color-scheme:dark" in text
        json.loads(files["report.json"], parse_constant=pytest.fail)
        for name in ("buckets.csv", "prefix.csv"):
            rows = list(csv.reader(files[name].splitlines()))
            assert len(rows) > 1 and len({len(row) for row in rows}) == 1, name
        assert 50 < max(map(len, table.splitlines())) <= 100
        assert not re.search(r"[±−–…×]|[\0-\x09\x0b-\x1f\x7f-\x9f]", table)
        terminal = reports.lrnn.on_terminal("lrnn-perplexity", "report", source, *options,
                                            env={"LC_ALL": "C.UTF-8"})
        assert terminal.close() == reports.Code.OK
        assert 40 < max(map(len, terminal.lines())) <= 80
        if source == "odd":
            # a title, and panels: tokenizers share one only in bits per byte
            heads = re.findall('lc-head"', files["report.svg"])
            assert len(heads) == 1 + (2 if "bpb" in options else 3)
            assert "Dashed: quantized." in files["report.svg"]


def test_list_of_columns(reports):
    """--list-columns names every column of both CSV files."""
    listed = reports.run("report", "--list-columns").stdout
    reports.run("report", "runs", "--format", "csv", "--out", "a")
    for name in ("buckets.csv", "prefix.csv"):
        head = (reports.work / "a" / name).read_text().splitlines()[0]
        missing = [column for column in head.split(",") if f"\n  {column} " not in listed]
        assert missing == []


def test_equal_bytes(reports):
    """The same report again, and from shards in folders in another order."""
    options = ["--format", "json,csv,svg,html", "--baseline", "pos", "--out"]
    for folder in ("a", "b"):
        reports.run("report", "runs", *options, folder)
    for shard in (1, 2, 3):
        reports.scores(f"shards/neg-{shard}.nll", *NEG, f"shard={shard}", "n_shards=3")
    reports.scores("shards/deep/pos.nll", *POS)
    reports.scores("shards/prose.nll", *PROSE)
    reports.run("report", "shards/neg-3.nll", "shards/neg-1.nll", "shards/neg-2.nll", "shards/deep",
                "shards/prose.nll", *options, "c")
    assert reports.files("a") == reports.files("b")
    assert reports.files("a") == reports.files("c")


def test_compare(reports):
    from_files = reports.run("compare", "runs/pos.nll", "runs/neg.nll",
                             stdout="beyond 256 .* 12 of 12").stdout
    assert "neg (second) minus pos (first), nats per token" in from_files
    log2 = reports.run("compare", "runs/pos.nll", "runs/neg.nll", "--bucket", "log2").stdout
    assert re.search(r"^ *1-2 .*\n *3-4 .*\n *5-8 ", log2, flags=re.M)


def test_compare_refuses(reports):
    data = reports.Code.DATA
    reports.fail(data, "compare", "runs/neg.nll", "runs/prose.nll",
                 stderr="data_fingerprint is 'code' in one and 'prose' in the other")
    reports.scores("other-window.nll", "model=w", "dataset=code", "window=2048")
    reports.fail(data, "compare", "runs/neg.nll", "other-window.nll",
                 stderr="window is 1024 in one and 2048 in the other")
    reports.scores("other-tokens.nll", "model=t", "dataset=code", "tokenizer=t1")
    reports.run("compare", "runs/neg.nll", "other-tokens.nll", stdout="bits per byte")
    reports.run("report", "runs/neg.nll", "--format", "json", "--out", "neg")
    reports.fail(data, "compare", "runs/neg.nll", "neg/report.json",
                 stderr="neg/report.json: not a score file")
    reports.fail(reports.Code.USAGE, "compare", "runs/neg.nll")


@pytest.mark.parametrize("locale", ["C", "en_US.UTF-8"])
def test_names_in_other_alphabets(reports, monkeypatch, locale):
    """A redirected table has ASCII symbols, but names as they are, without control characters."""
    monkeypatch.setenv("LC_ALL", locale)
    names = ["größe-±2", "модель", "模型"]
    for i, name in enumerate(names):
        reports.scores(f"names/{i}.nll", f"model={name}", "dataset=café", "wobble=0.02")
    reports.scores("names/evil.nll", "model=red\033[31m\u009b31m", "dataset=café", "wobble=0.02")
    done = reports.run("report", "names", binary=True).stdout
    text = done.decode("utf-8")
    for name in ["café", "größe-+-2", "модель", "模型", "red?[31m?31m"]:
        assert name in text, text
    assert "+-" in text and "±" not in text and "\033" not in text and "\u009b" not in text
    compared = reports.run("compare", "names/0.nll", "names/1.nll", binary=True).stdout
    assert "модель" in compared.decode("utf-8")


FORMULAS = ["=1+1", "=HYPERLINK(\"http://x\",\"y\")", "+1", "-1", "@SUM(1)", "\t=1", "\r=1"]


def test_names_that_are_formulas(reports):
    """Spreadsheets calculate cells that begin like these; an apostrophe makes them text."""
    for i, name in enumerate([*FORMULAS, "a=b", "1-2"]):
        reports.scores(f"formulas/{i}.nll", f"model={name}", "dataset=@set", "wobble=0.02")
    reports.run("report", "formulas", "--format", "csv,json", "--out", "a")
    for name in ("buckets.csv", "prefix.csv"):
        with open(reports.work / "a" / name, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["model"] for row in rows} == {*("'" + f for f in FORMULAS), "a=b", "1-2"}
        assert {row["dataset"] for row in rows} == {"'@set"}
        for row in rows:
            assert [v for v in row.values() if v and v[0] in "=+@\t\r"] == []
    report = json.loads((reports.work / "a/report.json").read_text())
    assert {run["model"]["name"] for run in report["runs"]} == {*FORMULAS, "a=b", "1-2"}


def test_incomplete_runs(reports):
    reports.scores("part.nll", "model=part", "dataset=code", "n_write=7")
    reports.fail(reports.Code.DATA, "report", "part.nll", stderr="it has 7 of 12 windows")
    done = reports.run("report", "part.nll", "--partial")
    assert "partial: 7 of 12 windows are there" in done.stdout
    assert "Student's t on window means" in done.stdout
    for shard in (1, 3):
        reports.scores(f"shards/neg-{shard}.nll", *NEG, f"shard={shard}", "n_shards=3")
    reports.fail(reports.Code.DATA, "report", "shards/neg-1.nll", "shards/neg-3.nll",
                 stderr="shard 2 is missing")
    reports.scores("shards/again.nll", *NEG, "shard=1", "n_shards=3")
    reports.fail(reports.Code.DATA, "report", "shards", stderr="overlap")


def test_report_refuses(reports):
    data, usage = reports.Code.DATA, reports.Code.USAGE
    reports.run("report", "runs", "--format", "json,csv,svg,html", "--out", "a")
    reports.fail(data, "report", "nowhere")
    reports.fail(data, "report", "a", stderr="no score files")
    reports.lrnn.write("text.nll", "not a score file, but long enough to be looked at as one")
    reports.fail(data, "report", "text.nll")
    reports.fail(data, "report", "runs", "--baseline", "nobody", stderr="no model 'nobody'")
    reports.fail(usage, "report")
    reports.fail(usage, "report", "runs", "--format", "pdf",
                 stderr="none of table, json, csv, svg, html")
    reports.fail(usage, "report", "runs", "--bucket", "few")
    reports.fail(usage, "report", "runs", "--smooth", "10")


def test_loops_of_links(reports):
    """Links to a folder above end with a message, not after 2^40 paths; others are followed."""
    for name in ("up", "again"):
        (reports.work / "runs" / name).symlink_to("..")
    reports.fail(reports.Code.DATA, "report", "runs", timeout=20,
                 stderr="runs/again: is a loop of links: it leads to a folder that contains it|"
                        "runs/again/runs: is a loop of links")

    # two links per level: 2^20 paths to one folder, which counts once
    reports.scores("levels/20/pos.nll", *POS)
    for i in range(20):
        (reports.work / f"levels/{i}").mkdir()
        for name in ("a", "b"):
            (reports.work / f"levels/{i}/{name}").symlink_to(f"../{i + 1}")
    (reports.work / "levels/20/dangling.nll").symlink_to("nowhere")
    reports.run("report", "levels/0", timeout=20, stdout="pos")


def test_order_of_files(reports):
    """Numbers in names are ordered by value."""
    names = ["step2", "step20000", "step100000", "step100000a"]
    for name in reversed(names):
        reports.scores(f"steps/{name}.nll", f"model={name}", "dataset=code", "wobble=0.02")
    reports.run("report", "steps", "--format", "json", "--out", "a")
    report = json.loads((reports.work / "a/report.json").read_text())
    assert [run["model"]["name"] for run in report["runs"]] == names


LABEL = re.compile(r'<path class="lc-line (lc-s\d+)"((?: stroke-dasharray="[^"]*")?) '
                   r'd="M[\d.]+ [\d.]+h[\d.]+"/>'  # a sample of the line and its marker
                   r'<path class="lc-f\d+" d="M[\d.]+ [\d.]+([^"]*)"/>'
                   r'<text class="lc-ink" x="([\d.]+)" y="([\d.]+)"><title>([^<]*)</title>([^<]*)<')


@pytest.mark.parametrize("n", [3, 20, 60])
def test_many_models(reports, n):
    """Every line has a label that no other one touches, its own style, and the part of its name
    that distinguishes it; a warning of many models names some."""
    names = [f"a-long-beginning-340M-{family}-negative-eigenvalues-lr3e-4-step{step}0000-seed1-end"
             for step in range(1, n // 3 + 2) for family in ("deltanet", "gated-deltanet", "mamba")]
    for i, name in enumerate(names[:n]):
        reports.scores(f"many/{name}.nll", f"model={name}", "dataset=code", "wobble=0.02",
                       f"shift={0.01 * i}", "nan_window=3", "nan_position=700")
    done = reports.run("report", "many", "--format", "table,svg,html", "--out", "a")
    svg = (reports.work / "a/report.svg").read_text(encoding="utf-8")
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])
    found = LABEL.findall(svg)
    assert len(found) == n + n - 1  # the lower panel lacks the baseline
    found = found[:n]
    assert {label[5] for label in found} == set(names[:n])
    assert len({label[:3] for label in found}) == n  # color, dashes, marker
    assert len({label[6] for label in found}) == n
    for *_, name, text in found:
        assert len(text) <= 30
        assert n == 3 or name.split("-step")[1].split("-")[0] in text, text
        assert ("gated" in text, "mamba" in text) == ("gated" in name, "mamba" in name), text
    at = sorted(float(label[4]) for label in found)
    assert all(b - a > 14 for a, b in itertools.pairwise(at))
    assert at[-1] < float(re.search(r'class="lc-thin lc-axis" d="M[\d.]+ ([\d.]+)H', svg)[1]) + 5
    assert at[-1] < height

    page = (reports.work / "a/report.html").read_text(encoding="utf-8")
    for text in (re.sub(r"\s+", " ", done.stdout), page):
        assert (f" and {n - 4} more: diverged: " in text) == (n > 4)
        assert " more: " in text or n == 3
    assert ("Dashed: quantized." in svg.replace("\n", " ")) == (n == 3)
    for name in names[:n]:  # shortened names are explained
        assert f": {name}\n" in done.stdout or name in re.sub(r"\n *", "", done.stdout)


def test_values_beyond_a_cut_axis(reports):
    """Of many lines that leave the chart, the four that go farthest have their values."""
    for i in range(12):
        reports.scores(f"cut/{i}.nll", f"model=m{i}", "dataset=code", f"rise={1.2 + 0.2 * i}")
    reports.run("report", "cut", "--format", "svg", "--out", "a")
    svg = (reports.work / "a/report.svg").read_text(encoding="utf-8")
    top, bottom = ([float(v) for v in re.findall(r">up to ([\d.e+]+)<", part)]
                   for part in svg.split("difference from"))
    assert len(top) == 4 and top == sorted(top)
    assert len(bottom) == 4
    for i, value in enumerate(bottom):  # m8 ... m11 differ from m0 by 8 ... 11 steps
        assert value / bottom[3] == pytest.approx((8 + i) / 11, rel=0.01)
