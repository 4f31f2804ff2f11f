"""lrnn-perplexity run: files, exit codes, resumed and sharded runs, scores against logits."""

import hashlib
import json
import re
import struct

import numpy as np
import pytest

TEXT = "".join(f"Line {i} says {i * 7919 % 1009}, and {i * 7919 % 1009} it is.\n"
               for i in range(1, 91))
NAME = "delta_net_neg"
WINDOW = 128
WINDOWS = ["-w", WINDOW, "-b", "48", "--parallel", "2", "--max-windows", "7"]
DATA = ["--data", "text.txt", *WINDOWS]
MODEL = ["-m", f"{NAME}.gguf"]
MAX_STOPS = 50
LARGEST_DIFFERENCE = 2e-5  # nats, of one token


class Scoring:
    """`lrnn-perplexity run` in a folder with a text and two models whose tokens are bytes."""

    def __init__(self, lrnn):
        self.lrnn, self.Code = lrnn, lrnn.Code
        lrnn.write("text.txt", TEXT)
        for name in (NAME, "gla"):
            lrnn.text_model(name, f"{name}.gguf")

    def run(self, *args, **options):
        return self.lrnn.run("lrnn-perplexity", "run", "-t", "1", *args, **options)

    def report(self, *args, **options):
        return self.lrnn.run("lrnn-perplexity", "report", *args, **options)

    def files(self, folder):
        path = self.lrnn.work / folder
        return sorted(p.name for p in path.iterdir()) if path.exists() else []

    def scores(self, folder):
        return (self.lrnn.work / folder / f"{NAME}.text.nll").read_bytes()

    def run_in_pieces(self, *args):
        """Stops a run after every call and resumes it until it is done. Returns the stops."""
        for n_stops in range(MAX_STOPS):
            resume = ["--resume"] if n_stops > 0 else []
            done = self.lrnn.start("lrnn-perplexity", "run", "-t", "1", *args,
                                   "--time-limit", "0.000001s", *resume)
            if done.code != self.Code.STOPPED:
                assert done.code == self.Code.OK, done.stderr
                return n_stops
        raise AssertionError(f"stopped {MAX_STOPS} times")


@pytest.fixture
def scoring(lrnn):
    return Scoring(lrnn)


@pytest.fixture(scope="module")
def finished(programs_in, tmp_path_factory):
    """The scores and the output of one run that was not interrupted."""
    scoring = Scoring(programs_in(tmp_path_factory.mktemp("finished")))
    stdout = scoring.run(*MODEL, *DATA, "-o", "a").stdout
    assert scoring.files("a") == [f"{NAME}.text.nll"]
    return scoring.scores("a"), stdout


def test_refusals(scoring):
    usage, data, model = scoring.Code.USAGE, scoring.Code.DATA, scoring.Code.MODEL
    scoring.run(*DATA, code=usage, stderr="-m is missing")
    scoring.run(*MODEL, code=usage, stderr="--data is missing")
    for args in (["--dataset", "no-such-set"], ["--shard", "5/4"], ["--shard", "0/4"],
                 ["--shard", "1of4"],
                 ["--time-limit", "5x"], ["--name", "a", "--name", "b"], ["--resume", "--force"],
                 ["--reset", "never", "--shard", "1/2"], ["--probe", "something"]):
        scoring.run(*MODEL, *DATA, *args, code=usage)
    scoring.run(*MODEL, *MODEL, *DATA, "-o", "twice", code=usage,
                stderr="use --name to tell them apart")
    refused = ["-o", "refused"]
    scoring.run(*MODEL, "--data", "no-such-file", *refused, code=data)
    scoring.run(*MODEL, "--data", "text.txt", "-w", "1000000", *refused, code=data,
                stderr="gives no window")
    scoring.run("-m", "text.txt", *DATA, *refused, code=model)
    no_tokenizer = scoring.lrnn.golden / "gla.gguf"
    scoring.run("-m", no_tokenizer, *DATA, *refused, code=model)
    assert scoring.files("refused") == []


def test_list_datasets(scoring):
    scoring.run("--list-datasets", stdout="slimpajama .*codeparrot|codeparrot .*slimpajama")


