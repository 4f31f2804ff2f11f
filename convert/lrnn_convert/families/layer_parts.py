"""Parts that most families share: embedding, pre-norm layers with a SwiGLU, attention layers.

    x = embedding[token]
    each layer:  x += mixer(norm(x));  x += down(silu(gate h) * (up h)),  h = norm(x)
    logits = output · norm(x)
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_count, is_number
from ..transforms import CONV, conv_width, rows, scaled

FLA_KEYS = "hidden_act norm_eps norm_first attn attnres_block_size conv_size conv_bias"

SWISH = {"swish": "silu", "silu": "silu"}

DIAGONAL = "n_h 0 (diagonal)"


@dataclass(frozen=True)
class Attention:
    """Softmax attention with the same settings in every attention layer of a model."""

    n_heads: int
    n_kv: int
    head_dim: int
    window: int | None
    rope_theta: float | None
    qk_norm: str                           # none, head, all
    qk_norm_eps: float
    rope_factors: tuple[float, ...] | None = None   # [head_dim / 2], of the wavelengths; None: 1

    def write(self, m: Model) -> None:
        m.set_u32("lrnn.attention.head_count", self.n_heads)
        m.set_u32("lrnn.attention.head_count_kv", self.n_kv)
        m.set_u32("lrnn.attention.key_length", self.head_dim)
        if self.window is not None:
            m.set_u32("lrnn.attention.window", self.window)
        m.set_str("lrnn.attention.qk_norm", self.qk_norm)
        if self.qk_norm != "none":
            m.set_f32("lrnn.attention.qk_norm_epsilon", self.qk_norm_eps)
        if self.rope_theta is not None:
            theta = m.kv.get("lrnn.rope_theta")
            if theta is not None and theta[1] != self.rope_theta:
                raise ModelError(f"config.json: rope_theta is {self.rope_theta} in attention "
                                 f"layers; expected {theta[1]} as in recurrent layers")
            m.set_f32("lrnn.rope_theta", self.rope_theta)
        if self.rope_factors is not None:
            m.constant("rope_freqs.weight", (self.head_dim // 2,), np.array(self.rope_factors))


def write_attention_layer(m: Model, a: Attention, dst: str, src: str, width: int) -> None:
    q, kv = a.n_heads * a.head_dim, a.n_kv * a.head_dim
    parts = (("attn_q",      "q_proj", q,     width),
             ("attn_k",      "k_proj", kv,    width),
             ("attn_v",      "v_proj", kv,    width),
             ("attn_output", "o_proj", width, q))
    for name, source, n_out, n_in in parts:
        m.put(f"{dst}{name}.weight", f"{src}{source}.weight", (n_out, n_in))
    for name, source, n_out, _ in parts:   # qkv_bias, attention_bias: the tensors decide
        m.put_optional(f"{dst}{name}.bias", f"{src}{source}.bias", (n_out,))
    if a.qk_norm != "none":
        per_head = a.qk_norm == "head"
        m.put(dst + "attn_q_norm.weight", src + "q_norm.weight", (a.head_dim if per_head else q,))
        m.put(dst + "attn_k_norm.weight", src + "k_norm.weight", (a.head_dim if per_head else kv,))


def write_swiglu(m: Model, dst: str, src: str, width: int, inner: int) -> None:
    m.choice("hidden_act", "swish", SWISH)
    if m.has(src + "up_proj.weight"):
        m.rows(dst, src, [
            ("ffn_gate.weight", "gate_proj.weight", (inner, width)),
            ("ffn_up.weight",   "up_proj.weight",   (inner, width)),
        ])
    else:
        # older fla fuses both in gate_proj with the gate first (state-spaces' fc1 has it second)
        m.rows(dst, src, [
            ("ffn_gate.weight", "gate_proj.weight", (2 * inner, width), rows(0, inner)),
            ("ffn_up.weight",   "gate_proj.weight", (2 * inner, width), rows(inner, 2 * inner)),
        ])
    m.put(dst + "ffn_down.weight", src + "down_proj.weight", (width, inner))
    for name, source, n in (("ffn_gate", "gate_proj", inner), ("ffn_up", "up_proj", inner),
                            ("ffn_down", "down_proj", width)):             # mlp_bias
        m.put_optional(f"{dst}{name}.bias", f"{src}{source}.bias", (n,))


def backbone_embedding(m: Model) -> str:
    """The embedding of transformers' recurrent models, which has two spellings."""
    singular = "backbone.embedding.weight"
    return singular if m.has(singular) else "backbone.embeddings.weight"


