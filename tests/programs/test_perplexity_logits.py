"""lrnn-perplexity logits: values, file sizes, equal calls, and invalid inputs."""

import json

import numpy as np
import pytest

N_TOKENS = 8


def test_usage(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity", "no-such-command")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity", "logits", "-m", "x.gguf")


def golden_logits(model, lrnn, command):
    """Computes the logits of a golden model's own tokens to golden.npy; returns those of its
    library."""
    data = model.with_suffix(".golden").read_bytes()
    n_tokens, n_vocab = np.frombuffer(data, "<i4", 2, 8)
    np.save(lrnn.work / "golden-ids.npy", np.frombuffer(data, "<i4", n_tokens, 16))
    lrnn.run(*command, "--tokens", "golden-ids.npy", "--out", "golden.npy")
    return np.frombuffer(data, "<f4", n_tokens * n_vocab, 16 + 4 * n_tokens).reshape(n_tokens, -1)


def test_logits(lrnn):
    model = lrnn.golden_models()[-1]
    n_vocab = json.loads(lrnn.run("lrnn-inspect", model, "--json").stdout)["n_vocab"]
    command = ["lrnn-perplexity", "logits", "-m", model, "-t", "1"]
    lrnn.write("ids.txt", "3 1 4 1 5 9 2 6\n")
    lrnn.write("bad.txt", f"1 2 {n_vocab}")
    lrnn.write("empty", "")
    out = lrnn.work / "logits"
    out.mkdir()
    lrnn.run(*command, "--tokens", "ids.txt", "--out", "logits/a.npy")
    for name in ("b", "c"):
        lrnn.run(*command, "--tokens", "ids.txt", "--out", f"logits/{name}.npy", "--cut", "3,1,4")
    assert (out / "b.npy").read_bytes() == (out / "c.npy").read_bytes()

    lrnn.fail(lrnn.Code.DATA, *command, "--tokens", "bad.txt", "--out", "logits/a.npy")
    for tokens in ("empty", "missing", "logits/a.npy"):  # the last is float32
        lrnn.fail(lrnn.Code.DATA, *command, "--tokens", tokens, "--out", "logits/d.npy")
    lrnn.fail(lrnn.Code.SYSTEM, *command, "--tokens", "ids.txt", "--out", "missing/d.npy")

    values = np.load(out / "a.npy")
    assert values.dtype == np.float32 and values.shape == (N_TOKENS, n_vocab)

    header = 128
    assert (out / "a.npy").stat().st_size == header + N_TOKENS * n_vocab * 4
    assert sorted(p.name for p in out.iterdir()) == ["a.npy", "b.npy", "c.npy"]


@pytest.mark.parametrize("name", ["rwkv7", "transformer", "transformer_qk_norm", "qwen35"])
def test_logits_are_exact(lrnn, name):
    """Without options, also those of models with an attention cache."""
    model = lrnn.golden / f"{name}.gguf"
    expected = golden_logits(model, lrnn, ["lrnn-perplexity", "logits", "-m", model])
    assert abs(expected - np.load(lrnn.work / "golden.npy")).max() < 1e-4
