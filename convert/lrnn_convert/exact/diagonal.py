"""Parity in families with a diagonal transition: Mamba, Mamba-2, GLA.

    bit 1:  h ← −h + c        bit 0:  h ← h        h = c · parity, exact: h is always 0 or c

The transition is 2 exp(ΔA) − 1 (or 2α − 1). Δ = 32 for a one gives −1 in F32, Δ = 10⁻¹⁴ for a zero
gives 1. With eigenvalues in [0,1] the same weights give h ← 0 · h + c: the model remembers only
that there was a one.
"""

import numpy as np

from ..checkpoint import Checkpoint
from .checkpoint import (SIZE, Layout, embeddings, fla_config, fla_model, identity_conv, in_memory,
                         mamba_model)

GAIN = 16.0                 # UNIT · GAIN = 32, where SiLU and softplus are the identity in F32
SYMBOLS = ["0", "1"]


class Channels(Layout):
    """One channel is set for a one, one is always set, and one holds the answer."""

    def __init__(self):
        super().__init__()
        self.one, self.const, self.answer = (self.take(1)[0] for _ in range(3))
        self.D = self.width(32)

    def tokens(self) -> np.ndarray:
        return embeddings([{self.const: 1.0}, {self.const: 1.0, self.one: 1.0}], self.D, self.used)

    def output(self) -> np.ndarray:
        """0, unless the answer is more than half of the constant channel."""
        out = np.zeros((2, self.D))
        out[0, self.const], out[1, self.answer] = 0.5, 1.0
        return out


def mamba(name: str) -> tuple[Checkpoint, list[str]]:
    p = Channels()
    D, E, N, R = p.D, 2 * p.D, 4, 2
    u_one, u_const = 0, 1                               # inner channels: 32 for a one; 32 always
    w_in = np.zeros((2 * E, D))
    w_in[u_one, p.one] = w_in[u_const, p.const] = GAIN
    w_in[E + u_one, p.const] = GAIN                     # z, silu(z) = 32
    w_x = np.zeros((R + 2 * N, E))
    w_x[0, u_one] = 2.0                                 # Δ: softplus(64 − 32) or softplus(−32)
    w_x[R, u_const] = 1 / 1024                          # B = 1/32: Δ B u = 32 · 1/32 · 32
    w_x[R + N, u_const] = 1 / 32                        # C = 1
    w_dt = np.zeros((E, R))
    w_dt[u_one, 0] = 1.0
    w_out = np.zeros((D, E))
    w_out[p.answer, u_one] = 1.0                        # 32 · 32
    layer = {
        "in_proj.weight": w_in, "conv1d.weight": identity_conv(E), "conv1d.bias": np.zeros(E),
        "x_proj.weight": w_x, "dt_proj.weight": w_dt, "dt_proj.bias": np.full(E, -32.0),
        "A_log": np.zeros((E, N)), "D": np.zeros(E), "out_proj.weight": w_out,
    }
    config = {"model_type": "mamba", "hidden_size": D, "num_hidden_layers": 1, "vocab_size": 2,
              "intermediate_size": E, "state_size": N, "time_step_rank": R, "conv_kernel": 4,
              "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
    return in_memory(name, config, mamba_model(p.tokens(), p.output(), layer)), SYMBOLS


def mamba2(name: str) -> tuple[Checkpoint, list[str]]:
    p = Channels()
    D, H, P, N = p.D, 2, p.D, 4
    E = H * P
    z, u, B, C, dt = 0, E, 2 * E, 2 * E + N, 2 * E + 2 * N    # rows of in_proj
    w_in = np.zeros((2 * E + 2 * N + H, D))
    w_in[u, p.one] = GAIN                               # the first channel of the first head
    w_in[[z, B, C], p.const] = GAIN
    w_in[dt, p.one] = 2 * GAIN                          # Δ: softplus(64 − 32) or softplus(−32)
    w_out = np.zeros((D, E))
    w_out[p.answer, 0] = SIZE
    layer = {
        "in_proj.weight": w_in, "conv1d.weight": identity_conv(E + 2 * N),
        "conv1d.bias": np.zeros(E + 2 * N), "dt_bias": np.full(H, -32.0), "A_log": np.zeros(H),
        "D": np.zeros(H), "norm.weight": np.ones(E), "out_proj.weight": w_out,
    }
    config = {"model_type": "mamba2", "hidden_size": D, "num_hidden_layers": 1, "vocab_size": 2,
              "expand": 2, "state_size": N, "num_heads": H, "head_dim": P, "n_groups": 1,
              "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
              "rms_norm": True, "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, float("inf")],
              "tie_word_embeddings": False}
    return in_memory(name, config, mamba_model(p.tokens(), p.output(), layer)), SYMBOLS


def gla(name: str) -> tuple[Checkpoint, list[str]]:
    p = Channels()
    D, K, P, R = p.D, 4, 4, 4
    row = np.zeros((K, D))
    row[0, p.const] = GAIN                              # q and k, on the first channel
    v = np.zeros((P, D))
    v[0, p.one] = GAIN
    f1, f2 = np.zeros((R, D)), np.zeros((K, R))
    f1[0, p.one] = -GAIN                                # α = σ(32)^{1/16} = 1 for a zero,
    f2[0, 0] = 17.0                                     #     σ(32 − 544)^{1/16} = e^{−32} for a one
    o = np.zeros((D, P))
    o[p.answer, 0] = SIZE
    mixer = {"q_proj.weight": row, "k_proj.weight": row, "v_proj.weight": v,
             "gk_proj.0.weight": f1, "gk_proj.1.weight": f2, "gk_proj.1.bias": np.full(K, 32.0),
             "g_norm.weight": np.ones(P), "o_proj.weight": o}
    config = fla_config("gla", D, 32, 2, num_heads=1, expand_k=K / D, expand_v=P / D,
                        use_short_conv=False, use_output_gate=False)
    return in_memory(name, config, fla_model(D, 32, p.tokens(), p.output(), mixer)), SYMBOLS
