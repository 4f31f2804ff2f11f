"""lrnn-perplexity compare -m: a model against its quantized versions."""

import json

import numpy as np
import pytest

MODEL = "gated_deltanet_neg"
TEXT = "".join(f"It was line {i} of a text, and not the last.\n" for i in range(1, 41))
WINDOW = 64
DATA = ["--data", "text.txt", "--window", WINDOW, "-t", "1", "-q"]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-9}  # the report holds floats


@pytest.fixture
def models(lrnn):
    lrnn.write("text.txt", TEXT)
    lrnn.text_model(MODEL, "m.gguf")
    for type_name in ("Q8_0", "Q4_0"):
        lrnn.run("lrnn-quantize", "-q", "m.gguf", f"{type_name}.gguf", type_name)


def compare(lrnn, *args):
    """The models of a comparison with m.gguf, read from its JSON."""
    done = lrnn.run("lrnn-perplexity", "compare", "-m", "m.gguf", *args, *DATA, "--json")
    return json.loads(done.stdout)["models"]


def test_refusals(lrnn, models):
    data, usage, bad_model = lrnn.Code.DATA, lrnn.Code.USAGE, lrnn.Code.MODEL
    command = ["lrnn-perplexity", "compare", "-m", "m.gguf"]
    lrnn.run(*command, "--help")
    lrnn.fail(usage, *command, *DATA)
    lrnn.fail(usage, *command, "-m", "Q8_0.gguf", *DATA, "--bucket", "0")
    lrnn.fail(usage, *command, "-m", "Q8_0.gguf", *DATA, "--dataset", "none")
    lrnn.fail(data, *command, "-m", "Q8_0.gguf", "--data", "none.txt")
    lrnn.fail(bad_model, *command, "-m", "none.gguf", *DATA)
    other_vocabulary = lrnn.golden / "gla.gguf"
    lrnn.fail(bad_model, *command, "-m", other_vocabulary, *DATA, stderr="256 tokens.*48")
    lrnn.text_model(MODEL, "eos.gguf", 7)
    lrnn.fail(bad_model, *command, "-m", "eos.gguf", *DATA, stderr="tokenizer.ggml.eos_token_id")


def test_a_model_equals_itself(lrnn, models):
    all_positions = compare(lrnn, "-m", "m.gguf", "--max-windows", "4")[0]["all"]
    assert all_positions["kl"]["value"] == 0
    assert all_positions["kl_p99"] == 0
    assert all_positions["nll_change"]["value"] == 0
    assert all_positions["same_top1"]["value"] == 1


def test_buckets_add_up(lrnn, models):
    found = compare(lrnn, "-m", "Q8_0.gguf", "-m", "Q4_0.gguf", "--max-windows", "4",
                    "--bucket", "20")
    for model in found:
        assert len(model["buckets"]) == 4
        assert sum(bucket["positions"] for bucket in model["buckets"]) == 4 * (WINDOW - 1)
        assert model["all"]["positions"] == 4 * (WINDOW - 1)
    kl_q8, kl_q4 = (model["all"]["kl"]["value"] for model in found)
    assert 0 < kl_q8 < kl_q4


def test_table(lrnn, models):
    lrnn.run("lrnn-perplexity", "compare", "-m", "m.gguf", "-m", "Q4_0.gguf", *DATA,
             "--max-windows", "10", stdout=r"\n1-2 +20 .*\n3-4 +20 .*\n5-8 +40 (.*\n)+33-63 .*\n"
             r"all +630 ")


def test_against_logits(lrnn, models):
    """The comparison of the first window, computed from the logits of both models."""
    ids = np.frombuffer(TEXT[:WINDOW].encode(), np.uint8).astype(int)
    lrnn.write("ids.txt", "".join(f"{i}\n" for i in ids))
    log_probs = []
    for name in ("m", "Q4_0"):
        lrnn.run("lrnn-perplexity", "logits", "-m", f"{name}.gguf", "--tokens", "ids.txt",
                 "--out", f"{name}.npy", "-t", "1", "-q")
        z = np.load(lrnn.work / f"{name}.npy")[:-1].astype(float)  # row t predicts token t + 1
        log_probs.append(z - np.log(np.exp(z).sum(1, keepdims=True)))
    p, q = log_probs
    kl = (np.exp(p) * (p - q)).sum(1)
    targets = ids[1:, None]
    found = compare(lrnn, "-m", "Q4_0.gguf", "--max-windows", "1")[0]["all"]
    for value, expected in ((found["kl"]["value"], kl.mean()),
                            (found["kl_p99"], np.quantile(kl, 0.99)),
                            (found["nll_reference"]["value"],
                             -np.take_along_axis(p, targets, 1).mean()),
                            (found["nll"]["value"], -np.take_along_axis(q, targets, 1).mean()),
                            (found["same_top1"]["value"], (p.argmax(1) == q.argmax(1)).mean())):
        np.testing.assert_allclose(value, expected, **TOLERANCE)
