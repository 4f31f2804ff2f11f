"""FORMAT.md describes exactly what the converter writes: families, keys, tensors, types."""

import re
from pathlib import Path

import pytest
import tiny

from lrnn_convert.family import Range
from lrnn_convert.families import FAMILIES
from lrnn_convert.tokenizers import tokenizer
from lrnn_convert.types import TYPES

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\s]+)`", TEXT))

SET = re.compile(r'\bset_(?:u32|f32|bool|str|array)\(\s*f?"([^"]+)"')
IN_A_TABLE = re.compile(r'"(lrnn\.[a-z0-9_.]+)"')          # keys that are set in a loop
NAMES = {"{arch}": "a", "{m.arch}": "a", "{ARCH}": "a"}
TOKEN_IDS = ("bos", "eos", "unknown", "padding", "eot")


def row_of(key):
    """The text after `key` in its row of a table."""
    start = f"| {key} |"
    return next(line[len(start):] for line in TEXT.splitlines() if line.startswith(start))


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
    # those of tokenizer.ggml are listed without this prefix
    missing = {key for key in keys
               if key not in WORDS and key.removeprefix("tokenizer.ggml") not in WORDS}
    assert not missing


def test_every_described_key_exists():
    described = {word for word in WORDS
                 if re.fullmatch(r"(lrnn|a|mamba2?|rwkv[67])\.[a-z0-9_.]+", word)}
    assert len(described) > 60
    assert not described - keys_of_the_code()


def test_every_family_is_described():
    assert re.findall(r"`(\w+)`", row_of("`lrnn.family`")) == list(FAMILIES)
    for name in FAMILIES:
        assert row_of(name)                                # its tensors


def test_eigenvalue_ranges_are_described():
    own = re.search(r'`"family"` .*?\((.*?)\)', row_of("`lrnn.eigenvalues`"))[1]
    assert own.split(", ") == tiny.families(Range.OWN)
    doubled, stretched = re.search(r'"\[-1,1\]"` doubles β in (.*?), and turns .*? of (.*?) into',
                                   " ".join(TEXT.split())).groups()
    assert re.findall(r"\w+_\w+|kda", doubled) == tiny.families(Range.BY_KEY)
    assert re.findall(r"mamba2?|gla", stretched) == tiny.families(Range.BY_OPTION)


def test_file_types_are_described():
    row = row_of("`general.file_type`, `general.quantization_version`")
    for name, kind in TYPES.items():
        assert f"{int(kind.file_type)} {name.upper()}" in row


def biased(make, pattern):
    """A checkpoint with a bias for every weight whose name matches the pattern."""
    config, t = make()
    names = [n for n in t if re.search(pattern, n)]
    assert names
    return config, t | tiny.biases_of(t, names)


def gated():
    config, t = tiny.delta_net()
    gates = {f"model.layers.{i}.attn.g_proj.weight": (10, tiny.D) for i in range(tiny.L)}
    return config, t | tiny.randoms(gates)


def with_convolutions(make, parts):
    config, t = make()
    weights = tiny.randoms({f"model.layers.{i}.attn.{c}_conv1d.weight":
                            (t[f"model.layers.{i}.attn.{c}_proj.weight"].shape[0], 1, 4)
                            for i in range(tiny.L) for c in parts})
    return config, t | weights | tiny.biases_of(weights, weights)


def scaled_rope():
    config, t = tiny.transformer()
    norms = {f"model.layers.{i}.self_attn.{c}_norm.weight": (2,)
             for i in range(tiny.L) for c in "qk"}
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    return config | scaling, t | tiny.randoms(norms)


MAMBA_BIASES = r"(in_proj|out_proj|norm_f|layers\.\d+\.norm)\.weight"

# every family, and variants with tensors that it does not always have
MODELS = {family: lambda family=family: tiny.make(family) for family in FAMILIES} | {
    "hybrid": lambda: biased(tiny.hybrid, r"conv1d|\.mlp\.|layers\.1\.attn\."),
    "olmo_hybrid": tiny.olmo_hybrid,
    "output gate": gated,
    "convolutions of gla": lambda: with_convolutions(tiny.gla, "qkv"),
    "convolutions of hgrn2": lambda: with_convolutions(tiny.hgrn2, "qfi"),
    "biases of mamba": lambda: biased(tiny.mamba, MAMBA_BIASES),
    "biases of mamba2": lambda: biased(tiny.mamba2, MAMBA_BIASES),
    "scaled RoPE": scaled_rope,
    "megatron_gdp": tiny.megatron_gdp,
}


@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_is_described(bench, model):
    for name in bench.convert(*MODELS[model]()).data:
        plain = re.sub(r"blk\.\d+\.", "", name)
        assert plain in WORDS or plain.removesuffix(".weight") in WORDS, name


def test_token_types_are_described():
    for kind in (tokenizer.CONTROL, tokenizer.UNUSED, tokenizer.BYTE):
        assert f"type {kind}" in TEXT