def test_dry_run(scoring):
    scoring.run(*MODEL, *DATA, "-o", "dry", "--dry-run",
                stdout="windows +7 with 896 tokens and 889 targets")
    assert scoring.files("dry") == []


@pytest.mark.parametrize("names, args, title", [
    (["a.b.jsonl.gz"], [], "a.b"), (["notes"], [], "notes"),
    (["x.txt", "y.txt"], [], "text"), (["x.txt"], ["--dataset", "slimpajama"], "slimpajama")])
def test_title(scoring, names, args, title):
    """Data without a name of its own is called like its file, in the report and before the run."""
    for name in names:
        scoring.lrnn.write(f"data/{name}", json.dumps({"text": TEXT[:4 * WINDOW]}))
    command = [*MODEL, "--data", "data", *WINDOWS, *args, "-o", "out"]
    scoring.run(*command, "--dry-run", stdout=f"\\A{NAME} on {re.escape(title)}\n")
    scoring.run(*command)
    scoring.report("out", stdout=rf"\A{re.escape(title)}\n")


def test_protocol_name(scoring):
    """A protocol with another choice than its own is no longer that protocol."""
    for i, (args, name) in enumerate(((["--protocol", "paper"], "paper"),
                                      (["--protocol", "paper", "--reset", "document"], "custom"),
                                      (["--protocol", "llama", "--mode", "llama"], "llama"))):
        scoring.run(*MODEL, *DATA, "-w", "128", *args, "-o", f"p{i}")
        assert f"\nprotocol {name}\n".encode() in scoring.scores(f"p{i}")


def test_run_again(scoring, finished):
    """An existing run is resumed or overwritten only on request, and only with its settings."""
    scores, stdout = finished
    assert re.fullmatch(rf"[^\n]*{NAME}.text.nll: 7 of 7 windows, 889 targets, perplexity [0-9.]+, "
                        r"[0-9.]+ bits per byte, top-1 [0-9.]+\n", stdout)
    into = ["-o", "a"]
    scoring.run(*MODEL, *DATA, *into, "--force")
    assert scoring.scores("a") == scores
    scoring.run(*MODEL, *DATA, *into, code=scoring.Code.USAGE,
                stderr="exists; use --resume to continue it")
    assert scoring.run(*MODEL, *DATA, *into, "--resume").stdout == stdout
    scoring.run(*MODEL, *DATA, *into, "--resume", "-b", "32", code=scoring.Code.DATA,
                stderr="its n_batch is '48', here it is '32'")
    scoring.run("-m", "gla.gguf", "--name", NAME, *DATA, *into, "--resume", code=scoring.Code.DATA,
                stderr="its model_hash is")
    scoring.run(*MODEL, *DATA, *into, "--force")
    assert scoring.scores("a") == scores


def test_hash_of_the_model(scoring):
    """The hash in the score file is that of the file."""
    scoring.run(*MODEL, *DATA, "-o", "a", "--force")
    found = re.search(rb"\nmodel_hash (\w+)\n", scoring.scores("a"))[1].decode()
    assert found == hashlib.sha256((scoring.lrnn.work / f"{NAME}.gguf").read_bytes()).hexdigest()


def test_old_names_of_options(scoring):
    """The names of version 0.2 give the same bytes."""
    for old, new in ((["--probe", "state-norm"], ["--state-norm"]), (["--group", "3"],
                                                                    ["--parallel", "3"])):
        for folder, option in (("old", old), ("new", new)):
            scoring.run(*MODEL, *DATA, *option, "-o", folder, "--force")
        assert scoring.scores("old") == scoring.scores("new")


def test_pipe(scoring, finished):
    """The same text from a pipe gives the same scores; only the file name differs."""
    piped = scoring.run(*MODEL, "--data", "-", *WINDOWS, "-o", "pipe", stdin=TEXT.encode()).stdout
    assert piped.split("nll: ")[-1] == finished[1].split("nll: ")[-1]


