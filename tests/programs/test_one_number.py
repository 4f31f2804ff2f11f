"""One number per model and text: lrnn-perplexity, lrnn.py and lrnn-server give the same scores, for
any batch size, number of threads, company and shard."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from server_client import serving
from test_python import lrnn as module  # noqa: F401, a fixture

sys.path.insert(0, str(Path(__file__).parent))
from test_report_values import read_scores  # noqa: E402

MODELS = ["text-delta-neg", "text-delta-pos", "text-deltaproduct2-neg"]  # in Q8_0
WINDOW = 300
N_WINDOWS = 4
PLAIN = ("-t", 1, "--parallel", 1, "-b", 512)
OTHERS = [("-t", 1, "--parallel", 1, "-b", 32), ("-t", 2, "--parallel", 3, "-b", 7),
          ("-t", 2, "--parallel", 4)]


@pytest.fixture
def text(root, lrnn):
    text = (root / "models/README.md").read_text()
    text = "".join(re.findall(r"[a-zA-Z0-9 .,]", text))[:WINDOW*N_WINDOWS]
    assert len(text) == WINDOW*N_WINDOWS
    return lrnn.write("text.txt", text).read_bytes()


def losses(lrnn, model, out, *options):
    """[window][target], and what the report says about exact cuts."""
    lrnn.run("lrnn-perplexity", "run", "-m", model, "--data", "text.txt", "--window", WINDOW,
             "--out", out, *options)
    files = sorted((lrnn.work / out).glob("*.nll"))
    lrnn.run("lrnn-perplexity", "report", *files, "--format", "json", "--out", out)
    report = json.loads((lrnn.work / out / "report.json").read_text())
    return ([nll for nll, *_ in read_scores(files[0])],
            report["runs"][0]["protocol"]["exact_cuts"])


def check(lrnn, module, model, text, *options):
    """All programs, with `options` of lrnn-perplexity that turn exact cuts on if needed."""
    expected, exact = losses(lrnn, model, "plain", *PLAIN, *options)
    assert exact is True and len(expected) == N_WINDOWS
    for i, other in enumerate(OTHERS):
        found, _ = losses(lrnn, model, f"other-{i}", *other, *options)
        assert all(np.array_equal(a, b) for a, b in zip(expected, found)), other

    # the server, with two requests at a time
    with serving(lrnn, model, "-b", 24, "--parallel", 2) as server:
        prompts = [list(text[i*WINDOW:(i + 1)*WINDOW]) for i in range(N_WINDOWS)]
        reply = server.complete(prompt=prompts, echo=True, logprobs=0, max_tokens=0)
    for choice, nll in zip(reply["choices"], expected):
        replied = np.array(choice["logprobs"]["token_logprobs"][1:], np.float32)  # nine digits
        assert np.array_equal(-replied, nll.astype(np.float32))

    # lrnn.py, in pieces and by default
    with module.Model(model) as loaded:
        cuts = {} if options == () else {"exact_cuts": True}
        with module.Session(loaded, n_seqs=2, n_threads=1, n_batch=16, **cuts) as session:
            tokens = np.frombuffer(text[:WINDOW], np.uint8).astype(np.int32)
            logits = session.eval(tokens, n_logits=None)
            pieces = [session.eval(part, 1, n_logits=None) for part in np.array_split(tokens, 41)]
            assert np.array_equal(logits, np.concatenate(pieces))
    rows = logits[:-1].astype(np.float64)
    nll = np.log(np.exp(rows).sum(axis=1)) - rows[range(WINDOW - 1), tokens[1:]]
    assert np.abs(nll - expected[0]).max() < 1e-6  # logits are equal; lrnn sums exp in float


@pytest.mark.parametrize("name", MODELS)
def test_shipped_models(lrnn, module, text, name):  # noqa: F811
    """In Q8_0, by default."""
    check(lrnn, module, lrnn.models / f"{name}.gguf", text)


@pytest.mark.parametrize("name", MODELS[2:])
def test_models_in_f32(lrnn, module, text, name):  # noqa: F811
    """If exact cuts are turned on; they cost more than 10 %."""
    lrnn.run("lrnn-quantize", lrnn.models / f"{name}.gguf", "f32.gguf", "F32", "--allow-requantize")
    check(lrnn, module, lrnn.work / "f32.gguf", text, "--exact-cuts", "on")


def test_what_is_used(lrnn, text):
    """By default and if it is turned off, and shards with another batch size."""
    model = lrnn.models / f"{MODELS[0]}.gguf"
    expected, exact = losses(lrnn, model, "on", *PLAIN)
    fast, off = losses(lrnn, model, "off", *PLAIN, "--exact-cuts", "off")
    assert (exact, off) == (True, False)
    assert not all(np.array_equal(a, b) for a, b in zip(expected, fast))
    for shard in ("1/2", "2/2"):
        lrnn.run("lrnn-perplexity", "run", "-m", model, "--data", "text.txt", "--window", WINDOW,
                 "--out", "shards", "--parallel", 2, "-b", 50, "--shard", shard)
    whole = lrnn.run("lrnn-perplexity", "export", *(lrnn.work / "on").glob("*.nll")).stdout
    parts = lrnn.run("lrnn-perplexity", "export", *(lrnn.work / "shards").glob("*.nll")).stdout
    assert parts == whole
    lrnn.run("lrnn-quantize", model, "f32.gguf", "F32", "--allow-requantize")
    assert losses(lrnn, lrnn.work / "f32.gguf", "f32", *PLAIN)[1] is False
