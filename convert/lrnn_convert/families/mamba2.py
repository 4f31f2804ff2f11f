"""Mamba-2 (transformers, state-spaces, fla).

    Δ_h = clamp(softplus(dt_h + dt_bias_h)),  S_h = exp(Δ_h A_h) S_h + Δ_h x_h B_gᵀ,  g = h / (H/G)
    y = norm over each of G slices of (y * silu(z))
"""

import math
from dataclasses import dataclass

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_count, is_number
from ..transforms import CONV, FLAT, NEG_EXP_FLAT, SAME, Transform, conv_width, reshape
from .layer_parts import DIAGONAL, mixer_facts, write_embedding, write_heads, write_sizes
from .llama_cpp import explain, reasons_against, write_common
from .mamba import KEYS as MAMBA_KEYS
from .mamba import (read_eps, read_outer, read_ssm_cfg, state_spaces_layer, write_biases,
                    write_norms)

FAMILY = Family("mamba2", Range.BY_OPTION)

KEYS = MAMBA_KEYS + " time_step_limit dt_limit norm_before_gate A_init_range D_has_hdim"


def recognize(c: Checkpoint):
    return convert if state_spaces_layer(c) == "Mamba2" else None


@dataclass(frozen=True)
class Sizes:
    H: int                                 # heads
    P: int                                 # length of a head
    N: int                                 # of B and C
    G: int                                 # groups of heads that share B and C
    W: int                                 # of the convolution

    @property
    def E(self) -> int:                    # inner size
        return self.H * self.P

    @property
    def C(self) -> int:                    # convolved channels: x, B, C
        return self.E + 2 * self.G * self.N