def test_names(scoring):
    scoring.run(*MODEL, "-m", "gla.gguf", "--name", "x/1", "--name", "y", *DATA, "-o", "two")
    assert scoring.files("two") == ["x_1.text.nll", "y.text.nll"]


@pytest.mark.parametrize("name", ["../../x", ".x", ".", "..", ""])
def test_names_that_would_be_hidden(scoring, name):
    """report does not look at hidden files."""
    scoring.lrnn.fail(scoring.Code.USAGE, "lrnn-perplexity", "run", *MODEL, "--name", name, *DATA,
                      "-o", "hidden", stderr=f"the name of the run is '{re.escape(name)}'")
    assert scoring.files("hidden") == []


def test_hidden_model(scoring):
    """A model whose file is hidden needs a name."""
    (scoring.lrnn.work / ".m.gguf").symlink_to(f"{NAME}.gguf")
    scoring.run("-m", ".m.gguf", *DATA, "-o", "hidden", code=scoring.Code.USAGE, stderr="--name")
    scoring.run("-m", ".m.gguf", "--name", "größe", *DATA, "-o", "shown")
    assert scoring.files("shown") == ["größe.text.nll"]
    scoring.report("shown", stdout="größe")


def test_stopped_and_resumed(scoring, finished):
    n_stops = scoring.run_in_pieces(*MODEL, *DATA, "-o", "stopped")
    assert n_stops >= 9  # 4 groups of 3 calls; nothing is left after the last one
    assert scoring.scores("stopped") == finished[0]
    assert scoring.files("stopped") == [f"{NAME}.text.nll"]


def test_stopped_and_resumed_without_resets(scoring):
    command = [*MODEL, "--data", "text.txt", "-w", WINDOW, "--max-windows", "3", "--reset", "never"]
    scoring.run(*command, "-o", "unbroken")
    scoring.run_in_pieces(*command, "-o", "stopped")
    assert scoring.scores("stopped") == scoring.scores("unbroken")


def test_shards(scoring):
    """Four shards give the report of one run. The second is stopped and resumed."""
    scoring.run(*MODEL, *DATA, "-o", "whole")
    into = ["-o", "shards"]
    scoring.run(*MODEL, *DATA, *into, "--shard", "2/4", "--time-limit", "0.000001s",
                code=scoring.Code.STOPPED)
    scoring.run(*MODEL, *DATA, *into, "--shard", "2/4", "--resume")
    for i in (1, 3, 4):
        scoring.run(*MODEL, *DATA, *into, "--shard", f"{i}/4")
    assert scoring.files("shards") == [f"{NAME}.text.{i}-of-4.nll" for i in (1, 2, 3, 4)]
    for folder in ("whole", "shards"):
        scoring.report(folder, "--format", "json,csv", "--out", f"report-{folder}")
    names = scoring.files("report-whole")
    assert names
    for name in names:
        whole, shards = (scoring.lrnn.work / f"report-{f}" / name for f in ("whole", "shards"))
        assert whole.read_bytes() == shards.read_bytes(), name


def test_state_norms(scoring):
    """--state-norm: the same bytes from a resumed run, and a table."""
    probe = ["--state-norm"]
    scoring.run(*MODEL, *DATA, "-o", "norms", *probe)
    again = ["-o", "norms-again"]
    scoring.run(*MODEL, *DATA, *again, *probe, "--time-limit", "0.0001s", code=scoring.Code.STOPPED)
    scoring.run(*MODEL, *DATA, *again, "--resume", code=scoring.Code.DATA,
                stderr="probe is 'state-norm', here it is ''")
    scoring.run(*MODEL, *DATA, *again, "--resume", *probe)
    assert scoring.scores("norms") == scoring.scores("norms-again")
    scoring.report("norms", "--format", "table,json,csv", "--out", "report",
                   stdout=r"Largest state norm.*\n *113-127 +[0-9.]+ / [0-9.]+\n")
    text = (scoring.lrnn.work / "report/report.json").read_text()
    assert re.search(r'"state_norm": .[ \n]+. "from": 33, "to": 48, "windows": 7, '
                     r'"median": [0-9.]+, "most": ', text)
    json.loads(text)


