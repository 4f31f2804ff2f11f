"""lrnn-probe on the models that ship and on the golden models."""

import json
from xml.etree import ElementTree

import pytest

IDS = ("1 5 9 2 3 30 31 7 22 40 41 8 8 3 19 20 21 11 5 6 0 47 33 12 13 14 15 16 17 18 2 4 6 29 39 "
       "45")

# Keys that sum to 1 are shorter than 1, so I - beta k k^T has no negative eigenvalue.
SHORT_KEYS = ["delta_net_neg_sum_elu"]


def probe(lrnn, *args):
    return json.loads(lrnn.run("lrnn-probe", *args, "--json").stdout)["models"]


def test_accuracy_by_length(lrnn):
    """S3 is exact in [-1,1]; its twin in [0,1] guesses."""
    exact = lrnn.models / "exact"
    signed, positive = probe(lrnn, "-m", exact / "s3.gguf", "-m", exact / "s3-01.gguf", "--length",
                             "10,1000", "--trials", "2", "--svg", "s3.svg")
    positions = 2 * (1000 - 10)  # of two sequences, after the first 10 tokens
    assert signed["lengths"][1]["asked"] == positions
    assert signed["lengths"][1]["right"] == positions
    assert positive["lengths"][1]["right"] < 600
    svg = (lrnn.work / "s3.svg").read_text()
    assert ElementTree.fromstring(svg) is not None and "s3-01" in svg


def test_numbers_of_the_table(lrnn):
    """Scaled accuracy, the first error and the number of wrong answers, computed again."""
    model = ["-m", lrnn.models / "parity-delta-pos.gguf"]   # guesses beyond some 16 bits
    options = ["--trials", "3", "-s", "5"]
    found, = probe(lrnn, *model, "--length", "64,256", *options)
    asked, right = (sum(row[key] for row in found["lengths"]) for key in ("asked", "right"))
    assert found["chance"] == 0.5 and asked == 3 * 256 and right < 0.9 * asked
    for row in found["lengths"]:
        assert row["accuracy"] == pytest.approx(row["right"] / row["asked"])
        assert row["scaled"] == pytest.approx(2 * row["right"] / row["asked"] - 1)
    first = found["first_error"]
    lrnn.run("lrnn-probe", *model, "--length", "64,256", *options,
             stdout=f": {asked - right} of {asked} answers wrong, the first at position {first}\n")
    # every answer before the first error is right
    assert 1 < first < 64
    before, at = probe(lrnn, *model, "--length", f"{first - 1},{first}", *options)[0]["lengths"]
    assert before["right"] == before["asked"] == 3 * (first - 1)
    assert at["right"] < at["asked"] == 3


def test_table_of_eigenvalues(lrnn):
    """The shares of the table are the counts of the JSON output."""
    args = ["-m", lrnn.golden / "gated_deltaproduct2_neg.gguf", "--eigenvalues", "--tokens",
            lrnn.write("ids.txt", IDS)]
    found = probe(lrnn, *args)[0]["spectrum"]
    lines = lrnn.run("lrnn-probe", *args).stdout.splitlines()
    rows = [line.split() for line in lines if line.split()[:1] in (["0"], ["1"], ["all"])]
    assert len(rows) == 3
    for row, layer in zip(rows, [*found["layers"], found["all"]]):
        shares = [f"{100 * layer[key] / layer['counted']:.2f}%"
                  for key in ("negative", "complex", "outside")]
        assert row[1:] == [str(layer["counted"]), f"{layer['least']:.4f}",
                           f"{layer['greatest']:.4f}", *shares]
    assert 0 < found["all"]["complex"] != found["all"]["negative"]


def test_eigenvalues_need_an_input(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-probe", "-m", lrnn.models / "text-delta-neg.gguf",
              "--eigenvalues", stderr="give --task, or a text with -f or --tokens")


def test_complex_eigenvalues(lrnn):
    """A rotation of S3 is a product of two reflections with a double -1, up to rounding, or with
    e^(2πi/3) and its conjugate: the complex ones are those with the real part -1/2."""
    found = probe(lrnn, "-m", lrnn.models / "s3-deltaproduct2-neg.gguf", "--eigenvalues",
                  "--length", 400, "--trials", 2)[0]["spectrum"]["all"]
    bins = found["bins"]
    assert sum(bins) == found["counted"] and sum(bins[8:12]) > 0
    assert sum(bins[8:12]) <= found["complex"] < 0.5 * found["negative"]


def test_batch_changes_no_answer(lrnn):
    answers = [[length["right"] for length in model["lengths"]]
               for batch in (64, 4096)
               for model in probe(lrnn, "-m", lrnn.models / "parity-delta-pos.gguf", "--length",
                                  "64,256", "--trials", "5", "-s", "7", "-b", batch)]
    assert len(answers[0]) == 2
    assert answers[0] == answers[1]


@pytest.mark.parametrize("family", ["delta", "mamba"])
def test_trained_parity(lrnn, family):
    """Perfect at 40 to 256 tokens in [-1,1], as in the paper."""
    model, = probe(lrnn, "-m", lrnn.models / f"parity-{family}-neg.gguf", "--sample", "40,256",
                   "--trials", "256")
    assert model["lengths"][0]["right"] == 256


