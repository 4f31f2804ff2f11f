"""Round trip: lrnn-inspect --json reports the options of the configuration that a file was made
from. Needs the program, named by LRNN_INSPECT."""

import math
import os
import subprocess

import pytest
import tiny
from conftest import read_strict_json
from gguf import GGUFReader, GGUFWriter

INSPECT = os.environ.get("LRNN_INSPECT")
pytestmark = pytest.mark.skipif(not INSPECT, reason="LRNN_INSPECT does not name the program")

# options that no tensor shows, in addition to those of the tiny configurations
OPTIONS = {
    "delta_net": {"allow_neg_eigval": True, "qk_norm": "sum", "qk_activation": "elu",
                  "use_short_conv": True, "conv_size": 4, "max_position_embeddings": 2048,
                  "use_beta": True},
    "gated_delta_net": {"allow_neg_eigval": True, "output_gate_activation": "sigmoid",
                        "use_gate": True},
    "kda": {"lower_bound": -5.0, "safe_gate": True},
    "gla": {"clamp_min": -0.5, "feature_map": "relu"},
    "retnet": {"feature_map": "swish"},
    "hgrn2": {"use_lower_bound": True},
    "mamba": {"layer_norm_epsilon": 1e-5, "use_bias": False},
    "mamba2": {"time_step_limit": [0.001, math.inf], "layer_norm_epsilon": 1e-5},
    "mlstm": {"gate_soft_cap": 7.5, "output_logit_soft_cap": None, "norm_eps": 1e-6, "eps": 1e-4},
    "transformer": {"model_type": "mistral", "sliding_window": 64,
                    "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "olmo_hybrid": {"linear_allow_neg_eigval": False, "rope_theta": 500000.0},
}
# of the official RWKV checkpoints, which have no configuration
FLA = {"rwkv6": lambda: tiny.rwkv6_fla_of(tiny.rwkv6()[1]),
       "rwkv7": lambda: tiny.rwkv7_fla_of(tiny.rwkv7()[1])}


def inspect(path):
    return read_strict_json(subprocess.run([INSPECT, path, "--json"], stdout=subprocess.PIPE,
                                           check=True).stdout)


def as_json(value):
    """Non-finite numbers are written as in transformers."""
    if isinstance(value, float) and math.isinf(value):
        return {"__float__": "Infinity"}
    return [as_json(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("model", [*tiny.families(), "olmo_hybrid"])
def test_every_option_is_reported(bench, model):
    config, tensors = FLA[model]() if model in FLA else tiny.make(model)
    config |= OPTIONS.get(model, {})
    kv = bench.convert(config, tensors).kv
    report = inspect(bench.out)
    # the configuration itself
    assert report["source_config"] == {key: as_json(value) for key, value in config.items()}
    # its interpretation: every key that another GGUF reader finds
    keys = {key for key in kv if not key.startswith("GGUF.") and key != "lrnn.source_config"}
    assert report["metadata"].keys() == keys
    for key in keys:
        value = report["metadata"][key]
        assert value == kv[key] or math.isclose(value, kv[key], rel_tol=1e-6), key


def test_vocabularies_are_omitted(bench):
    config, tensors = tiny.delta_net()
    bench.save(config, tensors)
    assert bench.run("--tokenizer", "bytes") != 0          # 11 rows are too few for 256 bytes
    tensors |= tiny.randoms({n: (256, tiny.D) for n in ("model.embeddings.weight",
                                                         "lm_head.weight")})
    kv = bench.convert(config, tensors, "--tokenizer", "bytes").kv
    metadata = inspect(bench.out)["metadata"]
    assert "tokenizer.ggml.tokens" in kv and "tokenizer.ggml.tokens" not in metadata
    assert metadata["tokenizer.ggml.model"] == "lrnn-bytes"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": Infinity}', '{"a": 1} {"b": 2}'])
def test_a_configuration_that_is_not_an_object_stays_a_string(bench, text):
    bench.convert(*tiny.delta_net())
    reader = GGUFReader(bench.out)
    changed = bench.path / "changed.gguf"
    writer = GGUFWriter(changed, "lrnn")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub = field.types[-1] if len(field.types) > 1 else None
            value = text if name == "lrnn.source_config" else field.contents()
            writer.add_key_value(name, value, field.types[0], sub_type=sub)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert inspect(changed)["source_config"] == text
