"""Parity in RWKV-7, as far as it goes.

The transition diag(w) − (κ ∘ a) κᵀ has the eigenvalue w − a along a one-hot κ. For a zero it is 1: w = 1, a = 0. For a one the least that the family
allows is w = exp(−e^{−1/2}) = 0.545 with a = 1: −0.455. The sign of the state is the parity, and every one more than halves it: the answer is right
until the state is lost, some 130 ones after <s>.

Embeddings are pairs (+x, −x), so that no LayerNorm finds a mean.
"""

import numpy as np

from ..checkpoint import Checkpoint
from .checkpoint import BOS, SIZE, in_memory

D, N, RANK = 32, 8, 4
ONE, CONST, START, SLOT, FREE = 0, 2, 4, 6, 8            # first of a pair; pairs from FREE on even out the norm
PAIRS = 4                                               # of a token: the norm of ln1 gives ±2
SATURATED = 128.0


def build(name: str) -> tuple[Checkpoint, list[str]]:
    symbols = ["0", "1", BOS]
    emb = np.zeros((len(symbols), D))
    for row, places in zip(emb, ([CONST], [CONST, ONE], [CONST, START]), strict=True):
        places = places + [FREE + 2 * i for i in range(PAIRS - len(places))]
        row[places] = SIZE
        row[[p + 1 for p in places]] = -SIZE

    key, value, output, head = np.zeros((D, D)), np.zeros((D, D)), np.zeros((D, D)), np.zeros((len(symbols), D))
    key[0, CONST] = 1.0                                 # the first channel of the first head, for κ, k and r
    value[[0, 1], START] = SIZE, -SIZE
    output[[SLOT, SLOT + 1], [0, 1]] = SIZE
    head[0, [SLOT, SLOT + 1]] = 1.0, -1.0
    head[1, [SLOT, SLOT + 1]] = -1.0, 1.0

    # offset + low rank: −128, and +128 for a one; tanh saturates, so the two do the same with other sizes
    w1, w2, a1, a2 = np.zeros((D, RANK)), np.zeros((RANK, D)), np.zeros((D, RANK)), np.zeros((RANK, D))
    w1[ONE, 0], w2[0] = SATURATED, 2 * SATURATED
    a1[ONE, 0], a2[0] = 1.0, SATURATED
    att = {
        "w0": np.full(D, -SATURATED), "w1": w1, "w2": w2, "a0": np.full(D, -SATURATED), "a1": a1, "a2": a2,
        "g1": np.zeros((D, RANK)), "g2": np.full((RANK, D), 2 / RANK),               # σ(0) · 2 = 1
        "k_k": np.ones(D), "k_a": np.zeros(D), "r_k": np.zeros((D // N, N)),
        "receptance.weight": key, "key.weight": key, "value.weight": value, "output.weight": output,
        "ln_x.weight": np.ones(D), "ln_x.bias": np.zeros(D), **{f"x_{c}": np.zeros(D) for c in "rwkvag"},
    }
    arrays = {"emb.weight": emb, "head.weight": head}
    for norm in ("blocks.0.ln0", "blocks.0.ln1", "blocks.0.ln2", "ln_out"):
        arrays |= {f"{norm}.weight": np.ones(D), f"{norm}.bias": np.zeros(D)}
    arrays |= {f"blocks.0.att.{n}": x for n, x in att.items()}
    arrays |= {"blocks.0.ffn.x_k": np.zeros(D), "blocks.0.ffn.key.weight": np.zeros((D, D)), "blocks.0.ffn.value.weight": np.zeros((D, D))}
    return in_memory(name, {}, arrays), symbols
