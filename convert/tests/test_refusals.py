"""An error is one sentence that names the wrong file, key or tensor, and no file remains."""

import json

import numpy as np
import pytest
import tiny
from conftest import rewrite_header
from safetensors.numpy import save_file
from tiny import D


def test_missing_tensor(bench):
    config, t = tiny.delta_net()
    del t["model.layers.1.attn.k_proj.weight"]
    code, err = bench.refuse(config, t)
    assert code == 4 and "model.layers.1.attn.k_proj.weight" in err and "missing" in err


def test_extra_tensor(bench):
    config, t = tiny.delta_net()
    name = "model.layers.0.attn.h_conv1d.weight"
    code, err = bench.refuse(config, t | {name: np.ones((D, 1, 4), np.float32)})
    assert code == 4 and name in err


def test_wrong_shape(bench):
    config, t = tiny.delta_net()
    t["model.layers.1.attn.o_proj.weight"] = t["model.layers.1.attn.o_proj.weight"].T
    code, err = bench.refuse(config, t)
    assert code == 4 and "[10, 8]" in err and "[8, 10]" in err


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values(bench, bad):
    config, t = tiny.delta_net()
    t["model.layers.1.mlp.up_proj.weight"][3, 2] = bad
    code, err = bench.refuse(config, t)
    assert code == 3 and "model.layers.1.mlp.up_proj.weight" in err


def test_a_gap_in_the_layers(bench):
    config, t = tiny.delta_net()
    t = {n.replace("model.layers.1.", "model.layers.2."): x for n, x in t.items()}
    assert bench.refuse(config, t)[0] == 4


@pytest.mark.parametrize("key, value, says", [
    ("num_hidden_layers", 3, ["3"]), ("qk_activation", "tanh", ["qk_activation", "tanh"]),
    ("use_gate", True, ["use_gate", "g_proj"]), ("model_type", "bert", ["bert"]),
])
def test_a_changed_key(bench, key, value, says):
    config, t = tiny.delta_net()
    code, err = bench.refuse(config | {key: value}, t)
    assert code == 4 and all(word in err for word in says)


def test_unknown_option(bench):
    config, t = tiny.delta_net()
    code, err = bench.refuse(config | {"use_new_trick": True}, t)
    assert code == 4 and "use_new_trick" in err
    bench.convert(config | {"use_new_trick": True}, t, "--ignore-key", "use_new_trick")


def test_integer_weights(bench):
    config, t = tiny.delta_net()
    t["model.norm.weight"] = np.ones(D, np.int32)
    code, err = bench.refuse(config, t)
    assert code == 4 and "I32" in err and "model.norm.weight" in err


def test_f16_overflow_is_refused(bench):
    config, t = tiny.delta_net()
    t["lm_head.weight"][0, 0] = 1e6
    code, err = bench.refuse(config, t, "--type", "f16")
    assert code == 3 and "output.weight" in err


def test_usage(bench):
    bench.save(*tiny.delta_net())
    for args in (["--type", "q3"], ["--eigenvalues", "perhaps"], ["--trained-length", "0"],
                 ["--nonsense"]):
        assert bench.run(*args) == 2
        assert bench.err.startswith("lrnn-convert: ") and bench.err.count("\n") == 1
    bench.run(source=bench.path / "nowhere")
    assert "nowhere" in bench.err


# -- safetensors

NORM, OTHER = "model.norm.weight", "model.layers.0.attn_norm.weight"


@pytest.mark.parametrize("change, says", [
    (lambda h: h.pop(OTHER), "hole"),
    (lambda h: h[NORM].update(data_offsets=h[OTHER]["data_offsets"]), "overlap"),
    (lambda h: h[NORM].update(shape=[D + 1]), NORM),
    (lambda h: h[NORM].update(dtype="F7"), "F7"),
    (lambda h: h[NORM].update(shape=[-1, -D]), NORM),
], ids=["a hole", "an overlap", "size and shape disagree", "an unknown dtype", "negative sizes"])
def test_headers(bench, change, says):
    bench.save(*tiny.delta_net())
    rewrite_header(bench.folder / "model.safetensors", change)
    assert bench.run() == 3 and not bench.out.exists() and says in bench.err


@pytest.mark.parametrize("keep", [0, 5, 100, -4])
def test_truncated(bench, keep):
    bench.save(*tiny.delta_net())
    path = bench.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert bench.run() == 3 and not bench.out.exists()


def shard(bench):
    config, t = tiny.delta_net()
    bench.save(config, t)
    (bench.folder / "model.safetensors").unlink()
    names = sorted(t)
    where = {}
    for i, part in enumerate((names[::2], names[1::2])):
        file = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file({n: t[n] for n in part}, bench.folder / file)
        where |= {n: file for n in part}
    index = bench.folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return config, t, index, where


def test_shards_give_the_same_file(bench):
    config, t, _, _ = shard(bench)
    assert bench.run() == 0, bench.err
    sharded = bench.out.read_bytes()
    (bench.folder / "model.safetensors.index.json").unlink()
    bench.convert(config, t)
    assert bench.out.read_bytes() == sharded


def test_damaged_shards(bench):
    _, _, index, where = shard(bench)
    (bench.folder / "model-00002-of-00002.safetensors").rename(bench.folder / "elsewhere")
    assert bench.run() == 3 and "model-00002-of-00002" in bench.err
    (bench.folder / "elsewhere").rename(bench.folder / "model-00002-of-00002.safetensors")
    name = sorted(where)[0]
    index.write_text(json.dumps({"weight_map": where | {name: "../model.safetensors"}}))
    assert bench.run() == 3 and "../" in bench.err
    index.write_text(json.dumps({"weight_map": where | {"ghost": where[name]}}))
    assert bench.run() == 3 and "ghost" in bench.err
    index.write_text(json.dumps({"weight_map": {n: f for n, f in where.items() if n != name}}))
    assert bench.run() == 3 and name in bench.err
    assert not bench.out.exists()
