"""Kimi-Linear (transformers `kimi_linear`): KDA layers and a few layers of latent attention; the
first layers with an MLP, the others with a mixture of experts.

The file has llama.cpp's architecture kimi-linear.
"""

from dataclasses import dataclass

import numpy as np

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model
from ..transforms import CONV, FLAT, NEG_EXP_FLAT, Transform, conv_width, reshape
from .experts import read_counts, write_expert_keys, write_experts, write_group_keys, write_shared
from .layer_parts import SWISH, attention_fact, mixer_facts, write_embedding, write_swiglu
from .llama_cpp import refuse_one_kind, write_common

FAMILY = Family("kimi_linear", Range.UNSIGNED)
ARCH = "kimi-linear"

# head_dim is not used; the tensors have the lengths of the latent attention
KEYS = """
    attention_bias first_k_dense_replace head_dim hidden_act kv_lora_rank layer_types
    linear_attn_config linear_conv_kernel_dim linear_head_dim linear_num_heads mla_use_nope
    mlp_layer_types model_max_length moe_intermediate_size moe_layer_freq moe_renormalize
    moe_router_activation_func num_attention_heads num_expert_group num_experts
    num_experts_per_token num_key_value_heads num_nextn_predict_layers num_shared_experts
    output_router_logits q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim rms_norm_eps
    rope_scaling rope_theta routed_scaling_factor topk_group use_grouped_topk v_head_dim
"""
EXPERTS = ("w1", "w3", "w2")               # gate, up, down


def _heads(begin: int, end: int, H: int, n: int, transposed: bool) -> Transform:
    """Rows begin to end of the n rows of each head of a matrix [H·n, R]: [H, rows, R], or
    [H, R, rows]."""

    def shape(s):
        return (H, s[0][1], end - begin) if transposed else (H, end - begin, s[0][1])

    def apply(a):
        x = a[0].reshape(H, n, -1)[:, begin:end]
        return np.swapaxes(x, 1, 2) if transposed else x

    return Transform(shape, apply)


@dataclass(frozen=True)
class Latent:
    """Latent attention: heads, length of the latent row, of the parts of a key without and with
    RoPE, of a value; rank of q, 0: none."""

    H: int
    R: int
    A: int
    r: int
    P: int
    RQ: int

    @staticmethod
    def read(m: Model, src: str, output: str) -> "Latent":
        """From the tensors of one layer."""
        H = m.count("num_attention_heads")
        R = m.shape(src + "kv_a_layernorm.weight", 1)[0]
        r = m.shape(src + "kv_a_proj_with_mqa.weight", 2)[0] - R
        P = m.shape(src + output, 2)[1] // H
        A = m.shape(src + "kv_b_proj.weight", 2)[0] // H - P
        for key, n in (("qk_nope_head_dim", A), ("qk_rope_head_dim", r), ("v_head_dim", P)):
            if n < 1 or m.get(key, n) != n:
                raise ModelError(f"config.json: {key} is {shown(m.get(key))} with {H} heads; the "
                                 f"tensors of {src[:-1]} have {n}")
        compressed = src + "q_a_layernorm.weight"
        return Latent(H, R, A, r, P, m.shape(compressed, 1)[0] if m.has(compressed) else 0)

    def write_layer(self, m: Model, dst: str, src: str, D: int, output: str) -> None:
        n, q = self.A + self.P, self.H * (self.A + self.r)
        if self.RQ:
            m.rows(dst, src, [
                ("attn_q_a.weight",      "q_a_proj.weight",      (self.RQ, D)),
                ("attn_q_a_norm.weight", "q_a_layernorm.weight", (self.RQ,)),
                ("attn_q_b.weight",      "q_b_proj.weight",      (q, self.RQ)),
            ])
        else:
            m.put(dst + "attn_q.weight", src + "q_proj.weight", (q, D))
        kv_b = ("kv_b_proj.weight", (self.H * n, self.R))              # for each head: rows of k, v
        m.rows(dst, src, [
            ("attn_kv_a_mqa.weight",  "kv_a_proj_with_mqa.weight", (self.R + self.r, D)),
            ("attn_kv_a_norm.weight", "kv_a_layernorm.weight",     (self.R,)),
            ("attn_k_b.weight",       *kv_b, _heads(0, self.A, self.H, n, transposed=True)),
            ("attn_v_b.weight",       *kv_b, _heads(self.A, n, self.H, n, transposed=False)),
            ("attn_output.weight",    output, (D, self.H * self.P)),
        ])

    def write_keys(self, m: Model, arch: str, attends: list[bool]) -> None:
        m.set_u32(f"{arch}.attention.head_count", self.H)
        m.set_array(f"{arch}.attention.head_count_kv", "i32", [int(x) for x in attends])
        m.set_u32(f"{arch}.attention.key_length", self.R + self.r)
        m.set_u32(f"{arch}.attention.value_length", self.R)
        m.set_u32(f"{arch}.attention.key_length_mla", self.A + self.r)
        m.set_u32(f"{arch}.attention.value_length_mla", self.P)
        m.set_u32(f"{arch}.attention.kv_lora_rank", self.R)
        if self.RQ:
            m.set_u32(f"{arch}.attention.q_lora_rank", self.RQ)
        m.set_u32(f"{arch}.rope.dimension_count", self.r)
        m.fact("attention", f"latent rows of {self.R} + {self.r} values")


