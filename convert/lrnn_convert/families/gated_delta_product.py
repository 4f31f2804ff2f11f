"""Gated DeltaProduct (fla `gated_deltaproduct`): n Householder factors a token, one gate a head before them.

Three layouts of the same weights exist:
  A  k_projs.j, v_projs.j, b_projs.j; q_conv1ds.j (only 0 is used), k_conv1ds.j, v_conv1ds.j     until 2025-05-13, and the authors
  B  as A with a single q_conv1d                                                                until 2025-06-18
  C  k_proj, v_proj, b_proj, k_conv1d, v_conv1d with rows (factor, head, dimension)             since
The file has C; A and B become C by concatenation over the factors.
"""

from .. import eigenvalues
from ..errors import ModelError
from ..model import Model
from ..transforms import CONCAT, CONCAT_CONV, CONV, FLAT, NEG_EXP_FLAT, conv_width
from .layer_parts import SHELL_KEYS, conv_fact, convert_shell, divide, write_conv

KEYS = SHELL_KEYS + """
    expand_v head_dim num_heads num_v_heads use_gate use_output_gate use_forget_gate use_short_conv allow_neg_eigval num_householder
"""                                        # num_v_heads is not handed to the layer: HV = H


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, "gated_delta_product", KEYS)
    eigenvalues.decide(m, option, "allow_neg_eigval", default=False)
    convert_shell(m, _mixer)
    return m


def _count_factors(m: Model, src: str) -> int:
    n = 0
    while m.has(f"{src}k_projs.{n}.weight"):
        n += 1
    return n


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 6)
    key_dim = m.shape(src + "q_proj.weight", 2)[0]
    K = divide(m, src + "q_proj.weight", key_dim, H, "num_heads")
    m.put(dst + "attn_q.weight", src + "q_proj.weight", (key_dim, D))

    n = _count_factors(m, src)
    if n > 0:
        value_dim = m.shape(src + "v_projs.0.weight", 2)[0]
        parts = range(n)
        m.rows(dst, src, [
            ("attn_k.weight",   [f"k_projs.{j}.weight" for j in parts], (key_dim, D),   CONCAT),
            ("attn_v.weight",   [f"v_projs.{j}.weight" for j in parts], (value_dim, D), CONCAT),
            ("ssm_beta.weight", [f"b_projs.{j}.weight" for j in parts], (H, D),         CONCAT),
        ])
        width = _write_split_conv(m, dst, src, n, key_dim, value_dim)
    else:
        n = divide(m, src + "b_proj.weight", m.shape(src + "b_proj.weight", 2)[0], H, "num_heads")
        value_dim = divide(m, src + "v_proj.weight", m.shape(src + "v_proj.weight", 2)[0], n, "num_householder")
        m.rows(dst, src, [
            ("attn_k.weight",   "k_proj.weight", (n * key_dim, D)),
            ("attn_v.weight",   "v_proj.weight", (n * value_dim, D)),
            ("ssm_beta.weight", "b_proj.weight", (n * H, D)),
        ])
        width = write_conv(m, dst, src, [
            ("ssm_conv1d_q", "q_conv1d", key_dim),
            ("ssm_conv1d_k", "k_conv1d", n * key_dim),
            ("ssm_conv1d_v", "v_conv1d", n * value_dim),
        ])
    P = divide(m, src + "v_proj", value_dim, H, "num_heads")
    if m.get("num_householder", n) != n:
        raise ModelError(f"config.json: num_householder is {m.get('num_householder')}, the tensors of {src} have {n} factors")

    gated = m.flag(("use_forget_gate",), src + "a_proj.weight")
    if gated:
        m.rows(dst, src, [
            ("ssm_alpha.weight", "a_proj.weight", (H, D)),
            ("ssm_a",            "A_log",         (H,), NEG_EXP_FLAT),     # g = -exp(A_log) softplus(a + dt_bias)
            ("ssm_dt.bias",      "dt_bias",       (H,), FLAT),
        ])
    # the key was use_gate before 2025-07
    gate = m.flag(("use_output_gate", "use_gate") if "use_output_gate" not in m.config else ("use_output_gate",), src + "g_proj.weight")
    if gate:
        m.put(dst + "attn_gate.weight", src + "g_proj.weight", (value_dim, D))
    m.put(dst + "ssm_norm.weight", src + "o_norm.weight", (P,))
    m.put(dst + "attn_output.weight", src + "o_proj.weight", (D, value_dim))

    if "lrnn.head_count" not in m.kv:
        m.set_u32("lrnn.head_count", H)
        m.set_u32("lrnn.key_length", K)
        m.set_u32("lrnn.value_length", P)
        m.set_u32("lrnn.householder_count", n)
        m.set_str("lrnn.gate", "head" if gated else "none")
        m.set_u32("lrnn.conv_width", width)
        m.set_str("lrnn.output_gate", "silu" if gate else "none")
        m.set_f32("lrnn.output_norm_epsilon", m.positive("norm_eps", 1e-6))
        m.fact("factors", f"n_h {n}")
        m.fact("heads", f"{H}, d_k × d_v {K} × {P}")
        m.fact("gate", "one a head" if gated else "none")
        m.fact("conv", conv_fact(width))


def _write_split_conv(m: Model, dst: str, src: str, n: int, key_dim: int, value_dim: int) -> int:
    if not m.flag(("use_short_conv",), src + "k_conv1ds.0.weight"):
        return 0
    width = m.shape(src + "k_conv1ds.0.weight", 3)[2]
    q = "q_conv1d" if m.has(src + "q_conv1d.weight") else "q_conv1ds.0"
    m.rows(dst, src, [
        ("ssm_conv1d_q.weight", q + ".weight",                              (key_dim, 1, width),   CONV),
        ("ssm_conv1d_k.weight", [f"k_conv1ds.{j}.weight" for j in range(n)], (key_dim, 1, width),   CONCAT_CONV),
        ("ssm_conv1d_v.weight", [f"v_conv1ds.{j}.weight" for j in range(n)], (value_dim, 1, width), CONCAT_CONV),
    ])
    if m.has(src + q + ".bias"):
        m.rows(dst, src, [
            ("ssm_conv1d_q.bias", q + ".bias",                              (key_dim,)),
            ("ssm_conv1d_k.bias", [f"k_conv1ds.{j}.bias" for j in range(n)], (key_dim,),   CONCAT),
            ("ssm_conv1d_v.bias", [f"v_conv1ds.{j}.bias" for j in range(n)], (value_dim,), CONCAT),
        ])
    for j in range(1, n):
        # layout A has a query convolution for every factor; only the first is read
        m.drop(f"{src}q_conv1ds.{j}.weight")
        m.drop(f"{src}q_conv1ds.{j}.bias")
    return conv_width(width)
