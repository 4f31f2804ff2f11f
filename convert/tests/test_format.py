"""FORMAT.md keeps up with the code: every key and every tensor that the converter writes is in it, and no key that nobody writes."""

import re
from pathlib import Path

import numpy as np
import pytest
import tiny

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\s]+)`", TEXT))

SET = re.compile(r'\bset_(?:u32|f32|bool|str|array)\(f?"([^"]+)"')
IN_A_TABLE = re.compile(r'"(lrnn\.[a-z0-9_.]+)"')          # keys that are set in a loop
NAMES = {"{arch}": "a", "{m.arch}": "a"}
TOKEN_IDS = ("bos", "eos", "unknown", "padding", "eot")


def keys_of_the_code():
    found = set()
    for path in (ROOT / "lrnn_convert").rglob("*.py"):
        code = path.read_text(encoding="utf-8")
        for key in SET.findall(code) + IN_A_TABLE.findall(code):
            for name, word in NAMES.items():
                key = key.replace(name, word)
            found |= {key.replace("{key}", k) for k in TOKEN_IDS} if "{key}" in key else {key}
    return found


def test_every_key_is_described():
    keys = keys_of_the_code()
    assert len(keys) > 80                                  # the pattern still finds them
    # tokenizer.ggml's are listed without their prefix
    missing = {key for key in keys if key not in WORDS and key.removeprefix("tokenizer.ggml") not in WORDS}
    assert not missing


def test_every_key_that_is_described_exists():
    described = {word for word in WORDS if re.fullmatch(r"(lrnn|a|mamba2?|rwkv[67])\.[a-z0-9_.]+", word)}
    assert len(described) > 60
    assert not described - keys_of_the_code()


def hybrid():
    config, t = tiny.delta_net()
    a = "model.layers.1.attn."
    t = {n: x for n, x in t.items() if not n.startswith(a)}
    t |= tiny.randoms({f"{a}{c}_proj.{x}": (tiny.D, tiny.D)[: 2 if x == "weight" else 1] for c in "qkvo" for x in ("weight", "bias")})
    t |= tiny.randoms({n.replace("weight", "bias"): t[n].shape[:1] for n in t if "conv1d" in n or ".mlp." in n})
    return config | {"attn": {"layers": [1], "num_heads": 2}}, t


def biased(make):
    config, t = make()
    names = [n for n in t if n.endswith(("in_proj.weight", "out_proj.weight", "norm_f.weight")) or re.search(r"layers\.\d+\.norm\.weight", n)]
    return config, t | tiny.randoms({n.replace("weight", "bias"): t[n].shape[:1] for n in names})


def gated():
    config, t = tiny.delta_net()
    return config, t | tiny.randoms({f"model.layers.{i}.attn.g_proj.weight": (10, tiny.D) for i in range(tiny.L)})


def with_convolutions(make, parts):
    config, t = make()
    more = {f"model.layers.{i}.attn.{c}_conv1d.weight": (t[f"model.layers.{i}.attn.{c}_proj.weight"].shape[0], 1, 4)
            for i in range(tiny.L) for c in parts}
    return config, t | tiny.randoms(more | {n.replace("weight", "bias"): shape[:1] for n, shape in more.items()})


def scaled_rope():
    config, t = tiny.llama()
    norms = {f"model.layers.{i}.self_attn.{c}_norm.weight": (2,) for i in range(tiny.L) for c in "qk"}
    return config | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, t | tiny.randoms(norms)


MODELS = {
    "hybrid": hybrid, "gated": gated, "gated_delta_net": tiny.gated_delta_net, "delta_product": lambda: tiny.delta_product("C"),
    "kda": tiny.kda, "gla": lambda: with_convolutions(tiny.gla, "qkv"), "retnet": tiny.retnet,
    "hgrn2": lambda: with_convolutions(tiny.hgrn2, "qfi"), "mamba": lambda: biased(tiny.mamba), "mamba2": lambda: biased(tiny.mamba2),
    "rwkv6": tiny.rwkv6_official, "rwkv7": tiny.rwkv7_official, "xlstm": tiny.xlstm, "olmo_hybrid": tiny.olmo_hybrid,
    "llama": scaled_rope,
}


@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_described(bench, model):
    for name in bench.convert(*MODELS[model]()).data:
        plain = re.sub(r"blk\.\d+\.", "", name)
        assert plain in WORDS or plain.removesuffix(".weight") in WORDS, name


def test_types_of_ids_are_described():
    assert np.all([f"type {n}" in TEXT for n in (3, 5, 6)])
