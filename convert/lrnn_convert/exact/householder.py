"""Permutations by reflections, in every family whose transition is a product of Householder
matrices.

The state S of a head has two rows per point (i and i', with equal values) and one column per
followed point. With the unit key

    k = (e_i + e_i' + e_j + e_j') / 2:      (I − 2 k kᵀ) s:   s_i ← −s_j,  s_j ← −s_i

so a reflection exchanges two points up to the sign, and a permutation takes one reflection per
swap. Keys are not negative because the families apply a SiLU to them. A column only contains 0 and
±a, and halving and doubling are exact in F32, so the state is as exact after a million letters as
after one. With two copies of each point the entries of the unit key are 1/2; with one copy they
would be 1/√2, which F32 cannot represent.

    <s>     each factor writes one column into the two rows of its point
            (the state is zero and the keys are orthogonal)
    letter  factor j reflects along its swap; a factor without a swap has the key 0: no effect
    reset   (gated families) the gate is 0; the first factor writes the followed point into the rows
            of another one

A head reads row i of n_h columns: one entry ±a, in the column of the point that is now at position
i, or none. RMSNorm turns it into ±√P. The MLP squares it, z² = silu(z) z + silu(−z) (−z). The
output adds up the positions of each answer.
"""

from dataclasses import dataclass, field

import numpy as np

from ..checkpoint import Checkpoint
from .checkpoint import (BOS, SIZE, UNIT, Layout, delta_mixer, embeddings, fla_config, fla_model,
                         in_memory, power_of_four, zero_mlp)
from .dfa import Dfa
from .permutations import Permutation, inverse, swaps

# our names, and fla's
MODEL_TYPES = {"delta_net": "delta_net", "gated_delta_net": "gated_deltanet", "kda": "kda",
               "delta_product": "gated_deltaproduct", "gated_delta_product": "gated_deltaproduct"}
GATED = ("gated_delta_net", "kda", "gated_delta_product")
MANY_FACTORS = ("delta_product", "gated_delta_product")

KEY = 32.0          # UNIT · KEY = 64, where SiLU is the identity in F32
BETA = 16.0         # UNIT · BETA = 32, where σ is 1
VALUE = 16.0
OPEN, SHUT = -128.0, 4096.0     # before softplus: gates of exactly 1 and 0


@dataclass
class Task:
    """h_t[i] = h_{t−1}[letter(i)] from h_0[i] = i, or from all[i] = target after a reset. `answers`
    map to facts (i, c): h[i] = c."""

    points: int
    letters: dict[str, Permutation]
    columns: list[int]                                  # followed values
    answers: dict[str, list[tuple[int, int]]]
    resets: dict[str, int] = field(default_factory=dict)  # letter -> position of the followed value

    @property
    def factors(self) -> int:
        """Factors that the task needs: the longest product of swaps."""
        return max([len(swaps(p)) for p in self.letters.values()] + [1])


def to_task(d: Dfa) -> Task:
    """An automaton of permutations and resets. Follows the start state as a value: it is at
    position s when the automaton is in state s."""
    letters, resets = {}, {}
    for letter, to in zip(d.letters, d.moves):
        if len(set(to)) == d.n:
            letters[letter] = inverse(to)      # h_t[to(s)] = h_{t−1}[s]
        else:
            resets[letter] = to[0]
    answers: dict[str, list[tuple[int, int]]] = {}
    for s, output in enumerate(d.outputs):
        answers.setdefault(output, []).append((s, d.start))
    return Task(d.n, letters, [d.start], answers, resets)


def family(task: Task) -> str:
    """The smallest family that can express the task."""
    if task.resets:
        return "gated_delta_product"
    one_swap = all(len(swaps(p)) <= 1 for p in task.letters.values())
    return "delta_net" if one_swap else "delta_product"


