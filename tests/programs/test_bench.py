"""lrnn-bench -m: the tests that it makes."""

import json


def test_sequences(lrnn):
    model = lrnn.golden / "olmo_hybrid.gguf"
    done = lrnn.run("lrnn-bench", "-m", model, "-p", "16", "-n", "4,8", "--seqs", "1,3,40", "-t",
                    "1", "-r", "2", "-o", "json")
    tests = [(r["test"], r["n_prompt"], r["n_gen"], r["n_seqs"]) for r in json.loads(done.stdout)]
    assert tests == [("pp16", 16, 0, 1)] + [
        (f"tg{n}" + (f" x{seqs}" if seqs > 1 else ""), 0, n, seqs)
        for n in (4, 8) for seqs in (1, 3, 40)]
    for r in json.loads(done.stdout):  # the speed counts the tokens of all sequences
        n = (r["n_prompt"] + r["n_gen"]) * r["n_seqs"]
        for ns, ts in zip(r["samples_ns"], r["samples_ts"], strict=True):
            assert abs(ts * ns / 1e9 / n - 1) < 1e-3


def test_depth(lrnn):
    model = lrnn.golden / "olmo_hybrid.gguf"
    done = lrnn.run("lrnn-bench", "-m", model, "-p", "4", "-n", "2", "--seqs", "1,2", "--depth",
                    "0,300", "-t", "1", "-r", "1", "-o", "json")
    tests = [(r["test"], r["n_depth"], r["n_seqs"]) for r in json.loads(done.stdout)]
    assert tests == [("pp4", 0, 1), ("tg2", 0, 1), ("tg2 x2", 0, 2), ("pp4 @ d300", 300, 1),
                     ("tg2 @ d300", 300, 1), ("tg2 x2 @ d300", 300, 2)]
    for r in json.loads(done.stdout):  # the speed does not count the tokens before
        n = (r["n_prompt"] + r["n_gen"]) * r["n_seqs"]
        assert abs(r["samples_ts"][0] * r["samples_ns"][0] / 1e9 / n - 1) < 1e-3
    lrnn.fail(lrnn.Code.USAGE, "lrnn-bench", "--depth", "5",
              stderr="-p, -n, --depth and -b need a model; give -m")


def test_sequences_of_an_op(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-bench", "--op", "conv", "--seqs", "1,2",
              stderr="--seqs has 2 numbers; expected one for an op")


def test_device_of_an_op(lrnn):
    """The CPU as a device: one row, without the peak of the CPU."""
    done = lrnn.run("lrnn-bench", "--op", "conv", "--device", "CPU", "-T", "4", "-r", "1",
                    "--min-time", "0", "-o", "json")
    rows = json.loads(done.stdout)["results"]
    assert rows and all(r["agrees"] and r["threads"] == 1 for r in rows)
    assert all("peak_gflops" not in r or r["peak_gflops"] is None for r in rows)
    lrnn.fail(lrnn.Code.USAGE, "lrnn-bench", "--op", "conv", "--device", "CPU,CPU",
              stderr="--device is CPU,CPU; expected one device for an op")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-bench", "--op", "conv", "--device", "GPU7",
              stderr="no device 'GPU7'")


def test_missing_model(lrnn):
    """No head of a table before the error."""
    lrnn.fail(lrnn.Code.MODEL, "lrnn-bench", "-m", "missing.gguf", stderr="missing.gguf: No such")


def test_products(lrnn):
    done = lrnn.run("lrnn-bench", "--op", "mul-mat", "--mode", "*-q[45]_*", "--dk", "256", "--dv",
                    "70", "-T", "5,50", "-t", "1", "-r", "1", "--min-time", "0", "-o", "json")
    rows = json.loads(done.stdout)["results"]
    assert [r["tokens"] for r in rows] == 6 * [5, 50]
    for r in rows:  # against the same weights in F32; most types round the columns
        assert r["agrees"] and r["nmse_output"] < 1e-4
        assert r["flops"] == 2 * 256 * 70 * r["tokens"]
        assert r["arithmetic"] == ("int8" if r["nmse_output"] > 1e-8 else "f32")
    lrnn.run("lrnn-bench", "--op", "mul-mat", "--mode", "mul-mat-q4_k", "--dk", "100", "-t", "1",
             "-r", "1", code=lrnn.Code.USAGE, stdout="refused",
             stderr="mul-mat-q4_k: rows of 100 weights; expected a multiple of 256, a block")


def test_share_of_the_peak(lrnn):
    """A product is compared with the peak of its own arithmetic, so no share exceeds 100 %."""
    cases = [x for t in ("f32", "f16", "bf16", "q8_0", "q4_k") for x in ("--mode", f"mul-mat-{t}")]
    done = lrnn.run("lrnn-bench", "--op", "mul-mat", *cases, "-t", "1", "-r", "2", "--min-time",
                    "0.05", "-o", "json")
    out = json.loads(done.stdout)
    point = out["machine"]["measured"][0]
    peaks = {"f32": point["fma_gflops"], "int8": point["int8_gops"], "bf16": point["bf16_gflops"]}
    assert peaks["f32"] > 0 and peaks["int8"] > 0
    assert [r["arithmetic"] for r in out["results"][:2]] == ["f32", "f32"]
    for r in out["results"]:
        assert r["peak_gflops"] == peaks[r["arithmetic"]]
        assert 0 < r["gflops"] <= r["peak_gflops"], r["case"]
    few = lrnn.run("lrnn-bench", "--op", "mul-mat", "--mode", "*-q8_0", "-T", "1", "-t", "1", "-r",
                   "1", "--min-time", "0", "-o", "json")  # ours and ggml's kernels round one column
    assert json.loads(few.stdout)["results"][0]["arithmetic"] == "int8"
