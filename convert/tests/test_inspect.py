"""Round trip: what a configuration says, lrnn-inspect --json says of the file made from it. Needs the program, named by LRNN_INSPECT."""

import json
import math
import os
import subprocess

import pytest
import tiny
from gguf import GGUFReader, GGUFWriter

INSPECT = os.environ.get("LRNN_INSPECT")
pytestmark = pytest.mark.skipif(not INSPECT, reason="LRNN_INSPECT does not name the program")

# options that no tensor shows, beside those that the tiny configurations have
MORE = {
    "delta_net": {"allow_neg_eigval": True, "qk_norm": "sum", "qk_activation": "elu", "use_short_conv": True, "conv_size": 4,
                  "max_position_embeddings": 2048, "use_beta": True},
    "gated_delta_net": {"allow_neg_eigval": True, "output_gate_activation": "sigmoid", "use_gate": True},
    "kda": {"lower_bound": -5.0, "safe_gate": True},
    "gla": {"clamp_min": -0.5, "feature_map": "relu"},
    "retnet": {"feature_map": "swish"},
    "hgrn2": {"use_lower_bound": True},
    "mamba": {"layer_norm_epsilon": 1e-5, "use_bias": False},
    "mamba2": {"time_step_limit": [0.001, math.inf], "layer_norm_epsilon": 1e-5},
    "xlstm": {"gate_soft_cap": 7.5, "output_logit_soft_cap": None, "norm_eps": 1e-6, "eps": 1e-4},
    "llama": {"sliding_window": 64, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "olmo_hybrid": {"linear_allow_neg_eigval": False, "rope_theta": 500000.0},
}
MAKERS = {name: getattr(tiny, name) for name in MORE} | {
    "gated_delta_product": lambda: tiny.delta_product("C"),
    "rwkv6": lambda: tiny.rwkv6_fla_of(tiny.rwkv6_official()[1]),
    "rwkv7": lambda: tiny.rwkv7_fla_of(tiny.rwkv7_official()[1]),
}


def inspect(path):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    out = subprocess.run([INSPECT, path, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out, parse_constant=refuse)


def as_json(value):
    """What is not a finite number is written as transformers does."""
    if isinstance(value, float) and math.isinf(value):
        return {"__float__": "Infinity"}
    return [as_json(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("family", MAKERS)
def test_every_option_is_reported(bench, family):
    config, tensors = MAKERS[family]()
    config |= MORE.get(family, {})
    kv = bench.convert(config, tensors).kv
    said = inspect(bench.out)
    # as it was
    assert said["source_config"] == {key: as_json(value) for key, value in config.items()}
    # as it was understood: every key that another reader of GGUF finds
    keys = {key for key in kv if not key.startswith("GGUF.") and key != "lrnn.source_config"}
    assert said["metadata"].keys() == keys
    for key in keys:
        assert said["metadata"][key] == kv[key] or math.isclose(said["metadata"][key], kv[key], rel_tol=1e-6), key


def test_understood_values(bench):
    config, tensors = tiny.delta_net()
    bench.convert(config | MORE["delta_net"], tensors)
    m = inspect(bench.out)["metadata"]
    assert (m["lrnn.qk_norm"], m["lrnn.qk_activation"], m["lrnn.eigenvalues"], m["lrnn.beta"]) == ("sum", "elu", "[-1,1]", True)
    assert (m["lrnn.head_count"], m["lrnn.key_length"], m["lrnn.value_length"], m["lrnn.conv_width"]) == (2, 3, 5, 4)
    assert m["lrnn.norm_epsilon"] == 1e-6                  # the shortest number, not what F32 makes of it


def test_vocabularies_are_left_out(bench):
    config, tensors = tiny.delta_net()
    bench.save(config, tensors)
    assert bench.run("--tokenizer", "bytes") != 0          # 11 rows are too few for 256 bytes
    tensors |= tiny.randoms({n: (256, tiny.D) for n in ("model.embeddings.weight", "lm_head.weight")})
    kv = bench.convert(config, tensors, "--tokenizer", "bytes").kv
    said = inspect(bench.out)
    assert "tokenizer.ggml.tokens" in kv and "tokenizer.ggml.tokens" not in said["metadata"]
    assert said["metadata"]["tokenizer.ggml.model"] == "lrnn-bytes"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": Infinity}', '{"a": 1} {"b": 2}'])
def test_a_configuration_that_is_no_object_stays_a_string(bench, text):
    bench.convert(*tiny.delta_net())
    reader = GGUFReader(bench.out)
    changed = bench.path / "changed.gguf"
    writer = GGUFWriter(changed, "lrnn")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, text if name == "lrnn.source_config" else field.contents(), field.types[0], sub_type=sub)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert inspect(changed)["source_config"] == text