def build(name: str, family: str, task: Task, signed: bool,
          factors: int | None = None) -> tuple[Checkpoint, list[str]]:
    """The checkpoint and its symbols. With fewer factors than the task needs, the remaining swaps
    are omitted and the model is wrong."""
    n_h, n, columns = factors or task.factors, task.points, task.columns
    if n_h != 1 and family not in MANY_FACTORS or task.resets and family not in GATED:
        raise AssertionError(f"{family} cannot express {name}")
    symbols = [*task.letters, *task.resets]
    symbols += [a for a in task.answers if a not in symbols] + [BOS]

    layout = Layout()
    key = [layout.take(n) for _ in range(n_h)]          # point i in the key of factor j
    bos, const, reset, write = (layout.take(1)[0] for _ in range(4))
    z, z2 = layout.take(n * len(columns)), layout.take(n * len(columns))
    D = layout.width(32)

    facts = [(i, c) for i in range(n) for c in columns]
    value = dict(zip(facts, z))                         # channel of ±√P
    square = dict(zip(facts, z2))                       # channel of its square

    # -- tokens
    tokens = []
    for s in symbols:
        t = {const: 1.0}
        if s == BOS:
            t |= {bos: 1.0}
        elif s in task.letters:
            pairs = swaps(task.letters[s])[:n_h]
            t |= {key[j][i]: 1.0 for j, pair in enumerate(pairs) for i in pair}
        elif s in task.resets:
            t |= {reset: 1.0, write: 1.0, key[0][task.resets[s]]: 1.0}
        tokens.append(t)
    embedding = embeddings(tokens, D, layout.used)

    # -- mixer: a head for every position i and every group of at most n_h columns, K × P
    groups = [columns[c:c + n_h] for c in range(0, len(columns), n_h)]
    heads = [(i, group) for group in groups for i in range(n)]
    H, K, P = len(heads), power_of_four(2 * n), -(-n_h // 4) * 4
    q, k = np.zeros((H, K, D)), np.zeros((n_h, H, K, D))
    v, beta, o = np.zeros((n_h, H, P, D)), np.zeros((n_h, H, D)), np.zeros((D, H, P))
    for h, (position, group) in enumerate(heads):
        q[h, position, const] = KEY
        beta[:, h, const] = BETA
        for j in range(n_h):
            for i in range(n):
                k[j, h, [i, n + i], key[j][i]] = KEY
        for j, c in enumerate(group):
            k[j, h, [c, n + c], bos] = KEY
            v[j, h, j, bos] = VALUE
            o[value[position, c], h, j] = SIZE
        v[0, h, 0, write] = VALUE
    mixer = delta_mixer(q, k, v, beta, o, conv=family != "delta_net")
    options = {"num_heads": H, "allow_neg_eigval": signed}
    options |= _family_parts(family, mixer, n_h, H, K, P, D, reset)

    # -- squares: two units per fact
    inner = max(32, -(-2 * len(facts) // 32) * 32)
    mlp = zero_mlp(D, inner)
    for u, f in enumerate(facts):
        for unit, sign in ((2 * u, 1.0), (2 * u + 1, -1.0)):
            mlp["gate_proj"][unit, value[f]] = mlp["up_proj"][unit, value[f]] = sign
            mlp["down_proj"][square[f], unit] = 2 * SIZE

    output = np.zeros((len(symbols), D))
    for s, wanted in task.answers.items():
        for f in wanted:
            if f in square:
                output[symbols.index(s), square[f]] = 1.0

    config = fla_config(MODEL_TYPES[family], D, inner, len(symbols), **options)
    return in_memory(name, config, fla_model(D, inner, embedding, output, mixer, mlp)), symbols


def _family_parts(family: str, mixer: dict, n_h: int, H: int, K: int, P: int, D: int,
                  reset: int) -> dict:
    """Adds the gates, which differ between families, and returns the options. Gates are 1, and 0
    for a reset."""
    if family == "delta_net":
        return {"use_short_conv": False, "use_gate": False, "use_beta": True,
                "use_output_norm": True, "expand_k": H * K / D, "expand_v": H * P / D,
                "qk_activation": "silu", "qk_norm": "l2"}

    head = {"head_dim": K, "expand_v": P / K, "use_short_conv": True, "conv_size": 4}
    # α = exp(−softplus(OPEN)) = 1, exp(−softplus(SHUT)) = 0
    gate = np.zeros((H, D))
    gate[:, reset] = (SHUT - OPEN) / UNIT
    if family == "kda":
        # f = W_2 W_1 x + dt_bias for every key channel; the output gate is always σ(0) = 1/2
        f1 = np.zeros((P, D))
        f1[0] = gate[0]
        f2 = np.zeros((H * K, P))
        f2[:, 0] = 1.0
        mixer |= {"f_proj.0.weight": f1, "f_proj.1.weight": f2, "A_log": np.zeros(H),
                  "dt_bias": np.full(H * K, OPEN), "g_proj.0.weight": np.zeros((P, D)),
                  "g_proj.1.weight": np.zeros((H * P, P)), "g_proj.1.bias": np.zeros(H * P)}
        return head
    if family in GATED:
        mixer |= {"a_proj.weight": gate, "A_log": np.zeros(H), "dt_bias": np.full(H, OPEN)}
    if family == "gated_delta_net":
        return head | {"use_gate": False}
    return head | {"use_output_gate": False, "use_forget_gate": family in GATED,
                   "num_householder": n_h}
