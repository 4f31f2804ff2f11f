"""lrnn-probe on the models that ship and on the golden models."""

import json

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
    assert "<svg" in svg and "s3-01" in svg and "</svg>" in svg


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
        declared = json.loads(lrnn.run("lrnn-inspect", model, "--json").stdout)["eigenvalues"]
        if declared not in n_models or model.stem in SHORT_KEYS:
            continue
        found, = probe(lrnn, "-m", model, "--eigenvalues", "--tokens", "ids.txt")
        found = found["spectrum"]["all"]
        assert found["counted"] > 0, model
        assert found["outside"] == 0, model  # of the unit circle
        assert (found["negative"] > 0) == (declared == "[-1,1]"), model
        n_models[declared] += 1
    assert n_models["[-1,1]"] >= 7 and n_models["[0,1]"] >= 10


def test_refusals(lrnn):
    usage = lrnn.Code.USAGE
    exact = lrnn.models / "exact"
    s3 = ["lrnn-probe", "-m", exact / "s3.gguf"]
    for args in (["--task", "S9"], ["--task", "parity"], ["--length", "100,10"], ["--sample", "40"],
                 ["-m", exact / "s5.gguf", "--length", "10"], ["-f", "x.txt"]):
        lrnn.fail(usage, *s3, *args)
    lrnn.fail(usage, "lrnn-probe", "--length", "10")
    lrnn.fail(usage, "lrnn-probe", "-m", lrnn.models / "text-delta-neg.gguf", "--length", "10")
    lrnn.fail(lrnn.Code.DATA, "lrnn-probe", "-m", lrnn.golden / "gla.gguf", "--eigenvalues",
              "--tokens", "none.txt")
    lrnn.fail(lrnn.Code.MODEL, "lrnn-probe", "-m", "none.gguf")
