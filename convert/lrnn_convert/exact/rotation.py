"""Z_m by two reflections: addition modulo m as a rotation of the plane (DeltaProduct, n_h = 2).

Two reflections whose keys enclose the angle θ/2 make a rotation by θ. Letter w turns by θ = 2π w/m:

    keys (1, 0), (cos θ/2, sin θ/2)                      θ ≤ π
    keys (cos θ'/2, sin θ'/2), (1, 0),  θ' = 2π − θ      otherwise, so that no entry is negative

<s> writes the identity into the state; S = R(φ) after letters that turn by φ in total. The head
reads the first row, (cos φ, −sin φ). Its norm is always 1, so RMSNorm preserves the angle; the
output compares it with the m possible ones. Not exact: rounding moves the angle by about 4e-5 per
million letters, while the answer changes at π/m.
"""

from math import cos, pi, sin

import numpy as np

from ..checkpoint import Checkpoint
from .checkpoint import (BOS, SIZE, Layout, delta_mixer, embeddings, fla_config, fla_model,
                         in_memory)
from .householder import BETA, VALUE

KEY = 4096.0        # SiLU is the identity for every entry of a key; the smallest is sin π/m


def keys(w: int, m: int) -> tuple[tuple[float, float], tuple[float, float]]:
    turn = min(w, m - w)
    second = (0.0, 1.0) if 2 * turn == m else (cos(pi * turn / m), sin(pi * turn / m))
    return ((1.0, 0.0), second) if 2 * w <= m else (second, (1.0, 0.0))


def build(name: str, m: int, signed: bool) -> tuple[Checkpoint, list[str]]:
    symbols = [*map(str, range(m)), BOS]
    layout = Layout()
    key = [layout.take(2), layout.take(2)]
    bos, const = layout.take(1)[0], layout.take(1)[0]
    row = layout.take(2)
    D = layout.width(32)

    tokens = []
    for w in range(m):
        entries = {key[j][i]: x for j, k in enumerate(keys(w, m)) for i, x in enumerate(k)}
        tokens.append({const: 1.0} | entries)
    tokens.append({const: 1.0, bos: 1.0, key[0][0]: 1.0, key[1][1]: 1.0})

    K, P, n_h = 4, 4, 2
    q, k, v = np.zeros((1, K, D)), np.zeros((n_h, 1, K, D)), np.zeros((n_h, 1, P, D))
    beta, o = np.zeros((n_h, 1, D)), np.zeros((D, 1, P))
    q[0, 0, const] = KEY
    beta[:, 0, const] = BETA
    for j in range(n_h):
        for i in range(2):
            k[j, 0, i, key[j][i]] = KEY
        v[j, 0, j, bos] = VALUE
        o[row[j], 0, j] = SIZE
    mixer = delta_mixer(q, k, v, beta, o, conv=True)
    output = np.zeros((len(symbols), D))
    for y in range(m):
        output[y, list(row)] = cos(2 * pi * y / m), -sin(2 * pi * y / m)

    config = fla_config("gated_deltaproduct", D, 32, len(symbols), num_heads=1, head_dim=K,
                        expand_v=1.0, use_short_conv=True, conv_size=4, use_output_gate=False,
                        use_forget_gate=False, num_householder=n_h, allow_neg_eigval=signed)
    embedding = embeddings(tokens, D, layout.used)
    return in_memory(name, config, fla_model(D, 32, embedding, output, mixer)), symbols
