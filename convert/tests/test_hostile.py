"""Hostile and broken files: one sentence in bounded time and memory, never a traceback."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import tiny
from conftest import rewrite_header
from lrnn_convert import families, model, tokenizers
from lrnn_convert.errors import ConvertError
from lrnn_convert.exact.checkpoint import in_memory
from lrnn_convert.families import olmo_hybrid, rwkv6, rwkv7
from lrnn_convert.families.layer_parts import FLA_KEYS
from lrnn_convert.families.mamba import FALCON_KEYS
from lrnn_convert.metadata import describe
from lrnn_convert.writer import write

PACKAGE = Path(__file__).resolve().parents[1]

# converts each of the named files in another process with limited memory; prints its exit code
BATCH = """
import resource, sys
from lrnn_convert.cli import main
have = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (have + (1 << 30),) * 2)
for path in sys.argv[2:]:
    print("file", path, file=sys.stderr)
    code = main([path, "-o", sys.argv[1]])
    print("code", code, file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def convert_all(paths, out):
    """[(exit code, messages)] of conversions that must not take long, nor much memory."""
    done = subprocess.run([sys.executable, "-c", BATCH, out, *paths], cwd=PACKAGE, text=True,
                          stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done.stderr
    results = []
    for part in done.stderr.split("file ")[1:]:
        _, *messages, last = part.splitlines()
        results.append((int(last.removeprefix("code ")), messages))
    assert len(results) == len(paths), done.stderr
    return results


def is_sentence(messages):
    return [m[:14] for m in messages] == ["lrnn-convert: "] and len(messages[0]) < 1000


def refused(bench, code):
    """The conversion fails with one sentence."""
    assert bench.run("--quiet") == code, bench.err
    assert is_sentence(bench.err.splitlines()), bench.err
    assert not bench.out.exists()
    return bench.err


#
# Pickles
#

def pair(depth):
    """Opcodes that put ((((0, 0), (0, 0)), …), …) on the stack: 2^depth leaves."""
    ops = b"K\x00q\x00"                    # BININT1 0, BINPUT 0
    for i in range(depth):
        ops += b"h" + bytes([i]) + b"\x86q" + bytes([i + 1])     # BINGET i, TUPLE2, BINPUT i + 1
    return ops


LOOP = 60                                  # 2^60 leaves
BOMBS = {
    "a key": b"\x80\x02}" + pair(LOOP) + b"K\x00s.",
    "a key of several": b"\x80\x02}(" + pair(LOOP) + b"K\x00u.",
    "a key of OrderedDict": b"\x80\x02ccollections\nOrderedDict\n](" + pair(LOOP)
                            + b"K\x00\x86e\x85R.",
    "a member of a set": b"\x80\x02\x8f(" + pair(LOOP) + b"\x90.",
    "a name": b"\x80\x04\x8c\x05torch" + pair(LOOP) + b"\x93.",
    "a module": b"\x80\x04" + pair(LOOP) + b"\x8c\x05torch\x93.",
    "a list as a name": b"\x80\x04\x8c\x05torch]\x93.",
    "a persistent id": b"\x80\x02" + pair(LOOP) + b"Q.",
    "a storage": b"\x80\x02(" + pair(LOOP) + 4 * b"K\x00" + b"tQ.",
    "a storage type": b"\x80\x02(X\x07\x00\x00\x00storage" + pair(LOOP) + 3 * b"K\x00" + b"tQ.",
    "the result": b"\x80\x02" + pair(LOOP) + b".",
    "nested lists": b"\x80\x02" + 200000 * b"](" + 200000 * b"e" + b".",
    "nested tuples": b"\x80\x02)" + 200000 * b"\x85" + b".",
    "nested calls": b"\x80\x02" + 5000 * b"ctorch._tensor\n_rebuild_from_type_v2\n"
                    + b"(NN)t" + 5000 * b"R.",
    # a dictionary of 100,000 entries, copied 20,000 times
    "copies": b"\x80\x02ccollections\nOrderedDict\nq\x00]("
              + 100000 * b"(K\x00K\x00t" + b"e\x85q\x01(" + 20000 * b"h\x00h\x01R" + b"t.",
    # a tuple of 100,000 entries as a key, 20,000 times
    "a long key": b"\x80\x02(" + 100000 * b"K\x00" + b"tq\x00}" + 20000 * b"h\x00K\x00s" + b".",
    "a long size": b"\x80\x02ctorch\nSize\nq\x00(" + 100000 * b"K\x00" + b"t\x85q\x01("
                   + 20000 * b"h\x00h\x01R" + b"t.",
}


def save_pickle(path, data, storages=()):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("r/data.pkl", data)
        for i, x in enumerate(storages):
            z.writestr(f"r/data/{i}", x)


def test_pickle_bombs(bench):
    paths = [bench.path / f"{i}.pth" for i in range(len(BOMBS))]
    for path, data in zip(paths, BOMBS.values()):
        save_pickle(path, data)
    for bomb, (code, messages) in zip(BOMBS, convert_all(paths, bench.out)):
        assert code == 3 and is_sentence(messages), (bomb, messages)


def test_the_bomb_is_small():
    assert len(BOMBS["a key"]) < 320


def tensor(name, shape, stride):
    """Opcodes of a dictionary entry: a view of storage 0, which has one number."""
    def numbers(xs):
        return b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", x) for x in xs) + b"t"

    return (b"X" + struct.pack("<I", len(name)) + name + b"ctorch._utils\n_rebuild_tensor_v2\n(("
            + b"X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
            + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00"
            + numbers(shape) + numbers(stride) + b"\x89NtRs")


@pytest.mark.parametrize("shape, stride", [([1 << 40, 1 << 20], [0, 0]), ([1] * 100, [0] * 100)])
def test_views_larger_than_their_storage(bench, shape, stride):
    path = bench.path / "m.pth"
    names = [b"emb.weight", b"head.weight", b"blocks.0.att.r_k"]
    data = b"\x80\x02}" + b"".join(tensor(n, shape, stride) for n in names) + b"."
    save_pickle(path, data, [b"\0\0\0\0"])
    (code, messages), = convert_all([path], bench.out)
    assert code == 3 and is_sentence(messages), messages


#
# Configurations
#

KINDS = {"olmo_hybrid": tiny.olmo_hybrid, "hybrid": tiny.hybrid,
         "megatron_gdp": tiny.megatron_gdp,
         "rwkv6 of fla": lambda: tiny.rwkv6_fla_of(tiny.rwkv6()[1]),
         "rwkv7 of fla": lambda: tiny.rwkv7_fla_of(tiny.rwkv7()[1]),
         **{family: lambda family=family: tiny.make(family) for family in tiny.families()}}

VALUES = [[], {}, [1, "x"], {"a": 1}, "", "x", "\ud800", True, -1, 0, 3, 1 << 40, 10**40, 10**400,
          1e300, -1e300, 1e-300, float("nan"), float("inf"), [[1]],
          {"layers": [0], "num_heads": []},
          {"layers": [[]], "num_heads": 2}, {"layer": []}, {"rope_type": []}, [float("nan")] * 2]


# ignored as options, but compared with the tensors or written
USED = ("model_type", "hidden_size", "num_hidden_layers", "tie_word_embeddings",
        "max_position_embeddings", "bos_token_id", "eos_token_id", "dtype", "fuse_norm")


# families that share the module of another
MODULES = {"qwen35moe": "qwen35", "qwen3next": "qwen35", "nemotron_h_moe": "nemotron_h",
           "lfm2moe": "lfm2", "rwkv6qwen2": "rwkv_qwen", "arwkv7": "rwkv_qwen"}


def keys_of(kind):
    """Every key that some layout of the family knows; for one of them also those that all ignore.
    """
    module = {"olmo_hybrid": olmo_hybrid, "rwkv6 of fla": rwkv6, "rwkv7 of fla": rwkv7,
              "hybrid": families.delta_net}.get(kind) or getattr(families, MODULES.get(kind, kind))
    known = " ".join(getattr(module, name, "") for name in ("KEYS", "FLA_KEYS", "HF_KEYS",
                                                            "FALCON_KEYS"))
    return sorted({*known.split(), *FLA_KEYS.split(), "unknown", *USED,
                   *(model.IGNORED_KEYS if kind == "delta_net" else ())})


class Outcome:
    """Converts without files, which is fast; an unexpected exception fails the test."""

    def __init__(self, tensors):
        self.tensors = tensors

    def code(self, config):
        c = in_memory("name", json.loads(json.dumps(config)), self.tensors)
        try:
            m = families.convert(c, "auto", frozenset(), None)
            describe(m, "name", "f32")
            tokenizers.write(m, None, tiny.V)
            m.outs = []
            write(m, io.BytesIO(), "f32")
            return 0
        except ConvertError as e:
            assert "\n" not in str(e) and len(str(e)) < 1000
            return e.exit_code


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_any_kind(kind):
    config, tensors = KINDS[kind]()
    outcome = Outcome(tensors)
    for key in keys_of(kind):
        for value in VALUES:
            assert outcome.code((config or {}) | {key: value}) in (0, 4), (key, value)


# keys that must have one type: another one is an error, and not read as false or true
TYPED = {
    "delta_net": ("num_heads", "use_gate", "use_short_conv", "use_beta", "qk_norm", "qk_activation",
                  "allow_neg_eigval", "norm_eps", "hidden_act", "tie_word_embeddings", "attn",
                  "hidden_size", "num_hidden_layers", "model_type"),
    "gated_delta_net": ("use_gate", "output_gate_activation", "allow_neg_eigval"),
    "gated_delta_product": ("num_householder", "use_forget_gate", "use_output_gate"),
    "kda": ("lower_bound",),
    "gla": ("feature_map", "clamp_min", "elementwise_affine", "num_kv_heads", "use_output_gate"),
    "retnet": ("feature_map", "elementwise_affine"),
    "hgrn2": ("expand_ratio", "use_lower_bound", "num_heads"),
    "mamba": ("layer_norm_epsilon", "ssm_cfg", "rms_norm", "hidden_act", "d_intermediate",
              "attn_layer_idx"),
    "mamba2": ("time_step_limit", "n_groups", "norm_before_gate"),
    "mlstm": ("eps", "norm_eps", "gate_soft_cap", "output_logit_soft_cap", "use_bias",
              "add_out_norm", "num_blocks"),
    "transformer": ("rms_norm_eps", "num_attention_heads", "num_key_value_heads", "rope_theta",
                    "rope_parameters", "sliding_window", "use_sliding_window", "layer_types",
                    "max_position_embeddings"),
    "olmo_hybrid": ("layer_types", "linear_allow_neg_eigval", "linear_num_key_heads",
                    "rope_parameters", "max_position_embeddings"),
    "rwkv7 of fla": ("value_dim", "norm_eps", "fuse_norm", "norm_first"),
    "rwkv6 of fla": ("num_heads", "norm_eps", "norm_first"),
}


@pytest.mark.parametrize("kind", TYPED)
def test_a_wrong_type_is_refused(kind):
    config, tensors = KINDS[kind]()
    outcome = Outcome(tensors)
    for key in TYPED[kind]:
        for value in ["x", [[]], {"a": []}, -3]:
            if (key, value) not in (("lower_bound", -3), ("clamp_min", -3)):
                assert outcome.code(config | {key: value}) == 4, (key, value)


@pytest.mark.parametrize("key", ["dt_limit", "layer", "ngroups", "norm_before_gate",
                                 "positive_and_negative", "D_has_hdim"])
@pytest.mark.parametrize("value", [[], {}, "x", [[]], -1, 1 << 40])
def test_values_of_ssm_cfg(key, value):
    _, tensors = tiny.mamba2()
    outcome = Outcome(tensors)
    config = {"d_model": tiny.D, "n_layer": tiny.L, "tie_embeddings": False}
    assert outcome.code(config | {"ssm_cfg": {"layer": "Mamba2", "ngroups": 2, key: value}}) == 4


def test_falcon_mamba():
    config, tensors = tiny.mamba()
    outcome = Outcome(tensors)
    for key in FALCON_KEYS.split():
        for value in VALUES:
            assert outcome.code(config | {"model_type": "falcon_mamba", key: value}) in (0, 4)


@pytest.mark.parametrize("text, code", [
    ("", 3), ("[]", 3), ("1", 3), ('"x"', 3), ("{", 3), ("{}", 4), ('{"model_type": []}', 4),
    ('{"model_type": {}, "dtype": []}', 4), ('{"dtype": [], "torch_dtype": {}}', 4),
    ('{"a": ' + 300 * "[" + 300 * "]" + "}", 3), (100000 * "[", 3), ("{\x00}", 3),
    ('{"num_heads": ' + 5000 * "9" + "}", 3), ('{"__float__": []}', 3),
    ('{"a": {"__float__": 1}}', 4),
])
def test_configurations_that_are_no_configuration(bench, text, code):
    bench.save(text, tiny.delta_net()[1])
    refused(bench, code)


def test_a_configuration_that_is_not_utf8(bench):
    bench.save({}, tiny.delta_net()[1])
    (bench.folder / "config.json").write_bytes(b'{"a": "\xff"}')
    refused(bench, 3)


@pytest.mark.parametrize("args", [["--trained-length", "99999999999"], ["--name", "\udcff"],
                                  ["--task", "\udcff"]])
def test_values_of_options(bench, args):
    bench.save(*tiny.delta_net())
    assert bench.run(*args) == (2 if "--trained-length" in args else 0), bench.err


def test_a_name_that_is_not_utf8(bench):
    bench.save(*tiny.delta_net())
    other = bench.folder.rename(os.fsdecode(os.fsencode(bench.path) + b"/\xff"))
    assert bench.run(source=other) == 0, bench.err


#
# Safetensors and indices
#

@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
@pytest.mark.parametrize("value", [[], {}, None, "x", [[]], [{}], 1.5, True, [1, 2, 3], [-1, 8],
                                   [1.0, 8.0], [1 << 62] * 3])
def test_safetensors_headers(bench, field, value):
    bench.save(*tiny.delta_net())

    def change(header):
        header["model.norm.weight"][field] = value

    rewrite_header(bench.folder / "model.safetensors", change)
    refused(bench, 3)


@pytest.mark.parametrize("value", [[], None, 1, {}, {"dtype": "F32"}])
def test_safetensors_entries(bench, value):
    bench.save(*tiny.delta_net())

    def change(header):
        header["model.norm.weight"] = value

    rewrite_header(bench.folder / "model.safetensors", change)
    refused(bench, 3)


def write_safetensors(path, header):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def test_long_headers(bench):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    headers = [({"x": entry | {"shape": [(1 << 62) + 1] * 500000}}, 3),
               ({500000 * "module." + "x": entry}, 3), ({100 * "module." + "x": entry}, 4)]
    paths = [bench.path / f"{i}.safetensors" for i in range(len(headers))]
    for path, (header, _) in zip(paths, headers):
        write_safetensors(path, header)
    for (_, want), (code, messages) in zip(headers, convert_all(paths, bench.out)):
        assert code == want and is_sentence(messages), messages


@pytest.mark.parametrize("index", [[], {"weight_map": []}, {"weight_map": {"x": []}},
                                   {"weight_map": {"x": "a\0b"}}, {"weight_map": {"x": "\ud800"}}])
def test_indices(bench, index):
    bench.save(*tiny.delta_net())
    (bench.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(bench, 3)


#
# Tokenizers
#

BPE = {"model": {"type": "BPE", "byte_fallback": True, "unk_token": "u", "merges": ["a b"],
                 "vocab": {"u": 0, "a": 1, "b": 2, "ab": 3}},
       "normalizer": {"type": "Sequence", "normalizers": [
           {"type": "Prepend", "prepend": "\u2581"},
           {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
       "pre_tokenizer": None, "added_tokens": [{"id": 4, "content": "s", "special": True}],
       "post_processor": {"type": "TemplateProcessing", "single": [
           {"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}]}}
BYTE_LEVEL = {"model": {"type": "BPE", "merges": [["a", "b"]], "vocab": {"a": 0, "b": 1, "ab": 2}},
              "normalizer": {"type": "NFC"}, "added_tokens": [],
              "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                  {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"},
                  {"type": "ByteLevel", "use_regex": False}]}}
SYMBOLS = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
           "pre_tokenizer": {"type": "WhitespaceSplit"}}
TOKENIZERS = {"BPE": BPE, "byte level": BYTE_LEVEL, "symbols": SYMBOLS}


def paths(x, path=()):
    """Every place inside a JSON value."""
    yield path
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key))


def changed(x, path, value):
    if not path:
        return value
    copy = dict(x) if isinstance(x, dict) else list(x)
    copy[path[0]] = changed(x[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizers_with_values_of_any_kind(bench, kind):
    config, tensors = tiny.delta_net()
    bench.save(config, tensors)
    path = bench.folder / "tokenizer.json"
    path.write_text(json.dumps(TOKENIZERS[kind]))
    assert bench.run() == (4 if kind == "byte level" else 0), bench.err
    for place in paths(TOKENIZERS[kind]):
        for value in [None, [], {}, "", "x", "\ud800", True, -1, 1.5, 1 << 70, [[]], [{}],
                      {"type": []}]:
            path.write_text(json.dumps(changed(TOKENIZERS[kind], place, value)))
            assert bench.run() in (0, 3, 4), (place, value)
            assert "\nTraceback" not in bench.err


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_settings_of_tokenizers(bench, name):
    bench.save(*tiny.delta_net())
    (bench.folder / "tokenizer.json").write_text(json.dumps(BPE))
    good = {"add_bos_token": True, "bos_token": {"content": "s"}, "eos_token": "s"}
    for place in paths(good):
        for value in [None, [], {}, "", "x", "\ud800", True, -1, 1.5, [[]], [{}]]:
            (bench.folder / name).write_text(json.dumps(changed(good, place, value)))
            assert bench.run() in (0, 3, 4), (place, value)


#
# The system
#

LAUNCHER = os.environ.get("LRNN_CONVERT")      # of the build


def interrupt(command, delay, **options):
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    time.sleep(delay)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert "Traceback" not in err and "Error" not in err, (delay, err)
    # ended by the signal, or done before it came
    assert running.returncode in (-signal.SIGINT, 0), (delay, err)
    return running.returncode


@pytest.mark.skipif(not LAUNCHER, reason="LRNN_CONVERT does not name the program")
def test_ctrl_c_at_any_time():
    """No traceback from the first moment on, and the signal is never lost."""
    command, outcomes = [LAUNCHER, "--help"], []
    for i in range(16):
        outcomes.append(interrupt(command, 0.015 * i, stdout=subprocess.DEVNULL))
    assert outcomes[0] == -signal.SIGINT


def test_ctrl_c_during_the_imports(bench):
    (bench.path / "numpy.py").write_text("import time\nprint('importing', flush=True)\n"
                                         "time.sleep(20)\n")
    command = [sys.executable, "-m", "lrnn_convert", "--help"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"PYTHONPATH": f"{bench.path}:{PACKAGE}"})
    assert running.stdout.readline() == "importing\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (-signal.SIGINT, "lrnn-convert: interrupted\n")


def long_inputs(bench):
    """Inputs whose conversions are larger than 20 kB, with the commands that convert them."""
    config, tensors = tiny.delta_net()
    tensors |= tiny.randoms({n: (5000, tiny.D) for n in ("model.embeddings.weight",
                                                         "lm_head.weight")})
    bench.save(config, tensors)
    states = [f"s{i}" for i in range(12)]
    (bench.path / "a.txt").write_text(f"states: {' '.join(states)}\nstart: s0\n"
                                      f"x: {' '.join(states[1:] + states[:1])}\n")
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq
    texts = pa.table({"text": [f"{i} " * 1000 for i in range(200)]})
    pq.write_table(texts, bench.path / "t.parquet")
    return {"checkpoint": [bench.folder, "-o", "OUT"],
            "automaton": ["automaton", bench.path / "a.txt", "-o", "OUT"],
            "exact": ["exact", "-o", "DIR"],
            "data": ["data", bench.path / "t.parquet", "-o", "OUT"]}


COMMANDS = ("checkpoint", "automaton", "exact", "data")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_limit_on_the_size_of_files(bench, command):
    """Fails in the middle of the file, like a full disk, and needs no permissions."""
    args = [{"OUT": bench.out, "DIR": bench.path}.get(x, x) for x in long_inputs(bench)[command]]
    code = ("import resource, sys; from lrnn_convert.__main__ import main; "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (20000,) * 2); sys.exit(main())")
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], cwd=PACKAGE, text=True,
                          stderr=subprocess.PIPE)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].endswith(": cannot be written: File too large")
    assert not bench.out.exists() and not list(bench.path.glob("*.tmp"))


def test_standard_output_that_is_full(bench):
    args = [{"OUT": "-"}.get(x, x) for x in long_inputs(bench)["data"]]
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "lrnn_convert", *args, "--quiet"], cwd=PACKAGE,
                              stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1, "lrnn-convert: standard output: cannot be written: No space left on device\n")