def read_sizes(m: Model, first: str, G: int | None = None) -> Sizes:
    """From the tensors of the mixer `first`. G: the number of groups; None: that of Mamba-2's own
    configurations."""
    E = m.shape(first + "out_proj.weight", 2)[1]
    H = m.shape(first + "A_log", 1)[0]
    C, _, W = m.shape(first + "conv1d.weight", 3)
    G = _count_groups(m, C - E) if G is None else G
    if E % H or (C - E) % (2 * G) or E % G or C <= E:
        raise ModelError(f"{m.checkpoint.name}: tensor {first}conv1d.weight has {C} channels with "
                         f"inner size {E}, {H} heads and {G} groups; expected inner size + "
                         "2 · groups · state")
    return Sizes(H, E // H, (C - E) // (2 * G), G, W)


def write_mixer(m: Model, dst: str, src: str, D: int, s: Sizes, norm: bool = True,
                scale_in: Transform = SAME, scale_out: Transform = SAME) -> None:
    """A layer of Mamba-2 without its input norm and the biases."""
    m.rows(dst, src, [
        ("ssm_in.weight",     "in_proj.weight", (s.E + s.C + s.H, D), scale_in),   # z, x, B, C, dt
        ("ssm_conv1d.weight", "conv1d.weight",  (s.C, 1, s.W), CONV),
        ("ssm_dt.bias",       "dt_bias",        (s.H,), FLAT),
        ("ssm_a",             "A_log",          (s.H,), reshape((s.H, 1), NEG_EXP_FLAT)),
        ("ssm_d",             "D",              (s.H,), reshape((s.H, 1))),
    ])
    if norm:                               # llama.cpp and the authors normalize each group
        m.put(dst + "ssm_norm.weight", src + "norm.weight", (s.E,), reshape((s.G, s.E // s.G)))
    m.put(dst + "ssm_out.weight", src + "out_proj.weight", (D, s.E), scale_out)


def write_keys(m: Model, arch: str, s: Sizes) -> None:
    """The keys of llama.cpp."""
    m.set_u32(f"{arch}.ssm.conv_kernel", conv_width(s.W))
    m.set_u32(f"{arch}.ssm.inner_size", s.E)
    m.set_u32(f"{arch}.ssm.state_size", s.N)
    m.set_u32(f"{arch}.ssm.time_step_rank", s.H)           # llama.cpp's key for the head count
    m.set_u32(f"{arch}.ssm.group_count", s.G)


def write_facts(m: Model, s: Sizes) -> None:
    mixer_facts(m, DIAGONAL, f"{s.H}, d_k × d_v {s.N} × {s.P}, groups {s.G}", "one per head", s.W)


def refuse_limit(m: Model) -> None:
    """For hybrids, none of which has a limit on Δ."""
    low, high = read_limit(m)
    if low > 0 or high < math.inf:
        raise ModelError(f"config.json: time_step_limit is [{low:g}, {high:g}]; expected [0, inf]")


def read_limit(m: Model) -> tuple[float, float]:
    limit = m.get("time_step_limit", m.get("dt_limit", m.get("ssm_cfg", {}).get("dt_limit")))
    if limit is None:
        return 0.0, math.inf
    if (not isinstance(limit, (list, tuple)) or len(limit) != 2
            or not all(is_number(x) or x == math.inf for x in limit)):
        raise ModelError(f"config.json: time_step_limit is {shown(limit)}; expected a pair of "
                         "numbers")
    return float(limit[0]), float(limit[1])


def _count_groups(m: Model, channels: int) -> int:
    """channels: of B and C, 2 · groups · state. The default of n_groups is 8 in transformers and 1
    in fla, under the same model_type; that of state_size is 128 in both."""
    cfg = m.get("ssm_cfg", {})
    N = m.get("state_size")
    G = m.get("n_groups", cfg.get("ngroups"))
    if G is None and "model_type" not in m.config:
        G = 1                              # state-spaces
    elif G is None:
        N = m.count("state_size", 128)
        if channels % (2 * N):
            raise ModelError(f"config.json: n_groups is missing, and {channels} channels of B and "
                             f"C are not a multiple of 2 · {N} (state_size)")
        return channels // (2 * N)
    if not is_count(G):
        raise ModelError(f"config.json: n_groups is {shown(G)}; expected a positive integer")
    if N is not None and 2 * G * m.count("state_size") != channels:
        raise ModelError(f"config.json: n_groups is {G} and state_size {N}; expected a product of "
                         f"{channels // 2}, as in the tensors")
    return G


def convert(checkpoint, option: str) -> Model:
    m = Model(checkpoint, FAMILY, KEYS)
    eigenvalues.decide(m, option, stated=read_ssm_cfg(m))
    cfg = m.get("ssm_cfg", {})
    for key in ("norm_before_gate", "D_has_hdim"):
        for value in (m.config.get(key), cfg.get(key)):
            if value is not None and value is not False:
                raise ModelError(f"config.json: {key} is {shown(value)}; expected false")
    prefix, embedding, final_norm = read_outer(m)
    if final_norm is None:
        raise ModelError(f"{m.checkpoint.name}: tensor backbone.embeddings.weight is missing")
    layers = m.count_layers(prefix)
    D, V = write_embedding(m, embedding, tied_default=None)

    s = read_sizes(m, prefix + "0.mixer.")
    eps = read_eps(m)

    layer_norm = write_norms(m, prefix, layers, D, final_norm)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        write_mixer(m, dst, src + "mixer.", D, s)
        biased = write_biases(m, dst, src, s.E + s.C + s.H, s.C, D)
    if s.G > 1 and "model_type" in m.config:
        m.notes.append(f"{s.G} groups: the output norm is per group, as in training; transformers' "
                       "own module normalises over all channels")

    low, high = read_limit(m)
    reasons = reasons_against(
        ("signed eigenvalues, which it would compute wrongly",
         m.eigenvalues[0] == eigenvalues.SIGNED),
        (f"Δ is limited to [{low:g}, {high:g}]", low > 0 or high < math.inf),
        ("LayerNorm", layer_norm),
        ("biases in the projections", biased),
    )
    if reasons:
        write_sizes(m, layers, D, V, eps, None)
        write_heads(m, s.H, s.N, s.P)
        m.set_u32("lrnn.state_length", s.N)
        m.set_u32("lrnn.group_count", s.G)
        m.set_u32("lrnn.conv_width", conv_width(s.W))
        m.set_f32("lrnn.output_norm_epsilon", eps)
        if low > 0:
            m.set_f32("lrnn.dt_min", low)
        if high < math.inf:
            m.set_f32("lrnn.dt_max", high)
        explain(m, "mamba2", reasons)
    else:
        write_common(m, "mamba2", layers, D, V, 0)
        write_keys(m, "mamba2", s)
        m.set_f32("mamba2.attention.layer_norm_rms_epsilon", eps)
    write_facts(m, s)
    return m


MODEL_TYPES = {"mamba2": convert}
