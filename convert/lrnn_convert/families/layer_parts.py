"""What most families share: embedding, pre-norm blocks of mixer and SwiGLU, final norm, output; and attention layers.

    x = embedding[token]
    each layer:  x += mixer(norm(x));  x += down(silu(gate h) * (up h)),  h = norm(x)
    logits = output · norm(x)
"""

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..model import Model, is_count
from ..transforms import CONV, conv_width, rows

SHELL_KEYS = "hidden_act norm_eps norm_first attn attnres_block_size conv_size conv_bias"

SWISH = {"swish": "silu", "silu": "silu"}


@dataclass(frozen=True)
class Attention:
    """Softmax attention, the same in every attention layer of a model."""

    n_heads: int
    n_kv: int
    head_dim: int
    window: int | None
    rope_theta: float | None
    qk_norm: str                           # none, head, all
    qk_norm_eps: float
    rope_factors: tuple[float, ...] | None = None          # of the wavelengths, head_dim / 2 of them; None: 1

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
                raise ModelError(f"config.json: rope_theta is {self.rope_theta} in attention layers and {theta[1]} in recurrent layers, "
                                 "expected the same")
            m.set_f32("lrnn.rope_theta", self.rope_theta)
        if self.rope_factors is not None:
            m.constant("rope_freqs.weight", (self.head_dim // 2,), np.array(self.rope_factors))


def write_attention_layer(m: Model, a: Attention, dst: str, src: str, width: int) -> None:
    q, kv = a.n_heads * a.head_dim, a.n_kv * a.head_dim
    m.rows(dst, src, [
        ("attn_q.weight",      "q_proj.weight", (q, width)),
        ("attn_k.weight",      "k_proj.weight", (kv, width)),
        ("attn_v.weight",      "v_proj.weight", (kv, width)),
        ("attn_output.weight", "o_proj.weight", (width, q)),
    ])
    # qkv_bias, attention_bias: the tensors say whether, and whether the output has one
    for name, source, n in (("attn_q", "q_proj", q), ("attn_k", "k_proj", kv), ("attn_v", "v_proj", kv), ("attn_output", "o_proj", width)):
        m.put_if_there(f"{dst}{name}.bias", f"{src}{source}.bias", (n,))
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
        # older fla fuses both in gate_proj: the first half is the gate (state-spaces' fc1 has it second)
        m.rows(dst, src, [
            ("ffn_gate.weight", "gate_proj.weight", (2 * inner, width), rows(0, inner)),
            ("ffn_up.weight",   "gate_proj.weight", (2 * inner, width), rows(inner, 2 * inner)),
        ])
    m.put(dst + "ffn_down.weight", src + "down_proj.weight", (width, inner))
    # mlp_bias
    for name, source, n in (("ffn_gate", "gate_proj", inner), ("ffn_up", "up_proj", inner), ("ffn_down", "down_proj", width)):
        m.put_if_there(f"{dst}{name}.bias", f"{src}{source}.bias", (n,))


def write_embedding(m: Model, embedding: str, head: str = "lm_head.weight", tied_default: bool | None = False) -> tuple[int, int]:
    """Embedding and output; gives (D, V). V is the number of rows: a padded vocabulary has more rows than tokens.

    tied_default None: where config.json does not say, a missing output matrix means that it is the embedding.
    """
    vocab, width = m.shape(embedding, 2)
    stated = m.get("hidden_size", m.get("d_model", width))
    if stated != width:
        raise ModelError(f"{m.checkpoint.name}: config.json says hidden_size {stated}, tensor {embedding} has {width} columns")
    m.put("token_embd.weight", embedding, (vocab, width))
    tied = m.get("tie_word_embeddings", m.get("tie_embeddings", tied_default))
    if tied is None:
        tied = not m.has(head)
    if not tied:
        m.put("output.weight", head, (vocab, width))
    elif m.has(head):
        # pickles keep the tied copy; a copy that differs is another model
        a, b = m.take(head, (vocab, width)), m.checkpoint.tensors[embedding]
        if not np.array_equal(a.load(), b.load()):
            raise ModelError(f"{m.checkpoint.name}: tie_word_embeddings is true, but {head} differs from {embedding}")
    return width, vocab


def write_sizes(m: Model, layers: int, width: int, vocab: int, eps: float, inner: int | None, style: str = "pre") -> None:
    m.set_u32("lrnn.embedding_length", width)
    m.set_u32("lrnn.block_count", layers)
    m.set_u32("lrnn.vocab_size", vocab)
    if inner is not None:
        m.set_u32("lrnn.feed_forward_length", inner)
    m.set_f32("lrnn.norm_epsilon", eps)
    m.set_str("lrnn.block_style", style)
    m.fact("size", f"{layers} layers, width {width}, vocabulary {vocab}" + (f", feed-forward {inner}" if inner else ""))


def read_hybrid(m: Model, width: int, layers: int) -> tuple[Attention | None, set[int]]:
    """fla's `attn`: a dict, or a list of dicts, of layers whose mixer is softmax attention."""
    spec = m.config.get("attn")
    if spec is None:
        return None, set()
    specs = spec if isinstance(spec, list) else [spec]
    found: set[int] = set()
    attention = None
    known = {"layers", "num_heads", "num_kv_heads", "qkv_bias", "window_size", "rope_theta"}
    for s in specs:
        if not isinstance(s, dict) or "layers" not in s or "num_heads" not in s:
            raise ModelError(f"config.json: attn is {s!r}, expected an object with layers and num_heads")
        unknown = sorted(k for k in s if k not in known and s[k] is not None)
        if unknown:
            raise ModelError(f"config.json: attn.{unknown[0]} is not known, and it may change what the model computes")
        heads, listed = s["num_heads"], s["layers"]
        if not is_count(heads) or not is_count(s.get("num_kv_heads") or heads) or not isinstance(listed, list) \
                or not all(isinstance(i, int) for i in listed):
            raise ModelError(f"config.json: attn has num_heads {heads!r} and layers {listed!r}, expected a number and a list of numbers")
        this = Attention(heads, s.get("num_kv_heads") or heads, width // heads, s.get("window_size"),
                         float(s.get("rope_theta") or 10000.0), "none", 0.0)
        if attention is not None and this != attention:
            raise ModelError("config.json: attn lists layers with different settings, expected the same in all")
        attention = this
        found |= set(listed)
    if not found <= set(range(layers)):
        raise ModelError(f"config.json: attn.layers is {sorted(found)}, the model has layers 0 to {layers - 1}")
    return attention, found


def convert_shell(m: Model, mixer) -> None:
    """fla's language model. mixer(m, dst, src, layer, width) writes a recurrent layer and, in the first one, the keys."""
    m.refuse_unless("attnres_block_size", (None,), "attention residuals are not supported")
    layers = m.count_layers("model.layers.")
    width, vocab = write_embedding(m, "model.embeddings.weight")
    inner = m.shape("model.layers.0.mlp.down_proj.weight", 2)[1]
    eps = m.positive("norm_eps", 1e-6)
    write_sizes(m, layers, width, vocab, eps, inner)
    attention, attention_layers = read_hybrid(m, width, layers)
    if attention is not None:
        m.set_array("lrnn.layer_kinds", "str", ["attention" if i in attention_layers else "recurrent" for i in range(layers)])
        m.fact("layers", f"attention in {sorted(attention_layers)}, recurrent in the others")
        if len(attention_layers) == layers:
            raise ModelError(f"config.json: attn lists every layer, no {m.family} layer is left")
    m.put("output_norm.weight", "model.norm.weight", (width,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        # norm_first of older fla keeps the norms inside the mixer and the MLP: the same computation under other names
        inside = not m.has(src + "attn_norm.weight") and m.has(src + "attn.norm.weight")
        m.put(dst + "attn_norm.weight", src + ("attn.norm.weight" if inside else "attn_norm.weight"), (width,))
        if i in attention_layers:
            write_attention_layer(m, attention, dst, src + "attn.", width)
        else:
            mixer(m, dst, src + "attn.", i, width)
        m.put(dst + "ffn_norm.weight", src + ("mlp.norm.weight" if inside else "mlp_norm.weight"), (width,))
        write_swiglu(m, dst, src + "mlp.", width, inner)
    if attention is not None:
        attention.write(m)


def divide(m: Model, tensor: str, size: int, by: int, what: str) -> int:
    if size % by:
        raise ModelError(f"{m.checkpoint.name}: tensor {tensor} has {size} rows, expected a multiple of {by} ({what})")
    return size // by


def write_conv(m: Model, dst: str, src: str, parts: list[tuple[str, str, int]]) -> int:
    """Short convolutions (name, source, channels); gives the width, 0 where there are none. use_short_conv and conv_size follow."""
    first = f"{src}{parts[0][1]}.weight"
    if not m.flag(("use_short_conv",), first):
        return 0
    width = m.shape(first, 3)[2]
    for name, source, channels in parts:
        m.put(f"{dst}{name}.weight", f"{src}{source}.weight", (channels, 1, width), CONV)
        m.put_if_there(f"{dst}{name}.bias", f"{src}{source}.bias", (channels,))
    return conv_width(width)


def conv_fact(width: int) -> str:
    return f"width {width}" if width else "none"