def write_embedding(m: Model, embedding: str, head: str = "lm_head.weight",
                    tied_default: bool | None = False,
                    scales: tuple[float, float] = (1.0, 1.0)) -> tuple[int, int]:
    """Writes embedding and output; returns (D, V). V is the number of rows, which includes padding.

    tied_default: whether they are tied if config.json does not say; None: if `head` is missing.
    scales: multipliers of the two, which become part of the weights.
    """
    vocab, width = m.shape(embedding, 2)
    stated = m.get("hidden_size", m.get("d_model", width))
    if stated != width:
        raise ModelError(f"{m.checkpoint.name}: config.json states hidden_size {shown(stated)}; "
                         f"tensor {embedding} has {width} columns")
    m.put("token_embd.weight", embedding, (vocab, width), scaled(scales[0]))
    key = "tie_word_embeddings" if m.get("tie_word_embeddings") is not None else "tie_embeddings"
    tied = m.truth(key, not m.has(head) if tied_default is None else tied_default)
    if not tied:
        m.put("output.weight", head, (vocab, width), scaled(scales[1]))
    elif scales[0] != scales[1]:
        m.put("output.weight", embedding, (vocab, width), scaled(scales[1]))
    if tied and m.has(head):
        # pickles contain the tied copy, which must not differ
        a, b = m.take(head, (vocab, width)), m.checkpoint.tensors[embedding]
        if not all(map(np.array_equal, a.pieces(), b.pieces())):
            raise ModelError(f"{m.checkpoint.name}: tie_word_embeddings is true, but {head} "
                             f"differs from {embedding}")
    return width, vocab


def size_fact(m: Model, layers: int, width: int, vocab: int, inner: int | None) -> None:
    m.fact("size", f"{layers} layers, width {width}, vocabulary {vocab}"
                   + (f", feed-forward {inner}" if inner else ""))


def write_sizes(m: Model, layers: int, width: int, vocab: int, eps: float, inner: int | None,
                style: str = "pre") -> None:
    m.set_u32("lrnn.embedding_length", width)
    m.set_u32("lrnn.block_count", layers)
    m.set_u32("lrnn.vocab_size", vocab)
    if inner is not None:
        m.set_u32("lrnn.feed_forward_length", inner)
    m.set_f32("lrnn.norm_epsilon", eps)
    m.set_str("lrnn.block_style", style)
    size_fact(m, layers, width, vocab, inner)


def write_heads(m: Model, H: int, K: int, P: int, *more: tuple[str, int]) -> None:
    """Head count and state size d_k × d_v; `more` are further counts of heads."""
    m.set_u32("lrnn.head_count", H)
    for key, n in more:
        m.set_u32(key, n)
    m.set_u32("lrnn.key_length", K)
    m.set_u32("lrnn.value_length", P)


def mixer_facts(m: Model, factors: str, heads: str, gate: str, conv: int | str) -> None:
    """Lines of the summary. conv: the width, or a text."""
    m.fact("factors", factors)
    m.fact("heads", heads)
    m.fact("gate", gate)
    m.fact("conv", conv if isinstance(conv, str) else f"width {conv}" if conv else "none")


