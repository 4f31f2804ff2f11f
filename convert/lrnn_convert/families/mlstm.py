"""xLSTM with mLSTM blocks (transformers `xlstm`, xLSTM-7b):  C = F C + I k vᵀ,  n = F n + I k,
stabilized by m."""

from .. import eigenvalues
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model
from ..transforms import rows
from .layer_parts import (DIAGONAL, backbone_embedding, divide, mixer_facts, write_embedding,
                          write_heads, write_sizes)

FAMILY = Family("mlstm", Range.UNSIGNED)

KEYS = """
    add_out_norm autocast_kernel_dtype chunk_size chunkwise_kernel embedding_dim eps ffn_proj_factor
    ffn_round_up_to_multiple_of gate_soft_cap inference_state_dtype max_inference_chunksize mode
    norm_eps norm_reduction_force_float32 num_blocks num_heads output_logit_soft_cap qk_dim_factor
    return_last_states sequence_kernel step_kernel use_bias v_dim_factor weight_mode
    mlstm_round_up_to_multiple_of
"""


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.refuse_unless("use_bias", (None, False), "biases in the projections are not supported")
    m.refuse_unless("add_out_norm", (None, True),
                    "a model without an output norm is not supported")
    layers = m.count_layers("backbone.blocks.")
    if m.get("num_blocks", layers) != layers:
        raise ModelError(f"config.json: num_blocks is {shown(m.get('num_blocks'))}; the tensors "
                         f"have {layers}")
    D, V = write_embedding(m, backbone_embedding(m))
    H = m.count("num_heads", 8)
    first = "backbone.blocks.0.mlstm_layer."
    value_dim = m.shape(first + "multihead_norm.weight", 1)[0]
    fused = m.has(first + "qkv_opreact.weight")
    if fused:
        key_dim = (m.shape(first + "qkv_opreact.weight", 2)[0] - 2 * value_dim) // 2
    else:
        key_dim = m.shape(first + "q.weight", 2)[0]
    K = divide(m, first + "q.weight", key_dim, H, "num_heads")
    P = divide(m, first + "v.weight", value_dim, H, "num_heads")
    F = m.shape("backbone.blocks.0.ffn.proj_down.weight", 2)[1]
    eps = m.positive("norm_eps", 1e-6)
    write_sizes(m, layers, D, V, eps, F)

    m.put("output_norm.weight", "backbone.out_norm.weight", (D,))
    for i in range(layers):
        dst, src = f"blk.{i}.", f"backbone.blocks.{i}."
        m.put(dst + "attn_norm.weight", src + "norm_mlstm.weight", (D,))
        if fused:
            _fused_mixer(m, dst, src + "mlstm_layer.", D, H, key_dim, value_dim)
        else:
            m.rows(dst, src + "mlstm_layer.", [
                ("attn_q.weight",    "q.weight",            (key_dim, D)),
                ("attn_k.weight",    "k.weight",            (key_dim, D)),
                ("attn_v.weight",    "v.weight",            (value_dim, D)),
                ("attn_gate.weight", "ogate_preact.weight", (value_dim, D)),
                ("ssm_igate.weight", "igate_preact.weight", (H, D)),
                ("ssm_igate.bias",   "igate_preact.bias",   (H,)),
                ("ssm_fgate.weight", "fgate_preact.weight", (H, D)),
                ("ssm_fgate.bias",   "fgate_preact.bias",   (H,)),
            ])
        m.rows(dst, src, [
            ("ssm_norm.weight",    "mlstm_layer.multihead_norm.weight", (value_dim,)),
            ("attn_output.weight", "mlstm_layer.out_proj.weight",       (D, value_dim)),
            ("ffn_norm.weight",    "norm_ffn.weight",                   (D,)),
        ])
        if m.has(src + "ffn.proj_up_gate_z.weight"):
            both = (2 * F, D)
            m.rows(dst, src + "ffn.", [
                ("ffn_gate.weight", "proj_up_gate_z.weight", both, rows(0, F)),
                ("ffn_up.weight",   "proj_up_gate_z.weight", both, rows(F, 2 * F)),
            ])
        else:
            m.rows(dst, src + "ffn.", [
                ("ffn_gate.weight", "proj_up_gate.weight", (F, D)),
                ("ffn_up.weight",   "proj_up.weight",      (F, D)),
            ])
        m.put(dst + "ffn_down.weight", src + "ffn.proj_down.weight", (D, F))

    write_heads(m, H, K, P)
    m.set_f32("lrnn.output_norm_epsilon", eps)
    m.set_f32("lrnn.mlstm_epsilon", m.positive("eps", 1e-6))
    # null in config.json means no cap; only a missing key means the default
    for key, name, default in (("lrnn.gate_soft_cap", "gate_soft_cap", 15.0),
                               ("lrnn.logit_soft_cap", "output_logit_soft_cap", 30.0)):
        if m.config.get(name, default) is not None:
            m.set_f32(key, m.positive(name, default))
    mixer_facts(m, DIAGONAL, f"{H}, d_k × d_v {K} × {P}",
                "exponential input gate and sigmoid forget gate, one each per head", "none")
    return m


def _fused_mixer(m: Model, dst: str, src: str, D: int, H: int, key_dim: int,
                 value_dim: int) -> None:
    """weight_mode = fused: rows q, k, v, o in one matrix; rows i, f in another."""
    qkvo, ifgate = "qkv_opreact.weight", "ifgate_preact"
    shape = (2 * key_dim + 2 * value_dim, D)
    v, o, end = 2 * key_dim, 2 * key_dim + value_dim, shape[0]
    m.rows(dst, src, [
        ("attn_q.weight",    qkvo, shape, rows(0, key_dim)),
        ("attn_k.weight",    qkvo, shape, rows(key_dim, v)),
        ("attn_v.weight",    qkvo, shape, rows(v, o)),
        ("attn_gate.weight", qkvo, shape, rows(o, end)),
        ("ssm_igate.weight", ifgate + ".weight", (2 * H, D), rows(0, H)),
        ("ssm_igate.bias",   ifgate + ".bias",   (2 * H,),   rows(0, H)),
        ("ssm_fgate.weight", ifgate + ".weight", (2 * H, D), rows(H, 2 * H)),
        ("ssm_fgate.bias",   ifgate + ".bias",   (2 * H,),   rows(H, 2 * H)),
    ])


MODEL_TYPES = {"xlstm": convert}
