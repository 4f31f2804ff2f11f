"""Every number of a report and of a comparison, read back by name and computed again from the score
files with numpy: nothing here shares code with the programs."""

import csv
import functools
import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

TRAINED, WINDOW, N_WINDOWS, BUCKET = 256, 1024, 8, 128
# 8 windows: the intervals are Student's t, which has a formula
NAMES = {"pos": 'p<o>s & "1"', "neg": "neg", "other": "other"}
SETTINGS = {"pos": ["rise=0.4", "wobble=0.02", "norm=0.5"], "neg": ["wobble=0.02"],
            "other": ["tokenizer=t1"]}


# ---- score files


def read_scores(path):
    """[(nll, bytes, hits, spans) of a window]. The format: examples/eval/scores/score-file.h."""
    data = path.read_bytes()
    assert data[:8] == b"LRNN-NLL"
    at = 16 + int.from_bytes(data[12:16], "little") + 32
    has_norms = b"\nprobe state-norm\n" in data[:at]
    windows = []
    while at < len(data):
        assert data[at:at + 4] == b"NLL1"
        size = int.from_bytes(data[at + 4:at + 8], "little")
        body = data[at + 8:at + 8 + size]
        index, n, n_spans = np.frombuffer(body, "<i8", 3)
        assert index == len(windows)
        first, n_norms = 24, 0
        if has_norms:
            first, n_norms = 32, int(np.frombuffer(body, "<i8", 1, 24)[0])
        spans = np.frombuffer(body, "<i8", 4 * n_spans, first).reshape(n_spans, 4)[:, :3]
        first += 32 * n_spans + 16 * n_norms
        flags = np.frombuffer(body, np.uint8, n, first + 6 * n)
        assert (flags & 1).all()  # every target counts
        windows.append((np.frombuffer(body, "<f4", n, first).astype(float),
                        np.frombuffer(body, "<u2", n, first + 4 * n).astype(int),
                        flags >> 1 & 1, spans))
        at += 8 + size + 8
    return windows


# ---- statistics, by the formulas of examples/eval/estimates/stats.h


NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def t_tail(t, df):
    """P(T > t) of Student's t."""
    if t < 0:
        return 1 - t_tail(-t, df)
    scale = math.gamma((df + 1) / 2) / math.gamma(df / 2) / math.sqrt(df * math.pi)
    angle = math.atan(t / math.sqrt(df))  # x = √df tan φ
    angles = angle + (math.pi / 2 - angle) * (NODES + 1) / 2
    values = scale * math.sqrt(df) * np.cos(angles) ** (df - 1)
    return float((WEIGHTS * values).sum() * (math.pi / 2 - angle) / 2)


@functools.cache
def t_quantile(p, df):
    lo, hi = 0.0, 100.0
    for _ in range(100):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if t_tail(middle, df) > 1 - p else (lo, middle)
    return lo


class Estimate:
    """Σ a / Σ α − Σ b / Σ β over windows."""

    def __init__(self, a, alpha, b=None, beta=None):
        a, alpha = np.asarray(a, float), np.asarray(alpha, float)
        self.n = n = len(a)
        self.value = a.sum() / alpha.sum()
        error = (a - self.value * alpha) / alpha.sum()
        if b is not None:
            b, beta = np.asarray(b, float), np.asarray(beta, float)
            ratio = b.sum() / beta.sum()
            error = error - (b - ratio * beta) / beta.sum()
            self.value -= ratio
        self.se = math.sqrt(n / (n - 1) * (error ** 2).sum())
        half = t_quantile(0.975, n - 1) * self.se
        self.lo, self.hi = self.value - half, self.value + half
        self.p = 2 * t_tail(abs(self.value) / self.se, n - 1)


def test_t_distribution():
    """Values of printed tables."""
    for df, expected in ((1, 12.7062), (7, 2.364624), (30, 2.042272)):
        assert t_quantile(0.975, df) == pytest.approx(expected, rel=1e-5)


# ---- expectations