def write_delta(m: Model, dst: str, src: str, D: int, H: int, output: str) -> tuple[int, int]:
    """q, k, v, β and the output of KDA; returns the length of a head and the width of the
    convolution."""
    K = m.shape(src + "o_norm.weight", 1)[0]
    W = m.shape(src + "q_conv1d.weight", 3)[2]
    E = H * K
    for c in "qkv":
        m.put(f"{dst}attn_{c}.weight", f"{src}{c}_proj.weight", (E, D))
        m.put(f"{dst}ssm_conv1d_{c}.weight", f"{src}{c}_conv1d.weight", (E, 1, W),
              reshape((E, 1, conv_width(W)), CONV))                    # llama.cpp has {W, 1, E}
    m.rows(dst, src, [
        ("ssm_beta.weight",    "b_proj.weight", (H, D)),
        ("ssm_dt.bias",        "dt_bias",       (E,), FLAT),
        ("ssm_norm.weight",    "o_norm.weight", (K,)),
        ("attn_output.weight", output,          (D, E)),
    ])
    return K, conv_width(W)


def first_key(m: Model, *names: str) -> str:
    """The name that config.json has, of those that a key has in different versions."""
    return next((name for name in names if m.get(name) is not None), names[0])


def read_kinds(m: Model, layers: int, mixer: str, mlp: str) -> tuple[list[bool], int]:
    """Which layers have attention, and the number of layers with an MLP, which must be the first.
    The tensors tell; the configuration must agree."""
    attends = [m.has(f"model.layers.{i}.{mixer}kv_a_layernorm.weight") for i in range(layers)]
    sparse = [m.has(f"model.layers.{i}.{mlp}gate.weight") for i in range(layers)]
    dense = sparse.index(True) if True in sparse else layers
    refuse_one_kind(m, ["attention" if x else "recurrent" for x in attends])
    if sparse != [i >= dense for i in range(layers)] or dense == layers:
        raise ModelError(f"{m.checkpoint.name}: the layers with a router are "
                         f"{[i for i, x in enumerate(sparse) if x]}; expected the last ones of "
                         f"{layers}")
    for key, found in (
            ("layer_types", ["full_attention" if x else "linear_attention" for x in attends]),
            ("mlp_layer_types", ["sparse" if x else "dense" for x in sparse]),
            ("first_k_dense_replace", dense)):
        if m.get(key, found) != found:
            raise ModelError(f"config.json: {key} is {shown(m.get(key))}; the tensors have "
                             f"{shown(found)}")
    return attends, dense