def test_eigenvalues(lrnn):
    """Golden models with the range [-1,1] have negative eigenvalues, those with [0,1] have none."""
    lrnn.write("ids.txt", IDS)
    n_models = {"[-1,1]": 0, "[0,1]": 0}
    for model in lrnn.golden_models():
        info = json.loads(lrnn.run("lrnn-inspect", model, "--json").stdout)
        declared = info["eigenvalues"]
        if declared not in n_models or model.stem in SHORT_KEYS or info["n_head"] is None:
            continue                       # without heads: LFM2, which has only convolutions
        found, = probe(lrnn, "-m", model, "--eigenvalues", "--tokens", "ids.txt")
        found = found["spectrum"]["all"]
        assert found["counted"] > 0, model
        assert found["outside"] == 0, model  # of the unit circle
        assert (found["negative"] > 0) == (declared == "[-1,1]"), model
        n_models[declared] += 1
    assert n_models["[-1,1]"] >= 7 and n_models["[0,1]"] >= 10


def test_sequence(lrnn):
    """Answers to given letters; the exact model of arithmetic is always right."""
    arith = lrnn.models / "exact/arith5.gguf"
    found, = probe(lrnn, "-m", arith, "--sequence", "3 + 4 * 2 - 1 =")
    assert [x["answer"] for x in found["sequence"]] == list("33221100")
    assert all(x["answer"] == x["model"] for x in found["sequence"])
    lrnn.run("lrnn-probe", "-m", arith, "--sequence", "1 +", stdout=r"2  \+        1        1\n")
    for task, letters, stderr in (("mod-brackets:5", "( 1 + 2 =", r"letter 5 is '=', expected \)"),
                                  ("mod-brackets:5", "( ( 1 + 2 )", "ends with 1 open bracket"),
                                  ("mod-arith:5", "1 + 7", "letter 3 of the sequence is '7'"),
                                  ("mod-arith:5", " ", "no letters")):
        lrnn.fail(lrnn.Code.USAGE, "lrnn-probe", "-m", arith, "--task", task, "--sequence",
                  letters, stderr=stderr)


def test_sequences_without_error(lrnn):
    """The share by length falls where the first errors are, and never rises."""
    model = ["-m", lrnn.models / "s5-deltaproduct4-pos.gguf", "--trials", "4"]
    found, = probe(lrnn, *model, "--length", "1-12+1")
    right = [row["sequences_right"] for row in found["lengths"]]
    assert right == sorted(right, reverse=True) and right[-1] == 0
    assert right[found["first_error"] - 2] == 4 > right[found["first_error"] - 1]


def test_refusals(lrnn):
    usage = lrnn.Code.USAGE
    exact = lrnn.models / "exact"
    s3 = ["lrnn-probe", "-m", exact / "s3.gguf"]
    for args in (["--task", "S9"], ["--task", "parity"], ["--length", "100,10"], ["--sample", "40"],
                 ["-f", "x.txt"]):
        lrnn.fail(usage, *s3, *args)
    lrnn.fail(usage, *s3, "-m", exact / "s5.gguf", "--length", "10", stderr="the task is S5, that "
              "of s3 is S3")
    lrnn.fail(usage, "lrnn-probe", "--length", "10")
    lrnn.fail(usage, "lrnn-probe", "-m", lrnn.models / "text-delta-neg.gguf", "--length", "10")
    lrnn.fail(lrnn.Code.DATA, "lrnn-probe", "-m", lrnn.golden / "gla.gguf", "--eigenvalues",
              "--tokens", "none.txt")
    lrnn.fail(lrnn.Code.MODEL, "lrnn-probe", "-m", "none.gguf")


def test_horizon(lrnn):
    """No error while the spread is below the margin; an exact model has no spread."""
    names = ["s3-deltaproduct2-neg", "exact/dyck3", "exact/s3", "exact/a5"]
    trained, *exact = probe(lrnn, *(x for n in names for x in ("-m", lrnn.models / f"{n}.gguf")),
                            "--horizon", "--length", "40,4096", "--trials", "4", "-t", "1", "--svg",
                            "h.svg")
    h = trained["horizon"]
    below = [row for row in h["positions"] if row["position"] < h["measured"]]
    assert 0 < trained["first_error"] <= h["measured"] * 2
    assert all(row["spread"] <= h["margin"] for row in below)
    assert trained["first_error"] > below[-1]["position"]
    assert below[0]["spread"] < below[-1]["spread"]
    assert all(row["separation"] > 2 * h["margin"] / 3 for row in below)
    for model in exact:
        h = model["horizon"]
        assert model["first_error"] == 0 and h["measured"] == 0
        assert all(row["spread"] < 1e-10 * h["margin"] for row in h["positions"])
    assert "spread / margin" in (lrnn.work / "h.svg").read_text()
    lrnn.fail(lrnn.Code.USAGE, "lrnn-probe", "-m", lrnn.models / "exact/s3.gguf", "--horizon",
              "--sample", "40,256", stderr="--horizon needs a task")