class Loss:
    """The targets `first` to `last` of every window."""

    def __init__(self, windows, first, last):
        def cut(column):
            return [window[column][first - 1:last] for window in windows]

        self.first, self.last = first, last
        self.sums = np.array([x.sum() for x in cut(0)])
        self.counts = np.array([len(x) for x in cut(0)])
        self.byte_counts = np.array([x.sum() for x in cut(1)])
        self.hit_counts = np.array([x.sum() for x in cut(2)])
        self.tokens, self.bytes = self.counts.sum(), self.byte_counts.sum()
        self.nats = Estimate(self.sums, self.counts)
        self.bits = Estimate(self.sums / math.log(2), self.byte_counts)
        losses = np.concatenate(cut(0))
        self.token_error = math.exp(self.nats.value) * math.sqrt(
            ((losses ** 2).mean() - losses.mean() ** 2) / (len(losses) - 1))

    def columns(self):
        nats, bits = self.nats, self.bits
        return {"tokens": self.tokens, "windows": nats.n, "diverged": 0, "bytes": self.bytes,
                "nll": nats.value, "se": nats.se, "lo": nats.lo, "hi": nats.hi,
                "ppl": math.exp(nats.value), "ppl_lo": math.exp(nats.lo),
                "ppl_hi": math.exp(nats.hi),
                "bpb": bits.value, "bpb_lo": bits.lo, "bpb_hi": bits.hi,
                "acc": self.hit_counts.sum() / self.tokens}


class Run:
    def __init__(self, key, path):
        self.key, self.name, self.path = key, NAMES[key], path
        self.windows = read_scores(path)
        assert len(self.windows) == N_WINDOWS
        last = WINDOW - 1
        self.total = Loss(self.windows, 1, last)
        self.buckets = [Loss(self.windows, first, min(first + BUCKET - 1, last))
                        for first in range(1, last + 1, BUCKET)]
        self.prefixes = [Loss(self.windows, 1, length - 1) for length in (128, 256, 512, 1024)]

    def norms(self, bucket):
        """(median, largest, layer) of the norms 0.5·(1 + window)·at, at = 64, 128, 256, …, of the
        synthetic run "pos", or None if none is in the bucket."""
        inside = [at for at in (64, 128, 256, 512) if bucket.first <= at <= bucket.last]
        if bucket.last == WINDOW - 1:
            inside.append(WINDOW)  # after the last token, which predicts no target
        if self.key != "pos" or not inside:
            return None
        at = max(inside)
        norms = [0.5 * (1 + window) * at for window in range(N_WINDOWS)]
        return np.median(norms), norms[-1], (N_WINDOWS - 1) % 3


class Pair:
    """A comparison of two runs over the same targets."""

    def __init__(self, base, other, first, last):
        a, b = Loss(base.windows, first, last), Loss(other.windows, first, last)
        self.base, self.other = a.nats.value, b.nats.value
        self.difference = Estimate(b.sums, b.counts, a.sums, a.counts)
        self.won = int((b.sums < a.sums).sum())

    def columns(self):
        d = self.difference
        return {"difference": d.value, "se": d.se, "lo": d.lo, "hi": d.hi, "windows": d.n,
                "method": "student-t", "won": self.won, "p": d.p}


class Report:
    def __init__(self, lrnn):
        self.lrnn, self.work = lrnn, lrnn.work
        self.runs = {}
        for key, settings in SETTINGS.items():
            path = lrnn.work / f"{key}.nll"
            lrnn.tool("make-scores", path, f"trained_length={TRAINED}", f"window={WINDOW}",
                      f"n_windows={N_WINDOWS}", "dataset=code", f"model={NAMES[key]}", *settings)
            self.runs[key] = Run(key, path)
        self.by_name = {run.name: run for run in self.runs.values()}
        done = lrnn.run("lrnn-perplexity", "report", *[run.path for run in self.runs.values()],
                        "--bucket", BUCKET, "--baseline", "neg", "--format",
                        "table,json,csv,html", "--out", "out")
        self.table = done.stdout
        self.json = json.loads((self.work / "out/report.json").read_text())
        self.html = (self.work / "out/report.html").read_text()

    def csv(self, name):
        with open(self.work / "out" / name, newline="") as f:
            return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def report(programs_in, tmp_path_factory):
    return Report(programs_in(tmp_path_factory.mktemp("report")))


