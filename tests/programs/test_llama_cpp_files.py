"""Qwen3.5 as llama.cpp's converter and llama-quantize write it: types that lrnn does not write, a
draft block, keys that lrnn-convert leaves out. The values of the
quantized tensors are those of gguf's own Python code, not ggml's."""

import json

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

D, FF, VOCAB = 256, 256, 64
HEADS, LENGTH = 2, 128                     # of attention
H, HV, K = 1, 3, 64                        # value heads in groups of three: 192 columns
C = (2 * H + HV) * K
LAYERS = 2                                 # recurrent, attention; then the draft block

ATTENTION = {"attn_q": (2 * HEADS * LENGTH, D), "attn_k": (LENGTH, D), "attn_v": (LENGTH, D),
             "attn_output": (D, HEADS * LENGTH), "attn_q_norm": (LENGTH,),
             "attn_k_norm": (LENGTH,)}
RECURRENT = {"attn_qkv": (C, D), "attn_gate": (HV * K, D), "ssm_conv1d": (C, 4),
             "ssm_beta": (HV, D), "ssm_alpha": (HV, D), "ssm_norm": (K,), "ssm_out": (D, HV * K)}
EVERY = {"attn_norm": (D,), "post_attention_norm": (D,), "ffn_gate": (FF, D), "ffn_up": (FF, D),
         "ffn_down": (D, FF)}
NEXTN = {"nextn.eh_proj": (D, 2 * D), "nextn.enorm": (D,), "nextn.hnorm": (D,),
         "nextn.shared_head_norm": (D,)}


def shapes():
    tensors = {"token_embd.weight": (VOCAB, D), "output_norm.weight": (D,)}
    for i, parts in enumerate((RECURRENT | EVERY, ATTENTION | EVERY, ATTENTION | EVERY | NEXTN)):
        tensors |= {f"blk.{i}.{name}.weight": shape for name, shape in parts.items()}
    return tensors | {"blk.0.ssm_a": (HV,), "blk.0.ssm_dt.bias": (HV,)}


def blocks(rng, shape, kind, gain):
    """Random blocks of a type. The scales of a block are its only F16 numbers."""
    n, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (shape[0] * shape[1] // n, size), dtype=np.uint8)
    # (first byte, number) of the F16 scales
    at, count = {T.Q3_K: (108, 1), T.Q2_K: (80, 2), T.Q4_K: (0, 2), T.Q5_K: (0, 2),
                 T.Q6_K: (208, 1)}.get(kind, (0, 1))
    unit = np.concatenate([np.float16([1]), np.float16([0.5])])[:count]
    data[:, at:at + 2 * count] = unit.view(np.uint8)
    scale = gain / (np.std(gguf.quants.dequantize(data, kind)) * D ** 0.5)
    data[:, at:at + 2 * count] = (unit * np.float16(scale)).view(np.uint8)
    return data.reshape(shape[0], -1)


def values(rng, name, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    if "norm" in name:
        return 1 + 0.1 * x
    if name.endswith("ssm_a"):
        return -np.exp(0.3 * x)
    return x * np.float32(0.5 if len(shape) == 1 or "conv1d" in name else shape[1] ** -0.5)


def write(path, kind, exact, change=lambda name, data: data):
    """exact: the same values in F32, without the draft block; change: of the values in F32; None:
    no such tensor"""
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "qwen35")
    w.add_block_count(LAYERS + (not exact))
    if not exact:
        w.add_nextn_predict_layers(1)
        w.add_array("qwen35.attention.recurrent_layers", [True, False, False])
    w.add_full_attention_interval(2)
    w.add_context_length(1024)
    w.add_embedding_length(D)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(1)
    w.add_key_length(LENGTH)
    w.add_value_length(LENGTH)
    w.add_rope_dimension_count(LENGTH // 4)
    w.add_rope_dimension_sections([6, 5, 5, 0])
    w.add_rope_freq_base(1e7)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_ssm_conv_kernel(4)
    w.add_ssm_state_size(K)
    w.add_ssm_group_count(H)
    w.add_ssm_time_step_rank(HV)
    w.add_ssm_inner_size(HV * K)
    w.add_tokenizer_model("none")
    w.add_vocab_size(VOCAB)
    for name, shape in shapes().items():
        is_matrix = len(shape) == 2 and "ssm_conv1d" not in name and shape[0] > HV
        if is_matrix and kind is not None:
            # llama-quantize: rows that are not whole blocks get a type with smaller ones
            fits = shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
            used = kind if fits else T.Q5_0
            # branches are about as large as an embedding, so that rounding does not grow
            branch = name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight"))
            data = blocks(rng, shape, used, 0.05 if branch else 1.0)
        else:
            used, data = T.F32, change(name, values(rng, name, shape))
        if data is None or exact and name.startswith(f"blk.{LAYERS}."):
            continue
        if exact and used != T.F32:
            used, data = T.F32, gguf.quants.dequantize(data, used)
        w.add_tensor(name, np.ascontiguousarray(data), raw_dtype=used)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(lrnn, model, cut):
    ids = ",".join(str(i * 7919 % VOCAB) for i in range(100))
    (lrnn.work / "ids.txt").write_text(ids)
    lrnn.run("lrnn-perplexity", "logits", "-m", model, "--tokens", lrnn.work / "ids.txt", "--out",
             lrnn.work / "logits.npy", "--cut", cut, "-t", "1", "-q")
    return np.load(lrnn.work / "logits.npy")


@pytest.mark.parametrize("kind", [None, T.IQ4_XS, T.Q3_K, T.Q2_K, T.Q4_K, T.Q5_K, T.Q6_K, T.Q5_0,
                                  T.IQ4_NL, T.IQ3_S, T.IQ2_XXS],
                         ids=lambda kind: kind.name if kind is not None else "F32")
def test_types(lrnn, kind):
    write(lrnn.work / "file.gguf", kind, exact=False)
    write(lrnn.work / "exact.gguf", kind, exact=True)
    expected = logits(lrnn, lrnn.work / "exact.gguf", "100")
    assert 0.1 < expected.std() < 10
    for cut in ("100", "1"):
        found = logits(lrnn, lrnn.work / "file.gguf", cut)
        error = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
        # products with quantized weights round the activations to 8 bits
        assert error < (1e-5 if kind is None else 0.02), (cut, error)


@pytest.mark.parametrize("name", NEXTN)
def test_bad_draft_blocks(lrnn, name):
    """One sentence each: a tensor is missing, or has another width."""
    full = f"blk.{LAYERS}.{name}.weight"
    path = lrnn.work / "bad.gguf"
    if name != "nextn.shared_head_norm":   # the last norm of the model replaces it
        write(path, None, False, lambda n, data: None if n == full else data)
        lrnn.fail(lrnn.Code.MODEL, "lrnn-inspect", path, stderr=f"tensor {full} is missing")
    write(path, None, False, lambda n, data: data[..., :-32] if n == full else data)
    lrnn.fail(lrnn.Code.MODEL, "lrnn-inspect", path, stderr=rf"tensor {full} has shape \[\d+"
              r"(, \d+)?\]; expected \[\d+(, \d+)?\]")


def test_inspect_names_the_draft_block(lrnn):
    for exact in (False, True):
        write(lrnn.work / "m.gguf", None, exact)
        assert ("draft block" in lrnn.run("lrnn-inspect", "m.gguf").stdout) == (not exact)
        found = json.loads(lrnn.run("lrnn-inspect", "m.gguf", "--json").stdout)
        assert found["draft_block"] == (not exact) and found["n_layer"] == LAYERS
