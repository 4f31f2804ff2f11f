"""lrnn-inspect: devices, and invalid model files."""

import json
import re

import pytest
from conftest import CUDA_NOTICE
from gguf import GGUFReader, GGUFWriter


def test_usage(lrnn):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-inspect")


def test_devices(lrnn, config):
    devices = json.loads(lrnn.run("lrnn-inspect", "--devices", "--json").stdout)
    assert devices["devices"][0]["name"]
    cuda = devices["cuda"]
    text = lrnn.run("lrnn-inspect", "--devices",
                    stdout=r"(\A|\n)CPU +CPU, [^\n]* GiB of memory").stdout
    if not config["cuda"]:
        assert cuda is None and "CUDA" not in text
        return
    assert re.search(r"\n" + CUDA_NOTICE, text)
    if cuda["missing"]:
        assert cuda["missing"].startswith("no CUDA GPU was found")
        assert "\nno CUDA GPU was found" in text


@pytest.fixture(scope="module")
def bad_models(programs_in, tmp_path_factory):
    """All invalid model files of test-model-load."""
    folder = tmp_path_factory.mktemp("bad-models")
    programs_in(folder).tool("test-model-load", folder)
    models = sorted(folder.glob("*.gguf"))
    assert len(models) >= 50
    return models


@pytest.mark.parametrize("every, command", [(1, ["lrnn-inspect"]),
                                            (4, ["lrnn-cli", "-p", "1", "-m"])],
                         ids=["inspect", "cli"])
def test_bad_models(lrnn, bad_models, every, command):
    # lrnn-cli takes longer to start and reads the model in the same way: a quarter is enough
    for model in bad_models[::every]:
        line = lrnn.fail(lrnn.Code.MODEL, *command, model)
        assert line.startswith(f"{command[0]}: {model}: "), line


# ---- names and explanations


# the 256 letters that stand for bytes in byte-level BPE
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = [chr(b) for b in PLAIN] + [chr(256 + i) for i in range(256 - len(PLAIN))]


def write_bpe_model(source, path):
    """Copies a model whose ids are bytes, with a byte-level BPE tokenizer without merges."""
    reader = GGUFReader(source)
    writer = GGUFWriter(path, "lrnn")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "tokenizer.")) and name != "general.architecture":
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(LETTERS)
    writer.add_token_types([1] * 256)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_names_the_tokenizer(lrnn):
    """Kind and pre-tokenizer as text and as JSON."""
    text = lrnn.text_model("delta_net_neg", "text.gguf")
    bpe = write_bpe_model(text, lrnn.work / "bpe.gguf")
    for model, line, names in (
            (text, "bytes (lrnn-bytes)", (True, "lrnn-bytes", None)),
            (bpe, "byte-level BPE (gpt2), pre-tokenizer llama-bpe", (True, "gpt2", "llama-bpe")),
            (lrnn.golden / "delta_net_neg.gguf", "none: prompts are token ids",
             (False, None, None))):
        assert f"\ntokenizer         {line}\n" in lrnn.run("lrnn-inspect", model).stdout
        info = json.loads(lrnn.run("lrnn-inspect", model, "--json").stdout)
        assert (info["tokenizer"], info["tokenizer_model"], info["pre_tokenizer"]) == names


def test_long_notes_are_wrapped(lrnn):
    lines = lrnn.run("lrnn-inspect", lrnn.models / "mod3-mamba-neg.gguf").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("source  "))
    assert lines[at].startswith("source            mod3-mamba-neg; written as lrnn")
    assert lines[at + 1].startswith(" " * 18) and lines[at + 1][18] != " "
    assert max(map(len, lines[at:at + 2])) <= 80


def test_explains_the_identity(lrnn):
    lrnn.run("lrnn-inspect", lrnn.golden_models()[0], stdout=r"\nidentity          [0-9a-f]{16} "
             r"\(hash of the model file; state files store it\)\n")


@pytest.mark.parametrize("name, pattern", [("nemotron_h", "R-AR"), ("nemotron_h_moe", "REA-"),
                                           ("falcon_h1", "BB"), ("granite_h", "RAR")])
def test_pattern_of_the_layers(lrnn, name, pattern):
    path = lrnn.golden / f"{name}.gguf"
    assert f"\npattern           {pattern} (R recurrent" in lrnn.run("lrnn-inspect", path).stdout
    assert json.loads(lrnn.run("lrnn-inspect", path, "--json").stdout)["layers"] == pattern


def test_experts_and_what_a_token_reads(lrnn):
    """All tensors but the embedding, of which a token reads one row, and of the experts those that
    it uses; not the draft block."""
    for name, used, n in (("nemotron_h_moe", 3, 6), ("draft/qwen35moe", 2, 4),
                          ("qwen35", None, None)):
        path = lrnn.golden / f"{name}.gguf"
        info = json.loads(lrnn.run("lrnn-inspect", path, "--json").stdout)
        assert (info["n_expert_used"], info["n_expert"]) == (used, n)
        tensors = GGUFReader(path).tensors
        layer = {t.name: int(t.name.split(".")[1]) if t.name.startswith("blk.") else -1
                 for t in tensors}
        tied = "output.weight" not in layer
        want = sum(int(t.n_bytes) * used // n if "_exps." in t.name else int(t.n_bytes)
                   for t in tensors if layer[t.name] < info["n_layer"]
                   and (tied or t.name != "token_embd.weight"))
        assert info["weight_bytes_per_token"] == want
        text = lrnn.run("lrnn-inspect", path).stdout
        line = rf"\nexperts           {used} of {n}; a token reads {want} bytes"
        assert bool(re.search(line, text)) == (used is not None)


def test_memory_of_a_sequence(lrnn):
    """Weights, a state, and the cache of every token."""
    lrnn.text_model("olmo_hybrid", "m.gguf")
    m = json.loads(lrnn.run("lrnn-inspect", "m.gguf", "-c", 65536, "--json").stdout)
    assert m["cache_bytes_per_token"] > 0
    total = m["weight_bytes"] + m["state_bytes"] + 65536 * m["cache_bytes_per_token"]
    assert m["total_bytes"] == total
    lrnn.run("lrnn-inspect", "m.gguf", "-c", 65536, stdout=rf"\nmemory +{total} bytes")
    assert json.loads(lrnn.run("lrnn-inspect", "m.gguf", "--json").stdout)["total_bytes"] is None
