"""Parity in RWKV-7, within its limits.

The transition diag(w) − (κ ∘ a) κᵀ has the eigenvalue w − a along a one-hot κ. For a zero it is 1:
w = 1, a = 0. For a one the family's minimum is −0.455: w = exp(−e^{−1/2}) = 0.545 with a = 1. The
sign of the state is the parity, and every one more than halves the state. The answer is correct
until the state vanishes, about 130 ones after <s>.

Embeddings consist of pairs (+x, −x), so every LayerNorm sees a mean of zero.
"""

import numpy as np

from ..checkpoint import Checkpoint
from .checkpoint import BOS, SIZE, in_memory

D, N, RANK = 32, 8, 4
# first channel of a pair; pairs from FREE on equalize the norm
ONE, CONST, START, ANSWER, FREE = 0, 2, 4, 6, 8
PAIRS = 4                                               # per token: ln1 yields ±2
SATURATED = 128.0


def build(name: str) -> tuple[Checkpoint, list[str]]:
    symbols = ["0", "1", BOS]
    emb = np.zeros((len(symbols), D))
    for row, channels in zip(emb, ([CONST], [CONST, ONE], [CONST, START]), strict=True):
        channels = channels + [FREE + 2 * i for i in range(PAIRS - len(channels))]
        row[channels] = SIZE
        row[[c + 1 for c in channels]] = -SIZE

    key, value, output = np.zeros((D, D)), np.zeros((D, D)), np.zeros((D, D))
    head = np.zeros((len(symbols), D))
    key[0, CONST] = 1.0                                 # first channel of the first head: κ, k, r
    value[[0, 1], START] = SIZE, -SIZE
    output[[ANSWER, ANSWER + 1], [0, 1]] = SIZE
    head[0, [ANSWER, ANSWER + 1]] = 1.0, -1.0
    head[1, [ANSWER, ANSWER + 1]] = -1.0, 1.0

    # offset + low rank: −128, and +128 for a one; w has a tanh between its factors, a has none
    w1, w2 = np.zeros((D, RANK)), np.zeros((RANK, D))
    a1, a2 = np.zeros((D, RANK)), np.zeros((RANK, D))
    w1[ONE, 0], w2[0] = SATURATED, 2 * SATURATED
    a1[ONE, 0], a2[0] = 1.0, SATURATED
    att = {
        "w0": np.full(D, -SATURATED), "w1": w1, "w2": w2,
        "a0": np.full(D, -SATURATED), "a1": a1, "a2": a2,
        "g1": np.zeros((D, RANK)), "g2": np.full((RANK, D), 2 / RANK),      # σ(0) · 2 = 1
        "k_k": np.ones(D), "k_a": np.zeros(D), "r_k": np.zeros((D // N, N)),
        "receptance.weight": key, "key.weight": key, "value.weight": value, "output.weight": output,
        "ln_x.weight": np.ones(D), "ln_x.bias": np.zeros(D),
        **{f"x_{c}": np.zeros(D) for c in "rwkvag"},
    }
    arrays = {"emb.weight": emb, "head.weight": head}
    for norm in ("blocks.0.ln0", "blocks.0.ln1", "blocks.0.ln2", "ln_out"):
        arrays |= {f"{norm}.weight": np.ones(D), f"{norm}.bias": np.zeros(D)}
    arrays |= {f"blocks.0.att.{n}": x for n, x in att.items()}
    arrays |= {"blocks.0.ffn.x_k": np.zeros(D), "blocks.0.ffn.key.weight": np.zeros((D, D)),
               "blocks.0.ffn.value.weight": np.zeros((D, D))}
    return in_memory(name, {}, arrays), symbols