def test_state_norms_of_long_windows(scoring):
    """Far out, one norm every 2,048 tokens."""
    scoring.lrnn.write("long.txt", TEXT * 3)
    scoring.run(*MODEL, "--data", "long.txt", "-w", "7000", "-b", "512", "--max-windows", "1",
                "-o", "norms", "--state-norm")
    scoring.report("norms", "--bucket", "2048",
                   stdout=r"Largest state norm.*\n1-2,048 [^\n]*\n2,049-4,096 [^\n]*\n"
                          r"4,097-6,144 [^\n]*\n6,145-6,999 ")


def test_rounded_states(scoring):
    """--state-type: part of the name, the file and the report; it does not depend on calls."""
    scoring.run(*MODEL, *DATA, "-o", "all")
    scoring.run(*MODEL, *DATA, "-o", "all", "--state-type", "bf16")
    scoring.run(*MODEL, *DATA, "-o", "again", "--state-type", "bf16", "--name", NAME,
                "--time-limit", "0.0001s", code=scoring.Code.STOPPED)
    scoring.run(*MODEL, *DATA, "-o", "again", "--resume", code=scoring.Code.DATA,
                stderr="state_type is 'bf16', here it is ''")
    scoring.report("all", "--format", "json", "--baseline", NAME, "--out", "report")
    report = json.loads((scoring.lrnn.work / "report/report.json").read_text())
    found = {run["model"]["name"]: run for run in report["runs"]}
    exact, rounded = found[NAME], found[f"{NAME}-state-bf16"]
    assert (exact["protocol"]["state_type"], rounded["protocol"]["state_type"]) == ("", "bf16")
    assert 1e-6 < abs(exact["total"]["nll"] - rounded["total"]["nll"]) < 0.1
    assert len(report["comparisons"]) == 1


# ---- the scores, computed again from the logits of another command


def nll_from_scores(scores):
    """The loss of every target of the first window of a score file."""
    n_text, = struct.unpack_from("<I", scores, 12)
    body = 16 + n_text + 32 + 8
    n_targets, n_spans = struct.unpack_from("<qq", scores, body + 8)
    return np.frombuffer(scores, "<f4", n_targets, body + 24 + 32 * n_spans).astype(float)


def nll_from_logits(logits, ids):
    """logits [tokens, vocabulary], ids [tokens]; row t predicts token t + 1"""
    z = logits.astype(float)
    targets = ids[1:, None]
    return np.log(np.exp(z[:-1] - np.take_along_axis(z[:-1], targets, 1)).sum(1))


def assert_equal_scores(scores, logits, ids):
    found, expected = nll_from_scores(scores), nll_from_logits(logits, ids)
    assert len(found) == WINDOW - 1
    assert np.abs(found - expected[:len(found)]).max() < LARGEST_DIFFERENCE


def first_window_logits(scoring, cut):
    ids = np.frombuffer(TEXT[:WINDOW].encode(), np.uint8).astype(int)
    scoring.lrnn.write("ids.txt", " ".join(map(str, ids)) + "\n")
    scoring.lrnn.run("lrnn-perplexity", "logits", *MODEL, "-t", "1", "--tokens", "ids.txt",
                     "--cut", cut, "--out", "logits.npy", "-q")
    return np.load(scoring.lrnn.work / "logits.npy"), ids


@pytest.mark.parametrize("cut", [128, 7, 1])
def test_scores_match_logits(scoring, finished, cut):
    assert_equal_scores(finished[0], *first_window_logits(scoring, cut))


def test_batch_size_changes_only_rounding(scoring):
    logits, ids = first_window_logits(scoring, 1)
    perplexities = set()
    for batch in (1, 7, 64, 512):
        folder = f"batch-{batch}"
        stdout = scoring.run(*MODEL, "--data", "text.txt", "-w", WINDOW, "--max-windows", "3",
                             "-b", batch, "-o", folder).stdout
        perplexities.add(re.search("perplexity ([0-9.]+)", stdout).group(1))
        assert_equal_scores(scoring.scores(folder), logits, ids)
    assert len(perplexities) <= 2  # the sixth digit may be rounded up or down
