"""Types, determinism, and the files that remain."""

import json
import re

import numpy as np
import pytest
import tiny
from conftest import File, read_strict_json, rewrite_header
from gguf import GGMLQuantizationType as T
from gguf import quants

from lrnn_convert.types import MATRICES

F32_ALWAYS = re.compile(r"norm|bias|conv1d|conv\.conv|gate_inp|lerp|[ms]lstm_|"
                        r"ssm_(a|d|x|dt|beta|alpha|ba|f|f_a|f_b|igate|fgate|skip|lower_bound)\b|"
                        r"time_mix_(first|decay.*|ln|k_k|k_a|r_k|[wavg][012])\b")


@pytest.mark.parametrize("family", tiny.families())
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_only_matrices_change_their_type(bench, family, kind):
    f = bench.convert(*tiny.make(family), "--type", kind)
    for name, found in f.types.items():
        assert (found == "F32") == bool(F32_ALWAYS.search(name)), name
    assert f.types["token_embd.weight"] == kind.upper()


def test_every_matrix_of_the_list_exists(bench):
    config, t = tiny.make("qwen35")
    with_draft = config, t | tiny.draft_block(t)
    found = set()
    for made in (*map(tiny.make, tiny.families()), tiny.bailingmoe3(RQ=3),
                 tiny.nemotron_h_latent(), with_draft):
        tensors = bench.convert(*made).data
        bench.out.unlink()
        found |= {re.sub(r"^blk\.\d+\.", "", n).removesuffix(".weight") for n in tensors}
    only_in_files_of_llama_cpp = {"ffn_gate_up_exps", "nextn.embed_tokens",
                                  "nextn.shared_head_head"}
    assert MATRICES - only_in_files_of_llama_cpp <= found


def widened(config, t, times):
    """The checkpoint with `times` as many columns, made by repetition."""
    wide = dict(t)
    for n, x in t.items():
        if x.shape[-1:] == (tiny.D,) and not n.endswith("o_proj.weight"):
            wide[n] = np.repeat(x, times, axis=-1)
        if n.endswith(("o_proj.weight", "down_proj.weight")):
            wide[n] = np.repeat(x, times, axis=0)
    return config | {"hidden_size": times * tiny.D}, wide


def test_q8_0(bench):
    config, t = tiny.delta_net()
    f = bench.convert(config, t, "--type", "q8_0")
    assert f.types["token_embd.weight"] == "F16"           # rows of 8 are not whole blocks of 32
    config, wide = widened(config, t, 4)
    f = bench.convert(config, wide, "--type", "q8_0")
    assert f.types["blk.0.attn_q.weight"] == "Q8_0" and f.types["blk.0.ssm_beta.weight"] == "F32"
    got = quants.dequantize(f.data["blk.0.attn_q.weight"], T.Q8_0)
    want = wide["model.layers.0.attn.q_proj.weight"]
    step = np.abs(want).max(axis=1, keepdims=True) / 127
    assert (np.abs(got - want) <= 0.51 * step).all()


def test_f16_weights_are_read_exactly(bench):
    config, t = tiny.delta_net()
    half = {n: x.astype(np.float16) for n, x in t.items()}
    f = bench.convert(config, half)
    assert all(f.types[n] == "F32" for n in f.types)
    want = half["model.layers.0.attn.q_proj.weight"].astype(np.float32)
    assert np.array_equal(f.data["blk.0.attn_q.weight"], want)


def test_bf16_weights_are_read_exactly(bench):
    def change(header):
        for name, info in header.items():
            if name != "__metadata__":
                info["dtype"] = "BF16"

    config, t = tiny.delta_net()
    cut = {n: (x.view(np.uint32) >> 16).astype(np.uint16) for n, x in t.items()}
    bench.save(config, cut)
    rewrite_header(bench.folder / "model.safetensors", change)
    assert bench.run("--type", "bf16") == 0, bench.err
    f = File(bench.out)
    want = cut["model.layers.0.attn.q_proj.weight"]
    got = f.data["blk.0.attn_q.weight"].view(np.uint16).reshape(want.shape)
    assert np.array_equal(got, want)                       # the same bits
    assert np.array_equal(f.data["output_norm.weight"].view(np.uint32),
                          cut["model.norm.weight"].astype(np.uint32) << 16)


def test_same_input_same_bytes(bench):
    config, t = tiny.gated_delta_net()
    bench.convert(config, t, "--type", "bf16")
    first = bench.out.read_bytes()
    shuffled = dict(reversed(list(t.items())))
    bench.convert(dict(reversed(list(config.items()))), shuffled, "--type", "bf16")
    assert bench.out.read_bytes() == first


def test_only_the_result_remains(bench):
    bench.convert(*tiny.delta_net())
    assert [p.name for p in bench.path.iterdir() if p.is_file()] == ["out.gguf"]


def test_an_older_result_survives_a_failure(bench):
    config, t = tiny.delta_net()
    bench.convert(config, t)
    before = bench.out.read_bytes()
    t["lm_head.weight"][0, 0] = np.nan
    bench.save(config, t)
    assert bench.run() == 3 and bench.out.read_bytes() == before


def test_dry_run_and_vocab_only(bench):
    bench.save(*tiny.delta_net())
    assert bench.run("--dry-run") == 0 and not bench.out.exists() and "range:" in bench.err
    assert bench.run("--vocab-only") == 0 and not File(bench.out).data


def test_the_configuration_is_stored(bench):
    config, t = tiny.delta_net()
    assert json.loads(bench.convert(config, t).kv["lrnn.source_config"]) == config


def test_non_finite_numbers_are_stored_as_json(bench):
    config, t = tiny.mamba2()
    # Python writes a bare Infinity into config.json
    f = bench.convert(config | {"time_step_limit": [0.0, float("inf")]}, t)
    found = read_strict_json(f.kv["lrnn.source_config"])
    assert found["time_step_limit"] == [0.0, {"__float__": "Infinity"}]


def test_trained_length(bench):
    config, t = tiny.delta_net()
    # fla always writes 2048, whatever the context length in training
    f = bench.convert(config | {"max_position_embeddings": 2048}, t)
    assert "lrnn.context_length_trained" not in f.kv and "unknown" in bench.err
    f = bench.convert(config, t, "--trained-length", "64")
    assert f.kv["lrnn.context_length_trained"] == 64
    f = bench.convert(*tiny.mamba(), "--trained-length", "64")
    assert f.kv["mamba.context_length"] == 64


def test_task(bench):
    assert "lrnn.task" not in bench.convert(*tiny.delta_net()).kv
    assert bench.convert(*tiny.delta_net(), "--task", "mod:5").kv["lrnn.task"] == "mod:5"
