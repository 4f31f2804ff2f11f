"""Transformers: fla's `transformer` and Llama-style models of transformers (llama, mistral, qwen2,
qwen3)."""

import math

from .. import eigenvalues
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_number
from .layer_parts import (Attention, write_attention_layer, write_embedding, write_sizes,
                          write_swiglu)

FAMILY = Family("transformer", Range.OWN)

FLA_KEYS = """
    hidden_act norm_eps num_heads num_kv_heads qkv_bias qk_norm window_size rope_theta
    attnres_block_size elementwise_affine
"""
HF_KEYS = """
    hidden_act rms_norm_eps num_attention_heads num_key_value_heads head_dim attention_bias mlp_bias
    rope_theta rope_scaling rope_parameters sliding_window use_sliding_window max_window_layers
    layer_types
"""

MISTRAL_WINDOW = 4096                      # of transformers' configuration class
FLA_QK_NORM_EPS = 1e-5                     # fixed in the layer, not norm_eps

# the options that belong to each rope_type
ROPE_TYPES = {
    "default": (),
    "linear":  ("factor",),
    "llama3":  ("factor", "low_freq_factor", "high_freq_factor",
                "original_max_position_embeddings"),
}
ROPE_KEYS = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


def read_rope(m: Model, head_dim: int,
              default: float | None = 10000.0) -> tuple[float | None, tuple[float, ...] | None]:
    """(theta, or None for no RoPE; factors of the wavelengths, or None for 1), as transformers 4
    and 5 (rope_parameters) write them."""
    params = m.get("rope_parameters", m.get("rope_scaling", {}))
    if not isinstance(params, dict):
        raise ModelError(f"config.json: rope_parameters is {shown(params)}; expected an object")
    kind = params.get("rope_type", params.get("type")) or "default"
    if not isinstance(kind, str) or kind not in ROPE_TYPES:
        raise ModelError(f"config.json: rope_type is {shown(kind)}; expected one of "
                         f"{', '.join(map(repr, ROPE_TYPES))}")
    for key, value in params.items():
        if key not in (*ROPE_KEYS, *ROPE_TYPES[kind]) and value is not None:
            raise ModelError(f"config.json: unknown key rope_parameters.{key} = {shown(value)}; it "
                             "may change what the model computes")
    partial = params.get("partial_rotary_factor")
    if partial not in (None, 1, 1.0):
        raise ModelError(f"config.json: partial_rotary_factor is {shown(partial)}; expected 1")
    options = {}
    for key in ROPE_TYPES[kind]:
        options[key] = params.get(key)
        if not is_number(options[key]) or options[key] <= 0:
            raise ModelError(f"config.json: rope_parameters.{key} is {shown(options[key])}; "
                             f"expected a positive number for rope_type {kind!r}")

    theta = params.get("rope_theta", m.get("rope_theta", default))
    if theta is None:
        return None, None
    if not is_number(theta) or theta <= 0:
        raise ModelError(f"config.json: rope_theta is {shown(theta)}; expected a positive number")
    if kind == "default":
        return float(theta), None
    wavelengths = [2 * math.pi * theta ** (2 * d / head_dim) for d in range(head_dim // 2)]
    if kind == "linear":
        return float(theta), tuple(options["factor"] for _ in wavelengths)
    return float(theta), tuple(_llama3_factor(w, *options.values()) for w in wavelengths)


def _llama3_factor(wavelength: float, factor: float, low: float, high: float,
                   trained: float) -> float:
    """Llama 3.1 stretches waves longer than trained / low by `factor` and keeps those shorter than
    trained / high; in between the frequency is linear in trained / wavelength."""
    if low >= high:
        raise ModelError(f"config.json: low_freq_factor is {low}; expected less than "
                         f"high_freq_factor, {high}")
    smooth = min(max((trained / wavelength - low) / (high - low), 0.0), 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)


def read_trained_length(m: Model) -> None:
    if m.get("max_position_embeddings") is not None:
        m.trained_length = m.count("max_position_embeddings")


def _window(m: Model, key: str) -> int | None:
    return None if m.get(key) is None else m.count(key)


def _hf_window(m: Model) -> int | None:
    """Only Mistral has a window in all layers; null means none, a missing key the default. Qwen
    sets sliding_window even if use_sliding_window is false, its default; if it is true, only the
    layers from max_window_layers on have the window. Llama has none."""
    m.refuse_unless("use_sliding_window", (None, False),
                    "a window in only some of the layers is not supported")
    window = _window(m, "sliding_window")
    if m.config["model_type"] == "mistral":
        return window if "sliding_window" in m.config else MISTRAL_WINDOW
    if window is not None and m.get("use_sliding_window") is None:
        m.notes.append(f"sliding_window = {window} is ignored, as in transformers' "
                       f"{m.config['model_type']}")
    return None


def _qk_norm(m: Model, src: str, head_dim: int, width: int) -> str:
    """none, head or all (the whole projection); the length of the weight tells."""
    if not m.has(src + "q_norm.weight"):
        return "none"
    n = m.shape(src + "q_norm.weight", 1)[0]
    if n == head_dim:
        return "head"
    if n == width:
        return "all"
    raise ModelError(f"{m.checkpoint.name}: tensor {src}q_norm.weight has {n} entries; expected "
                     f"{head_dim} or {width}")


def convert_fla(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, FLA_KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("attnres_block_size", (None,), "attention residuals are not supported")
    heads = m.count("num_heads", 32)
    D = m.shape("model.embeddings.weight", 2)[1]
    hd = D // heads
    norm = _qk_norm(m, "model.layers.0.attn.", hd, D)
    theta = float(m.positive("rope_theta", 10000.0))
    a = Attention(heads, m.count("num_kv_heads", heads), hd, _window(m, "window_size"), theta,
                  norm, FLA_QK_NORM_EPS)
    names = {"embedding": "model.embeddings.weight", "attn": "attn.", "attn_norm": "attn_norm",
             "ffn_norm": "mlp_norm"}
    return _convert(m, a, names, m.positive("norm_eps", 1e-6), tied_default=False)


def convert_hf(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, HF_KEYS)
    eigenvalues.decide(m, option)
    kinds = m.get("layer_types", [])
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise ModelError(f"config.json: layer_types is {shown(kinds)}; expected full_attention in "
                         "every layer")
    heads = m.count("num_attention_heads")
    hd = m.shape("model.layers.0.self_attn.q_proj.weight", 2)[0] // heads
    # the default depends on the model_type; the tensors have the same number
    kv_rows = m.shape("model.layers.0.self_attn.k_proj.weight", 2)[0]
    kv = m.count("num_key_value_heads", kv_rows // hd if 0 < hd <= kv_rows else heads)
    eps = m.positive("rms_norm_eps", 1e-6)
    norm = _qk_norm(m, "model.layers.0.self_attn.", hd, heads * hd)
    window = _hf_window(m)
    read_trained_length(m)
    theta, factors = read_rope(m, hd)
    a = Attention(heads, kv, hd, window, theta, norm, eps, factors)
    names = {"embedding": "model.embed_tokens.weight", "attn": "self_attn.",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    return _convert(m, a, names, eps, tied_default=None)


def _convert(m: Model, a: Attention, names: dict[str, str], eps: float,
             tied_default: bool | None) -> Model:
    layers = m.count_layers("model.layers.")
    D, V = write_embedding(m, names["embedding"], tied_default=tied_default)
    F = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    write_sizes(m, layers, D, V, eps, F)
    m.put("output_norm.weight", "model.norm.weight", (D,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        m.put(dst + "attn_norm.weight", f"{src}{names['attn_norm']}.weight", (D,))
        write_attention_layer(m, a, dst, src + names["attn"], D)
        # a buffer that old versions saved; it follows from rope_theta
        m.drop(f"{src}{names['attn']}rotary_emb.inv_freq")
        m.put(dst + "ffn_norm.weight", f"{src}{names['ffn_norm']}.weight", (D,))
        write_swiglu(m, dst, src + "mlp.", D, F)
    a.write(m)
    m.fact("heads", f"{a.n_heads} (key and value heads {a.n_kv}), length {a.head_dim}")
    m.fact("window", "all" if a.window is None else f"{a.window} tokens")
    return m


MODEL_TYPES = {"transformer": convert_fla,
               **{kind: convert_hf for kind in ("llama", "mistral", "qwen2", "qwen3")}}