def check(found, expected, where):
    """Every expected column is there, with its value; numbers are written with 8 digits."""
    for key, value in expected.items():
        assert key in found, (where, key)
        if isinstance(value, str):
            assert found[key] == value, (where, key)
        else:
            assert float(found[key]) == pytest.approx(value, rel=2e-7, abs=1e-12), (where, key)


# ---- files


def test_csv(report):
    for name, kind in (("buckets.csv", "buckets"), ("prefix.csv", "prefixes")):
        rows = report.csv(name)
        expected = [(run, loss) for run in report.runs.values() for loss in getattr(run, kind)]
        assert len(rows) == len(expected)
        found = {}
        for row in rows:
            found[row["model"], int(row["to"] if kind == "buckets" else row["length"])] = row
        for run, loss in expected:
            last = loss.last if kind == "buckets" else loss.last + 1
            row = found[run.name, last]
            check(row, loss.columns(), (name, run.name, last))
            check(row, {"trained_length": TRAINED, "protocol": "custom"}, name)
            if kind == "buckets":
                assert int(row["from"]) == loss.first
                if run.norms(loss) is not None:
                    median, most, _ = run.norms(loss)
                    check(row, {"norm_median": median, "norm_most": most}, name)
                else:
                    assert row["norm_median"] == row["norm_most"] == ""


def test_json_losses(report):
    assert len(report.json["runs"]) == len(report.runs)
    for found in report.json["runs"]:
        run = report.by_name[found["model"]["name"]]
        check(found["total"], run.total.columns(), run.name)
        check(found["total"], {"from": 1, "to": WINDOW - 1, "method": "student-t",
                               "tokens_per_byte": run.total.tokens / run.total.bytes,
                               "llama_perplexity_token_error": run.total.token_error}, run.name)
        assert len(found["buckets"]) == len(run.buckets)
        for row, loss in zip(found["buckets"], run.buckets):
            check(row, {"from": loss.first, "to": loss.last, **loss.columns()}, run.name)
        assert [row["length"] for row in found["prefix"]] == [128, 256, 512, 1024]
        for row, loss in zip(found["prefix"], run.prefixes):
            check(row, loss.columns(), run.name)


def test_json_windows(report):
    for found in report.json["runs"]:
        run = report.by_name[found["model"]["name"]]
        losses = np.array([window[0] for window in run.windows])
        assert found["positions"]["stride"] == 1
        np.testing.assert_allclose(found["positions"]["loss"], losses.mean(0), rtol=2e-7)
        for i, (window, row) in enumerate(zip(run.windows, found["windows"], strict=True)):
            check(row, {"index": i, "nll": window[0].sum(), "tokens": WINDOW - 1}, run.name)
            assert [part[:3] for part in row["source"]] == window[3].tolist()
        for i, row in enumerate(found["units"]):
            assert row["index"] == i
            expected = [[loss.sums[i], loss.counts[i], loss.byte_counts[i], loss.hit_counts[i]]
                        for loss in run.buckets]
            np.testing.assert_allclose(row["buckets"], expected, rtol=1e-12)
        if run.key == "pos":
            with_norms = [loss for loss in run.buckets if run.norms(loss) is not None]
            for row, loss in zip(found["state_norm"], with_norms, strict=True):
                median, most, layer = run.norms(loss)
                check(row, {"from": loss.first, "to": loss.last, "windows": N_WINDOWS,
                            "median": median, "most": most, "layer": layer}, "state_norm")


