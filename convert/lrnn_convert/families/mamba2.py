"""Mamba-2 (transformers, state-spaces, fla).

    Δ_h = clamp(softplus(dt_h + dt_bias_h)),  S_h = exp(Δ_h A_h) S_h + Δ_h x_h B_gᵀ,  g = h / (H/G)
    y = norm over each of G slices of (y * silu(z))
"""

import math

from .. import eigenvalues
from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..family import Family, Range
from ..model import Model, is_count, is_number
from ..transforms import CONV, FLAT, NEG_EXP_FLAT, conv_width, reshape
from .layer_parts import DIAGONAL, mixer_facts, write_embedding, write_heads, write_sizes
from .llama_cpp import explain, reasons_against, write_common
from .mamba import KEYS as MAMBA_KEYS
from .mamba import (read_eps, read_outer, read_ssm_cfg, state_spaces_layer, write_biases,
                    write_norms)

FAMILY = Family("mamba2", Range.BY_OPTION)

KEYS = MAMBA_KEYS + " time_step_limit dt_limit norm_before_gate A_init_range D_has_hdim"


def recognize(c: Checkpoint):
    return convert if state_spaces_layer(c) == "Mamba2" else None


def _read_limit(m: Model) -> tuple[float, float]:
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

    first = prefix + "0.mixer."
    E = m.shape(first + "out_proj.weight", 2)[1]
    H = m.shape(first + "A_log", 1)[0]
    C, _, W = m.shape(first + "conv1d.weight", 3)
    G = _count_groups(m, C - E)
    if E % H or (C - E) % (2 * G) or E % G or C <= E:
        raise ModelError(f"{m.checkpoint.name}: tensor {first}conv1d.weight has {C} channels with "
                         f"inner size {E}, {H} heads and {G} groups; expected inner size + "
                         "2 · groups · state")
    N, P = (C - E) // (2 * G), E // H
    eps = read_eps(m)

    layer_norm = write_norms(m, prefix, layers, D, final_norm)
    for i in range(layers):
        dst, src = f"blk.{i}.", f"{prefix}{i}."
        m.rows(dst, src, [
            ("ssm_in.weight",     "mixer.in_proj.weight",  (E + C + H, D)),  # rows z, x, B, C, dt
            ("ssm_conv1d.weight", "mixer.conv1d.weight",   (C, 1, W), CONV),
            ("ssm_dt.bias",       "mixer.dt_bias",         (H,), FLAT),
            ("ssm_a",             "mixer.A_log",           (H,), reshape((H, 1), NEG_EXP_FLAT)),
            ("ssm_d",             "mixer.D",               (H,), reshape((H, 1))),
            # one row per group: llama.cpp and the authors normalize each group separately
            ("ssm_norm.weight",   "mixer.norm.weight",     (E,), reshape((G, E // G))),
            ("ssm_out.weight",    "mixer.out_proj.weight", (D, E)),
        ])
        biased = write_biases(m, dst, src, E + C + H, C, D)
    if G > 1 and "model_type" in m.config:
        m.notes.append(f"{G} groups: the output norm is per group, as in training; transformers' "
                       "own module normalises over all channels")

    low, high = _read_limit(m)
    reasons = reasons_against(
        ("signed eigenvalues, which it would compute wrongly",
         m.eigenvalues[0] == eigenvalues.SIGNED),
        (f"Δ is limited to [{low:g}, {high:g}]", low > 0 or high < math.inf),
        ("LayerNorm", layer_norm),
        ("biases in the projections", biased),
    )
    if reasons:
        write_sizes(m, layers, D, V, eps, None)
        write_heads(m, H, N, P)
        m.set_u32("lrnn.state_length", N)
        m.set_u32("lrnn.group_count", G)
        m.set_u32("lrnn.conv_width", conv_width(W))
        m.set_f32("lrnn.output_norm_epsilon", eps)
        if low > 0:
            m.set_f32("lrnn.dt_min", low)
        if high < math.inf:
            m.set_f32("lrnn.dt_max", high)
        explain(m, "mamba2", reasons)
    else:
        write_common(m, "mamba2", layers, D, V, 0)
        m.set_u32("mamba2.ssm.conv_kernel", conv_width(W))
        m.set_u32("mamba2.ssm.inner_size", E)
        m.set_u32("mamba2.ssm.state_size", N)
        m.set_u32("mamba2.ssm.time_step_rank", H)              # llama.cpp's key for the head count
        m.set_u32("mamba2.ssm.group_count", G)
        m.set_f32("mamba2.attention.layer_norm_rms_epsilon", eps)
    mixer_facts(m, DIAGONAL, f"{H}, d_k × d_v {N} × {P}, groups {G}", "one per head", W)
    return m


MODEL_TYPES = {"mamba2": convert}