def write_router_keys(m: Model, arch: str, X: int, k: int, F: int, shared: int, dense: int,
                      groups: tuple[int, int], scale: float) -> None:
    """A router with σ, a bias and groups. The last two are the defaults of the library."""
    write_expert_keys(m, arch, X, k, F, shared)
    write_group_keys(m, arch, X, k, first_key(m, "n_group", "num_expert_group"), groups)
    m.set_u32(f"{arch}.expert_shared_count", shared // F)
    m.set_u32(f"{arch}.leading_dense_block_count", dense)
    m.set_u32(f"{arch}.expert_gating_func", 2)                         # σ
    m.set_bool(f"{arch}.expert_weights_norm",
               m.truth(first_key(m, "norm_topk_prob", "moe_renormalize"), True))
    m.set_f32(f"{arch}.expert_weights_scale", m.positive("routed_scaling_factor", scale))


def _check_linear(m: Model, attends: list[bool]) -> None:
    """The object of the release that describes the layers, which are counted from 1."""
    spec = m.get("linear_attn_config", {})
    full = [i + 1 for i, x in enumerate(attends) if x]
    sizes = {"num_heads", "head_dim", "short_conv_kernel_size", "kda_layers", "full_attn_layers"}
    if not isinstance(spec, dict) or not spec.keys() <= sizes:
        raise ModelError(f"config.json: linear_attn_config is {shown(spec)}; expected an object "
                         f"with {', '.join(sorted(sizes))}")
    if spec.get("full_attn_layers", full) != full:
        raise ModelError(f"config.json: full_attn_layers is {shown(spec['full_attn_layers'])}; the "
                         f"tensors have {full}")


def convert(checkpoint: Checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option)
    m.choice("hidden_act", "silu", SWISH)
    m.choice("moe_router_activation_func", "sigmoid", {"sigmoid": "sigmoid"})
    m.refuse_unless("attention_bias", (None, False), "the architecture has no biases")
    m.refuse_unless("mla_use_nope", (None, True), "the architecture has attention without RoPE")
    m.refuse_unless("moe_renormalize", (None, True), "llama.cpp always normalizes these weights")
    m.refuse_unless("moe_layer_freq", (None, 1), "every layer after the dense ones is a mixture")
    m.refuse_unless("q_lora_rank", (None,), "llama.cpp has no compressed q in this architecture")
    layers = m.count_layers("model.layers.")
    attends, dense = read_kinds(m, layers, "self_attn.", "block_sparse_moe.")
    _check_linear(m, attends)
    D, V = write_embedding(m, "model.embed_tokens.weight", tied_default=None)
    H = m.count("num_attention_heads")
    a = Latent.read(m, f"model.layers.{attends.index(True)}.self_attn.", "o_proj.weight")
    if m.get("model_max_length") is not None:
        m.trained_length = m.count("model_max_length")
    X, k = read_counts(m, "num_experts", "num_experts_per_token")
    moe = f"model.layers.{layers - 1}.block_sparse_moe."
    FX = m.shape(moe + "experts.0.w2.weight", 2)[1]
    shared = m.shape(moe + "shared_experts.down_proj.weight", 2)[1]

    m.put("output_norm.weight", "model.norm.weight", (D,))
    F = 0
    for i in range(layers):
        dst, src = f"blk.{i}.", f"model.layers.{i}."
        mixer, moe = src + "self_attn.", src + "block_sparse_moe."
        m.put(dst + "attn_norm.weight", src + "input_layernorm.weight", (D,))
        if attends[i]:
            a.write_layer(m, dst, mixer, D, "o_proj.weight")
        else:
            K, W = write_delta(m, dst, mixer, D, H, "o_proj.weight")
            R = m.shape(mixer + "f_a_proj.weight", 2)[0]
            G = m.shape(mixer + "g_a_proj.weight", 2)[0]
            m.rows(dst, mixer, [
                ("ssm_f_a.weight", "f_a_proj.weight", (R, D)),
                ("ssm_f_b.weight", "f_b_proj.weight", (H * K, R)),
                ("ssm_a",          "A_log",           (H,), reshape((H, 1), NEG_EXP_FLAT)),
                ("ssm_g_a.weight", "g_a_proj.weight", (G, D)),
                ("ssm_g_b.weight", "g_b_proj.weight", (H * K, G)),
            ])
        m.put(dst + "ffn_norm.weight", src + "post_attention_layernorm.weight", (D,))
        if i < dense:                      # as in the release, or as saved by transformers
            mlp = src + "mlp." if m.has(src + "mlp.down_proj.weight") else moe
            F = m.shape(mlp + "down_proj.weight", 2)[1]
            write_swiglu(m, dst, mlp, D, F)
        else:
            m.put(dst + "ffn_gate_inp.weight", moe + "gate.weight", (X, D))
            m.put(dst + "exp_probs_b.bias", moe + "gate.e_score_correction_bias", (X,))
            write_experts(m, dst, moe + "experts.", X, D, FX, gated=True, names=EXPERTS)
            write_shared(m, dst, moe + "shared_experts.", D, shared, gated=True)

    write_common(m, ARCH, layers, D, V, F)
    a.write_keys(m, ARCH, attends)
    m.set_u32(f"{ARCH}.kda.head_dim", K)
    m.set_u32(f"{ARCH}.ssm.conv_kernel", W)
    m.set_f32(f"{ARCH}.attention.layer_norm_rms_epsilon", m.positive("rms_norm_eps", 1e-5))
    write_router_keys(m, ARCH, X, k, FX, shared, dense, (1, 1), 2.446)
    mixer_facts(m, "n_h 1", f"{H}, d_k × d_v {K} × {K}", "one per key channel", W)
    attention_fact(m, [i for i, x in enumerate(attends) if x])
    return m


MODEL_TYPES = {"kimi_linear": convert}
