"""Gated DeltaProduct (fla `gated_deltaproduct`): n Householder factors per token, with one gate per
head before them; DeltaProduct without the gate.

Three layouts of the same weights exist:
  A  k_projs.j, v_projs.j, b_projs.j; q_conv1ds.j (only 0 is used), k_conv1ds.j, v_conv1ds.j
     until 2025-05-13, and in the authors' code
  B  as A with a single q_conv1d
     until 2025-06-18
  C  k_proj, v_proj, b_proj, k_conv1d, v_conv1d with rows (factor, head, dimension)
     since then
The model file has C; A and B become C by concatenation over the factors.
"""

from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model
from ..transforms import CONCAT, CONCAT_CONV, CONV, conv_width
from .gated_delta_net import write_forget_gate
from .layer_parts import (convert_fla, divide, head_length, mixer_facts, write_conv, write_heads,
                          write_output, write_projections)

FAMILY = Family("gated_delta_product", Range.BY_KEY)

# num_v_heads: fla does not pass it to the layer; HV = H
KEYS = """
    expand_v head_dim num_heads num_v_heads use_gate use_output_gate use_forget_gate use_short_conv
    allow_neg_eigval num_householder
"""


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _count_factors(m: Model, src: str) -> int:
    n = 0
    while m.has(f"{src}k_projs.{n}.weight"):
        n += 1
    return n


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 6)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    n = _count_factors(m, src)
    if n > 0:
        value_dim = m.shape(src + "v_projs.0.weight", 2)[0]
        m.put(dst + "attn_q.weight", src + "q_proj.weight", (key_dim, D))
        m.rows(dst, src, [
            ("attn_k.weight",   [f"k_projs.{j}.weight" for j in range(n)], (key_dim, D),   CONCAT),
            ("attn_v.weight",   [f"v_projs.{j}.weight" for j in range(n)], (value_dim, D), CONCAT),
            ("ssm_beta.weight", [f"b_projs.{j}.weight" for j in range(n)], (H, D),         CONCAT),
        ])
        width = _write_split_conv(m, dst, src, n, key_dim, value_dim)
    else:
        _, n = head_length(m, src + "b_proj.weight", H)
        _, value_dim = head_length(m, src + "v_proj.weight", n, "num_householder")
        write_projections(m, dst, src, D, key_dim, n * key_dim, n * value_dim)
        m.put(dst + "ssm_beta.weight", src + "b_proj.weight", (n * H, D))
        width = write_conv(m, dst, src, ("q", key_dim), ("k", n * key_dim), ("v", n * value_dim))
    P = divide(m, src + "v_proj", value_dim, H, "num_heads")
    if m.get("num_householder", n) != n:
        raise ModelError(f"config.json: num_householder is {shown(m.get('num_householder'))}; the "
                         f"tensors of {src} have {n} factors")

    gated = m.flag(("use_forget_gate",), src + "a_proj.weight")
    if gated:
        write_forget_gate(m, dst, src, D, H)
    # the key was use_gate before 2025-07
    keys = (("use_output_gate",) if "use_output_gate" in m.config
            else ("use_output_gate", "use_gate"))
    gate = m.flag(keys, src + "g_proj.weight")
    write_output(m, dst, src, D, value_dim, P, gate)

    if "lrnn.head_count" not in m.kv:
        write_heads(m, H, K, P)
        m.set_u32("lrnn.householder_count", n)
        m.set_str("lrnn.gate", "head" if gated else "none")
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", "silu" if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        mixer_facts(m, f"n_h {n}", f"{H}, d_k × d_v {K} × {P}", "one per head" if gated else "none",
                    width)


def _write_split_conv(m: Model, dst: str, src: str, n: int, key_dim: int, value_dim: int) -> int:
    if not m.flag(("use_short_conv",), src + "k_conv1ds.0.weight"):
        return 0
    width = m.shape(src + "k_conv1ds.0.weight", 3)[2]
    q = "q_conv1d" if m.has(src + "q_conv1d.weight") else "q_conv1ds.0"
    k, v = ([f"{c}_conv1ds.{j}" for j in range(n)] for c in "kv")
    parts = (("q", [q], key_dim), ("k", k, key_dim), ("v", v, value_dim))
    for c, sources, channels in parts:
        m.put(f"{dst}ssm_conv1d_{c}.weight", [f"{src}{s}.weight" for s in sources],
              (channels, 1, width), CONV if c == "q" else CONCAT_CONV)
    if m.has(src + q + ".bias"):
        for c, sources, channels in parts:
            m.put(f"{dst}ssm_conv1d_{c}.bias", [f"{src}{s}.bias" for s in sources], (channels,),
                  CONCAT)
    for j in range(1, n):
        # layout A has one query convolution per factor; only the first is read
        m.drop(f"{src}q_conv1ds.{j}.weight")
        m.drop(f"{src}q_conv1ds.{j}.bias")
    return conv_width(width)


# the second is the authors' spelling
MODEL_TYPES = {"gated_deltaproduct": convert, "gated_delta_product": convert}