def read_hybrid(m: Model, width: int, layers: int) -> tuple[Attention | None, set[int]]:
    """fla's `attn`: an object, or a list of them, with the layers whose mixer is attention."""
    spec = m.config.get("attn")
    if spec is None:
        return None, set()
    specs = spec if isinstance(spec, list) else [spec]
    found: set[int] = set()
    attention = None
    known = {"layers", "num_heads", "num_kv_heads", "qkv_bias", "window_size", "rope_theta"}
    for s in specs:
        if not isinstance(s, dict) or "layers" not in s or "num_heads" not in s:
            raise ModelError(f"config.json: attn is {shown(s)}; expected an object with layers and "
                             "num_heads")
        unknown = sorted(k for k in s if k not in known and s[k] is not None)
        if unknown:
            raise ModelError(f"config.json: unknown key attn.{unknown[0]}; it may change what the "
                             "model computes")
        heads, listed = s["num_heads"], s["layers"]
        kv = heads if s.get("num_kv_heads") is None else s["num_kv_heads"]
        if (not is_count(heads) or not is_count(kv)
                or not isinstance(listed, list) or not all(isinstance(i, int) for i in listed)):
            raise ModelError(f"config.json: attn has num_heads {shown(heads)} and layers "
                             f"{shown(listed)}; expected a number and a list of numbers")
        window = s.get("window_size")
        theta = 10000.0 if s.get("rope_theta") is None else s["rope_theta"]
        if window is not None and not is_count(window):
            raise ModelError(f"config.json: attn.window_size is {shown(window)}; expected a "
                             "positive integer")
        if not is_number(theta) or theta <= 0:
            raise ModelError(f"config.json: attn.rope_theta is {shown(theta)}; expected a positive "
                             "number")
        this = Attention(heads, kv, width // heads, window, float(theta), "none", 0.0)
        if attention is not None and this != attention:
            raise ModelError("config.json: attn lists layers with different settings; expected the "
                             "same for all")
        attention = this
        found |= set(listed)
    if not found <= set(range(layers)):
        raise ModelError(f"config.json: attn.layers is {sorted(found)}; expected numbers from 0 to "
                         f"{layers - 1}")
    return attention, found


def attention_fact(m: Model, layers) -> None:
    m.fact("layers", f"attention in {sorted(layers)}, recurrent in the others")


def convert_fla(checkpoint: Checkpoint, option: str, family: Family, keys: str,
                mixer: Callable[[Model, str, str, int, int], None]) -> Model:
    """Converts fla's language model around a mixer. mixer(m, dst, src, layer, width) writes the
    tensors of a recurrent layer and, in the first one, the keys."""
    m = Model(checkpoint, family, FLA_KEYS + " " + keys)
    eigenvalues.decide(m, option, "allow_neg_eigval" if family.range is Range.BY_KEY else None)
    m.refuse_unless("attnres_block_size", (None,), "attention residuals are not supported")
    layers = m.count_layers("model.layers.")
    width, vocab = write_embedding(m, "model.embeddings.weight")
    inner = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    write_sizes(m, layers, width, vocab, m.positive("norm_eps", 1e-6), inner)
    attention, attention_layers = read_hybrid(m, width, layers)
    if attention is not None:
        m.set_array("lrnn.layer_kinds", "str", ["attention" if i in attention_layers else
                                                "recurrent" for i in range(layers)])
        attention_fact(m, attention_layers)
        if len(attention_layers) == layers:
            raise ModelError(f"config.json: attn lists every layer; expected at least one "
                             f"{family.name} layer")
    m.put("output_norm.weight", "model.norm.weight", (width,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        # norm_first of older fla names the norms after mixer and MLP; the computation is the same
        inside = not m.has(src + "attn_norm.weight") and m.has(src + "attn.norm.weight")
        attn_norm, mlp_norm = (("attn.norm.weight", "mlp.norm.weight") if inside
                               else ("attn_norm.weight", "mlp_norm.weight"))
        m.put(dst + "attn_norm.weight", src + attn_norm, (width,))
        if i in attention_layers:
            write_attention_layer(m, attention, dst, src + "attn.", width)
        else:
            mixer(m, dst, src + "attn.", i, width)
        m.put(dst + "ffn_norm.weight", src + mlp_norm, (width,))
        write_swiglu(m, dst, src + "mlp.", width, inner)
    if attention is not None:
        attention.write(m)
    return m


def divide(m: Model, tensor: str, size: int, by: int, what: str) -> int:
    if size % by:
        raise ModelError(f"{m.checkpoint.name}: tensor {tensor} has {size} rows; expected a "
                         f"multiple of {by} ({what})")
    return size // by


def head_length(m: Model, tensor: str, heads: int, what: str = "num_heads") -> tuple[int, int]:
    """(rows of a projection, rows per head)"""
    size = m.shape(tensor, 2)[0]
    return size, divide(m, tensor, size, heads, what)


def check_groups(m: Model, H: int, HV: int) -> None:
    if HV % H:
        raise ModelError(f"{m.checkpoint.name}: found {HV} value heads; expected a multiple of the "
                         f"{H} key heads")


def count_kv_heads(m: Model, H: int) -> int:
    KV = m.count("num_kv_heads", H)
    if H % KV:
        raise ModelError(f"config.json: num_kv_heads is {KV}; expected a divisor of num_heads, {H}")
    return KV


def write_projections(m: Model, dst: str, src: str, D: int, q: int, k: int, v: int) -> None:
    """fla's projections of queries, keys and values, with their numbers of rows."""
    m.rows(dst, src, [
        ("attn_q.weight", "q_proj.weight", (q, D)),
        ("attn_k.weight", "k_proj.weight", (k, D)),
        ("attn_v.weight", "v_proj.weight", (v, D)),
    ])


def write_conv(m: Model, dst: str, src: str, *channels: tuple[str, int]) -> int:
    """Writes fla's short convolutions, for each letter of a projection with its number of channels;
    returns the width, or 0 if there are none. `vi` stores the convolution of i as that of v."""
    parts = [(f"{dst}ssm_conv1d_{c[0]}", f"{src}{c[-1]}_conv1d", n) for c, n in channels]
    first = f"{parts[0][1]}.weight"
    if not m.flag(("use_short_conv",), first):
        return 0
    width = m.shape(first, 3)[2]
    for name, source, n in parts:
        m.put(f"{name}.weight", f"{source}.weight", (n, 1, width), CONV)
        m.put_optional(f"{name}.bias", f"{source}.bias", (n,))
    return conv_width(width)


def write_output(m: Model, dst: str, src: str, D: int, value_dim: int, P: int, gate: bool) -> None:
    """fla's output gate, norm and projection."""
    if gate:
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    m.put(dst + "ssm_norm.weight", src + "o_norm.weight", (P,))          # shared by all heads
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))
