"""lrnn-quantize on a small model: plans, files, refusals; importance matrices."""

import re

import pytest
from gguf import GGUFReader

MODEL = "gated_deltanet_neg"
TEXT = "".join(f"It was line {i} of a text, and not the last.\n" for i in range(1, 41))


@pytest.fixture
def model(lrnn):
    lrnn.write("text.txt", TEXT)
    return lrnn.text_model(MODEL, "m.gguf")


def quantize(lrnn, *args, **options):
    return lrnn.run("lrnn-quantize", "-q", *args, **options)


def test_refusals(lrnn, model):
    data, usage, bad_model = lrnn.Code.DATA, lrnn.Code.USAGE, lrnn.Code.MODEL
    command = ["lrnn-quantize", "m.gguf", "q.gguf"]
    lrnn.fail(usage, "lrnn-quantize")
    lrnn.fail(usage, *command)
    lrnn.fail(usage, *command, "Q3_7", stderr="'Q3_7'.*Q8_0.*BF16")
    lrnn.fail(usage, "lrnn-quantize", "m.gguf", "m.gguf", "Q8_0")
    for tensor_type in ("attn_q", "attn_(q=Q4_0", "no_such_tensor=Q4_0", "ssm_a$=Q4_0"):
        lrnn.fail(usage, *command, "Q8_0", "--tensor-type", tensor_type)
    for imatrix in ("none.gguf", "m.gguf"):
        lrnn.fail(data, *command, "Q8_0", "--imatrix", imatrix)
    for source in ("none.gguf", "text.txt"):
        lrnn.fail(bad_model, "lrnn-quantize", source, "q.gguf", "Q8_0")
    assert list(lrnn.work.glob("q.gguf*")) == []


def test_every_type(lrnn, model):
    """--dry-run prints what the run then prints, and writes nothing."""
    refusal = lrnn.fail(lrnn.Code.USAGE, "lrnn-quantize", "m.gguf", "q.gguf", "Q3_7")
    types = re.findall(r"\b(?:Q\w+|B?F\d+)\b", refusal.split("expected")[1].split(";")[0])
    assert len(types) >= 8
    for name in types:
        plan = quantize(lrnn, "m.gguf", f"{name}.gguf", name, "--dry-run").stdout
        assert not (lrnn.work / f"{name}.gguf").exists(), name
        assert quantize(lrnn, "m.gguf", f"{name}.gguf", name, "-t", "3").stdout == plan, name
        lrnn.run("lrnn-inspect", f"{name}.gguf")


def test_plan(lrnn, model):
    for line in (r"token_embd.weight +32 x 256 +F32 +BF16 +16384 +[0-9.]+e-03",
                 r"blk.0.ssm_beta.weight +32 x 2 +F32 +F32 +256 +-"):
        quantize(lrnn, "m.gguf", "q.gguf", "BF16", "--dry-run", stdout=line)


def test_tensor_type(lrnn, model):
    quantize(lrnn, "m.gguf", "q.gguf", "Q4_K", "--tensor-type", "ssm_(beta|alpha)=Q8_0",
             stderr="warning: 4 tensors shape the recurrence",
             stdout=r"blk.0.attn_q.weight[^\n]*Q5_0[^\n]*Q4_K")  # rows that do not fit Q4_K
    lrnn.run("lrnn-inspect", "q.gguf", stdout="blk.1.ssm_alpha.weight +q8_0")


def test_requantize(lrnn, model):
    quantize(lrnn, "m.gguf", "q8.gguf", "Q8_0")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-quantize", "q8.gguf", "again.gguf", "Q4_0",
              stderr="--allow-requantize")
    quantize(lrnn, "q8.gguf", "again.gguf", "Q4_0", "--allow-requantize")


def test_imatrix(lrnn, model):
    """lrnn-perplexity imatrix, and its effect on a quantized model."""
    command = ["lrnn-perplexity", "imatrix"]
    lrnn.run(*command, "--help")
    lrnn.fail(lrnn.Code.USAGE, *command, "-m", "m.gguf")
    lrnn.fail(lrnn.Code.DATA, *command, "-m", "m.gguf", "--data", "none.txt", "--out", "i.gguf")
    lrnn.fail(lrnn.Code.DATA, *command, "-m", "m.gguf", "--data", "text.txt", "--out", "i.gguf",
              "--window", "100000")
    lrnn.fail(lrnn.Code.MODEL, *command, "-m", "none.gguf", "--data", "text.txt", "--out", "i.gguf")
    lrnn.run(*command, "-m", "m.gguf", "--data", "text.txt", "--out", "i.gguf", "--window", "64",
             "--max-windows", "5", "-t", "1")
    done = quantize(lrnn, "m.gguf", "with.gguf", "Q4_0", "--imatrix", "i.gguf")
    assert "importance" not in done.stderr  # covers all: the embedding is the output too
    quantize(lrnn, "m.gguf", "without.gguf", "Q4_0")
    with_imatrix, without = ((lrnn.work / f"{name}.gguf").read_bytes()
                             for name in ("with", "without"))
    assert with_imatrix != without


def test_mix(lrnn, model):
    """Not a type of a tensor; the file says what it is."""
    lrnn.fail(lrnn.Code.USAGE, "lrnn-quantize", "m.gguf", "q.gguf", "Q8_0", "--tensor-type",
              "attn_q=Q4_K_M", stderr=r"Q5_K, Q5_1.*Q4_K, Q4_0, Q3_K, F16")
    quantize(lrnn, "m.gguf", "q.gguf", "q4_k_m",
             stdout=r"token_embd.weight [^\n]*Q8_0[^\n]*Q6_K\n")  # rows that do not fit Q6_K
    fields = GGUFReader(lrnn.work / "q.gguf").fields
    assert fields["general.file_type"].contents() == 15  # LLAMA_FTYPE_MOSTLY_Q4_K_M
    assert fields["lrnn.quantize.type"].contents() == "Q4_K_M"


@pytest.mark.parametrize("name, nearest", [("Q4_K_S", "Q4_K_M"), ("Q5_K_L", "Q5_K_M"),
                                           ("iq2_xs", "Q3_K_M"), ("q6_k_l", "Q6_K")])
def test_types_of_llama_cpp_have_a_nearest_type(lrnn, root, name, nearest):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-quantize", root / "models/parity-delta-neg.gguf", "o.gguf",
              name, stderr=rf"nearest: {nearest}\n")