def test_json_extrapolation(report):
    """The last bucket inside T, 2 T and 4 T, where 4 T is the whole window."""
    for found in report.json["runs"]:
        run, found = report.by_name[found["model"]["name"]], found["extrapolation"]
        inside = run.buckets[TRAINED // BUCKET - 1]
        assert found["trained_length"] == TRAINED
        check(found["inside"], {"from": inside.first, "to": inside.last,
                                "nll": inside.nats.value}, run.name)
        assert [row["factor"] for row in found["at"]] == [2, 4]
        for row in found["at"]:
            loss = run.buckets[row["factor"] * TRAINED // BUCKET - 1]
            d = Estimate(loss.sums, loss.counts, inside.sums, inside.counts)
            check(row, {"from": loss.first, "to": loss.last, "nll": loss.nats.value,
                        "difference": d.value, "se": d.se, "lo": d.lo, "hi": d.hi,
                        "windows": d.n}, run.name)
        # the first bucket that is worse than the best bucket before it, by more than 0.02
        best, degrades = run.buckets[0], None
        for bucket in run.buckets[1:]:
            rise = Estimate(bucket.sums, bucket.counts, best.sums, best.counts)
            if rise.lo > 0.02:
                degrades = {"position": bucket.first, "best": best.first,
                            "difference": rise.value, "lo": rise.lo}
                break
            best = min(best, bucket, key=lambda loss: loss.nats.value)
        assert (found["degrades_from"] is None) == (degrades is None)
        if degrades is not None:
            check(found["degrades_from"], degrades, run.name)


def test_json_comparison(report):
    found, = (c for c in report.json["comparisons"] if c["other"] == NAMES["pos"])
    base, other = report.runs["neg"], report.runs["pos"]
    assert found["base"] == base.name and found["unit"] == "nats per token"
    assert found["trained_length"] == TRAINED and found["windows_left_out"] == 0
    rows = [(found["all"], 1, WINDOW - 1),
            (found["beyond_trained_length"], TRAINED + 1, WINDOW - 1)]
    rows += [(row, row["from"], row["to"]) for row in found["buckets"]]
    assert len(rows) == 2 + len(base.buckets)
    for row, first, last in rows:
        pair = Pair(base, other, first, last)
        check(row, pair.columns(), (first, last))
        check(row, {"ppl_ratio": math.exp(pair.difference.value)}, (first, last))


def test_trained_lengths_differ(lrnn):
    """The larger one decides what is beyond both."""
    runs = []
    for name, trained in (("short", TRAINED), ("long", 2 * TRAINED)):
        path = lrnn.work / f"{name}.nll"
        lrnn.tool("make-scores", path, f"trained_length={trained}", f"window={WINDOW}",
                  f"n_windows={N_WINDOWS}", "dataset=code", f"model={name}", *SETTINGS["pos"])
        runs.append(path)
    for order in (runs, runs[::-1]):
        lrnn.run("lrnn-perplexity", "report", *order, "--bucket", BUCKET, "--format", "json",
                 "--baseline", order[0].stem, "--out", "out")
        found, = json.loads((lrnn.work / "out/report.json").read_text())["comparisons"]
        assert found["base"] == order[0].stem and found["trained_length"] == 2 * TRAINED
        pair = Pair(*[Run("pos", path) for path in order], 2 * TRAINED + 1, WINDOW - 1)
        check(found["beyond_trained_length"], pair.columns(), order[0].stem)


# ---- pages and tables


class Page(HTMLParser):
    """The tables, list items and summaries of a page, as text."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.items, self.summaries, self.names = [], [], [], set()
        self.text = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.names.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td", "li", "summary"):
            self.text = ""

    def handle_data(self, data):
        if self.text is not None:
            self.text += data

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self.tables[-1][-1].append(self.text.strip())
        elif tag == "li":
            self.items.append(self.text)
        elif tag == "summary":
            self.summaries.append(self.text)
        if tag in ("th", "td", "li", "summary"):
            self.text = None


def text_tables(text):
    """The tables of plain text: a rule of dashes follows the header, columns have two spaces
    between them."""
    lines = text.splitlines()
    tables = []
    for i, line in enumerate(lines):
        if re.fullmatch("-{9,}", line):
            rows = [lines[i - 1]]
            for row in itertools.takewhile(str.strip, lines[i + 1:]):
                if not row.startswith("--"):
                    rows.append(row)
            tables.append([re.split(r"\s{2,}", row.strip().replace(" *", "")) for row in rows])
    return tables


def decimals(text):
    return len(text.partition(".")[2])


def check_number(text, value, where):
    """A number rounded to the digits that are shown."""
    number = text.replace(",", "").removesuffix("*").strip()
    assert float(number) == pytest.approx(value, abs=0.50001 * 10.0 ** -decimals(number)), where


def check_cell(text, value, half, where):
    number, _, interval = re.sub(r"\s*(±|\+-)\s*", "|", text).partition("|")
    check_number(number, value, where)
    check_number(interval, half, where)


def check_losses(table, runs, losses_of, where):
    """A table of perplexities: ranges below each other, models side by side."""
    assert table[0][1:] == [run.name for run in runs], where
    rows = [row for row in table[1:] if len(row) == len(table[0])]
    assert len(rows) == len(losses_of(runs[0])), where
    for i, row in enumerate(rows):
        for run, cell in zip(runs, row[1:], strict=True):
            loss = losses_of(run)[i]
            values = loss.columns()
            check_cell(cell, values["ppl"], (values["ppl_hi"] - values["ppl_lo"]) / 2,
                       (where, run.name, row[0]))
        label = row[0].replace(",", "").replace("\N{EN DASH}", "-")
        assert label in (f"{loss.first}-{loss.last}", str(loss.last + 1)), where


def check_overview(table, runs, where):
    assert table[0][1:] == [run.name for run in runs], where
    rows = {row[0]: row[1:] for row in table[1:]}
    for i, run in enumerate(runs):
        total = run.total
        c = total.columns()
        at = {title: cells[i] for title, cells in rows.items() if len(cells) == len(runs)}
        check_cell(at["perplexity"], c["ppl"], (c["ppl_hi"] - c["ppl_lo"]) / 2, where)
        check_cell(at["nats per token"], c["nll"], (c["hi"] - c["lo"]) / 2, where)
        check_cell(at["bits per byte"], c["bpb"], (c["bpb_hi"] - c["bpb_lo"]) / 2, where)
        check_number(at["top-1 accuracy"], c["acc"], where)
        check_number(at["tokens per byte"], total.tokens / total.bytes, where)
        check_number(at["targets"], total.tokens, where)
        check_number(at["bytes"], total.bytes, where)
        check_number(at["windows"], N_WINDOWS, where)
        check_number(at["llama-perplexity's +/-"], total.token_error, where)


def check_tables(tables, report, where):
    runs = [report.runs["pos"], report.runs["neg"]]

    def with_header(first):
        return next(table for table in tables
                    if table[0][0] == first and len(table[0]) == len(runs) + 1)

    check_losses(with_header("L"), runs, lambda run: run.prefixes, where)
    check_losses(with_header("position"), runs, lambda run: run.buckets, where)
    check_overview(with_header("over all targets"), runs, where)
    # the difference from the baseline
    rows = [row for table in tables for row in table
            if row[0] == NAMES["pos"] and len(row) == 6]
    assert len(rows) == 2, where
    for row, first in zip(rows, (1, TRAINED + 1)):
        pair = Pair(runs[1], runs[0], first, WINDOW - 1)
        d = pair.difference
        for text, value in zip(re.findall(r"[-+]\d+\.\d+", row[2]), (d.value, d.lo, d.hi),
                               strict=True):
            check_number(text, value, (where, first))
        check_number(row[3], math.exp(d.value), (where, first))
        assert row[4] == f"{pair.won} of {N_WINDOWS}", where


def test_html_tables(report):
    check_tables(Page(report.html).tables, report, "html")


def test_text_tables(report):
    check_tables(text_tables(report.table), report, "table")


def test_html_names(report):
    """Names come back as they are: in headers, in warnings, and above the facts of a run."""
    page = Page(report.html)
    assert sorted(page.summaries) == sorted(NAMES.values())
    assert any(item.startswith(f"{NAMES['pos']}, neg: ") for item in page.items), page.items
    assert "o" not in page.names  # an element of that name


# ---- compare


def compare(report, a, b):
    done = report.lrnn.run("lrnn-perplexity", "compare", f"{a}.nll", f"{b}.nll",
                           "--bucket", BUCKET)
    tables = text_tables(done.stdout)
    rows = {}
    for table in tables:  # a wide table is cut into several
        for row in table[1:]:
            rows.setdefault(row[0], []).extend(row[1:])
    return rows, done.stdout


def check_p(text, p):
    if text.startswith("<"):
        assert p < float(text[1:])
    else:
        assert float(text) == pytest.approx(p, rel=0.5, abs=1e-4)


def test_compare(report):
    base, other = report.runs["neg"], report.runs["pos"]
    rows, _ = compare(report, "neg", "pos")
    cases = {f"{loss.first}-{loss.last}": (loss.first, loss.last) for loss in base.buckets}
    cases["all"] = (1, WINDOW - 1)
    cases[f"beyond {TRAINED}"] = (TRAINED + 1, WINDOW - 1)
    for label, (first, last) in cases.items():
        pair, cells = Pair(base, other, first, last), list(rows[label])
        d = pair.difference
        if not label.startswith("beyond"):
            check_number(cells.pop(0), pair.base, label)
            check_number(cells.pop(0), pair.other, label)
        difference, interval, ratio, won, p = cells
        check_number(difference, d.value, label)
        for text, value in zip(interval.split(" .. "), (d.lo, d.hi), strict=True):
            check_number(text, value, label)
        check_number(ratio, math.exp(d.value), label)
        assert won == f"{pair.won} of {N_WINDOWS}", label
        check_p(p, d.p)


def tokens_of(run):
    """[(document, first byte, last byte + 1, nll, position, window)] of the targets whose place in
    the text is known: from the first beginning of a document in a window on, and in the first
    window, which begins with one."""
    found = []
    for w, (nll, n_bytes, _, spans) in enumerate(run.windows):
        starts = {int(first): (int(document), int(byte)) for first, document, byte in spans}
        place = starts[0] if w == 0 else None  # x_0 is a BOS without bytes
        for t in range(1, len(nll) + 1):
            place = starts.get(t, place)
            if place is not None:
                end = (place[0], place[1] + int(n_bytes[t - 1]))
                found.append((place[0], place[1], end[1], nll[t - 1], t, w))
                place = end
    return found


def test_compare_tokenizers(report):
    """Stretches of text between places where tokens of both end, by brute force."""
    base, other = report.runs["neg"], report.runs["other"]
    rows, text = compare(report, "neg", "other")
    tokens = [tokens_of(run) for run in (base, other)]
    units = np.zeros((2, N_WINDOWS, 3))  # all or beyond; window of the base; base, other, bytes
    for document in sorted({token[0] for token in tokens[0]} & {token[0] for token in tokens[1]}):
        sides = [[token for token in side if token[0] == document] for side in tokens]
        for stretch in stretches(*sides):
            (a, b), size = stretch, stretch[0][-1][2] - stretch[0][0][1]
            sums = sum(x[3] for x in a), sum(x[3] for x in b), size
            units[0, a[0][5]] += sums
            if all(x[4] > TRAINED for x in a + b):
                units[1, a[0][5]] += sums
    assert str(int(units[0, :, 2].sum())) in re.findall(r"\d+", text.replace(",", ""))
    beyond = next(label for label in rows if label.startswith("beyond"))
    for label, unit in (("all", units[0]), (beyond, units[1])):
        unit = unit[unit[:, 2] > 0]
        size = unit[:, 2] * math.log(2)
        d = Estimate(unit[:, 1], size, unit[:, 0], size)
        cells = list(rows[label])
        if label == "all":
            check_number(cells.pop(0), unit[:, 0].sum() / size.sum(), label)
            check_number(cells.pop(0), unit[:, 1].sum() / size.sum(), label)
        check_number(cells[0], d.value, label)
        for text, value in zip(cells[1].split(" .. "), (d.lo, d.hi), strict=True):
            check_number(text, value, label)
        won = int((unit[:, 1] < unit[:, 0]).sum())
        assert f"{won} of {len(unit)}" in cells, (label, cells)


def stretches(a, b):
    """The shortest stretches that begin and end between tokens of both sides and are covered by
    both without a gap, as (tokens of a, tokens of b)."""
    found = []
    while a and b:
        if a[0][1] != b[0][1]:
            (a if a[0][1] < b[0][1] else b).pop(0)
            continue
        taken, ends = ([], []), [a[0][1], b[0][1]]
        while True:
            side = 0 if ends[0] <= ends[1] else 1
            rest = (a, b)[side]
            both_level = ends[0] == ends[1]
            if both_level and (not a or not b or a[0][1] != ends[0] or b[0][1] != ends[1]):
                break
            if not rest or rest[0][1] != ends[side]:
                break
            token = rest.pop(0)
            taken[side].append(token)
            ends[side] = token[2]
            if ends[0] == ends[1] and ends[0] > taken[0][0][1]:
                found.append(taken)
                taken = ([], [])
    return found
