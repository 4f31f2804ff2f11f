"""A cascade as a model: Gated DeltaProduct with 2 L − 1 layers for L levels.

Everything in the residual stream is one-hot: a group of channels of which one is SIZE and the
others 0. The groups in use, for level i with the context X_{i−1} (cascade.py):

    letter      the class of the letter: letters with the same effect share one; one for <s>
    action      what happens to the register of the level
    point       the point in the register, ±SIZE; the sign is that of the reflections so far
    context     X_{i−1}, then X_i; after the last level the answer
    old         X_i after the letter before, or "none" at <s>

Every layer adds as many entries as it removes, so each RMSNorm divides by the same power of two,
and each entry becomes exactly UNIT. The channels A and B balance the number.

    register layer   mixer: apply `action` to the register, read `point`
                     MLP:   (context, point) -> the next context or the answer; erase point,
                            action and the old context
    shift layer      mixer: `old` = the context of the token before, by a short convolution
                     MLP:   (letter, old, context) -> the next action; erase old

The action of the first level depends on the letter alone and is part of its embedding.

A register that is permuted stores a point in the rows p and p' of a state with one column, as in
householder.py; a head per point reads it. A reset is a gate of 0 followed by two writes. A register
that is only held or reset stores its point as a column: the key is constant, β is 1, and the write
replaces what was there.

An MLP unit is a conjunction of k entries: gate = 2 W (number present − k + 1/2), with W = 128, is
W or at most −W, where SiLU is the identity or 0 in F32.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from ..checkpoint import Checkpoint
from ..errors import ModelError
from .cascade import SCHEMES, Cascade, Level, TooLarge
from .cascade import build as build_cascade
from .checkpoint import BOS, SIZE, UNIT, delta_mixer, fla_config, in_memory, power_of_four
from .cover import Cube, cubes
from .dfa import Dfa
from .householder import BETA, KEY, OPEN, SHUT
from .permutations import inverse, swaps

W = 128.0
OUTPUT = 16.0               # UNIT · OUTPUT is the logit of the answer; others have 0
MAX_PARAMETERS = 1 << 25    # 128 MiB in F32
BLOCK = 32                  # of Q8_0
TAPS = 2                    # of the short convolution: the token before, the token


@dataclass
class Unit:
    """A conjunction: entries that must be present (groups of channels with a sign, of which one),
    and what it adds to the residual stream."""

    present: list[tuple[list[int], float]]
    adds: dict[int, float]


@dataclass
class Plan:
    """What a model of a cascade consists of, and its size."""

    cascade: Cascade
    letters: list[int]                     # class of each letter; the next number is that of <s>
    actions: list[dict]                    # of each level: action -> index
    tables: list[list[Cube]]               # after each level but the last: (letter, old, context)
    units: list[list[Unit]] = field(default_factory=list)    # of each layer
    factors: int = 1
    gated: bool = False
    heads: int = 1
    K: int = 4
    P: int = 4
    D: int = 32
    inner: int = 32
    vocab: int = 0

    @property
    def answers(self) -> list[str]:
        return list(dict.fromkeys(self.cascade.dfa.outputs))

    def contexts_after(self, i: int) -> int:
        """The number of contexts that level i leads to, or of answers after the last one."""
        levels = self.cascade.levels
        return len(levels[i + 1].contexts if i + 1 < len(levels) else self.answers)

    @property
    def layers(self) -> int:
        return 2 * len(self.cascade.levels) - 1

    @property
    def parameters(self) -> int:
        n, H, K, P, D = self.factors, self.heads, self.K, self.P, self.D
        channels = H * K + n * H * (K + P)
        mixer = channels * (D + TAPS) + n * H * D + H * P * D + P + self.gated * (H * D + 2 * H)
        return self.layers * (mixer + 3 * self.inner * D + 2 * D) + 2 * self.vocab * D + D


def round_up(n: int, step: int) -> int:
    return -(-n // step) * step


class Channels:
    """The channels of the residual stream. The last one of each block of 32 is filled in every
    token: Q8_0 rounds inputs relative to the largest of their block, and so removes the small
    errors in a block without another entry."""

    def __init__(self, plan: Plan):
        levels = plan.cascade.levels
        after = [plan.contexts_after(i) for i in range(len(levels))]
        self.used = 0
        self.const, self.a, self.b = self.take(3)
        self.letter = self.take(max(plan.letters) + 2)
        self.action = self.take(max(map(len, plan.actions)))
        self.point = self.take(max(x.points for x in levels))
        self.context = self.take(max(after))
        self.old = self.take(max(after[:-1], default=0) + 1)

    def take(self, n: int) -> list[int]:
        taken = []
        while len(taken) < n:
            if self.used % BLOCK != BLOCK - 1:
                taken.append(self.used)
            self.used += 1
        return taken

    def width(self) -> int:
        """D: room for the channels, and for entries in a quarter of D of which the tokens of
        answers use three."""
        D = round_up(self.used, BLOCK)
        while len(self.filling(D)) < D // 4 - 3:
            D += BLOCK
        return D

    def filling(self, D: int) -> list[int]:
        """Channels that nobody reads, those of each block first."""
        return [*range(BLOCK - 1, D, BLOCK), *(c for c in range(self.used, D) if (c + 1) % BLOCK)]


def make_plan(cascade: Cascade, vocab: int) -> Plan:
    dfa, levels = cascade.dfa, cascade.levels
    number: dict = {}
    letters = [number.setdefault(to, len(number)) for to in dfa.moves]
    bos = len(number)
    actions, tables = [], []
    for i, level in enumerate(levels):
        index: dict = {}
        rows = {}
        before = {x: c for c, x in enumerate(level.contexts)}
        for (a, x, y), action in level.moves.items():
            j = index.setdefault(action, len(index))
            rows[letters[a], before[x], before[y]] = j
        j = index.setdefault(level.start, len(index))
        rows[bos, len(before), before[_start_context(cascade, i)]] = j
        actions.append(index)
        if i > 0:
            tables.append(cubes(rows))
    plan = Plan(cascade, letters, actions, tables, vocab=vocab)
    for level in levels:
        if level.permutes:
            plan.factors = max(plan.factors, level.factors, 2)
            plan.K = max(plan.K, power_of_four(2 * level.points))
            plan.gated |= level.resets
    channels = Channels(plan)
    plan.D = channels.width()
    for i, level in enumerate(levels):
        plan.units.append(_register_units(plan, channels, i))
        if i + 1 < len(levels):
            plan.units.append(_shift_units(plan, channels, i))
    plan.inner = round_up(max(map(len, plan.units)), BLOCK)
    sizes = []
    for P in (4, 16):
        plan.P = P
        plan.heads = max(_heads(plan, i, level) for i, level in enumerate(levels))
        sizes.append((plan.parameters, P, plan.heads))
    _, plan.P, plan.heads = min(sizes)
    return plan


def _heads(plan: Plan, i: int, level: Level) -> int:
    register = level.points + 1 if level.permutes else -(-level.points // plan.P)
    shift = 0
    if i + 1 < len(plan.cascade.levels):
        shift = -(-(plan.contexts_after(i) + 1) // plan.P)
    return max(register, shift)


def _start_context(cascade: Cascade, i: int) -> int:
    x = (1 << cascade.dfa.n) - 1
    for level in cascade.levels[:i]:
        x = level.below(x, level.start)
    return x


# ---- MLPs


def _register_units(plan: Plan, ch: Channels, i: int) -> list[Unit]:
    cascade, level = plan.cascade, plan.cascade.levels[i]
    signs = (1.0, -1.0) if level.permutes else (1.0,)
    number = {x: n for n, x in enumerate(cascade.contexts_after(i))}
    if i + 1 == len(cascade.levels):
        number = {1 << s: plan.answers.index(a) for s, a in enumerate(cascade.dfa.outputs)}
    table = {(c, p): number[level.below(x, p)]
             for c, x in enumerate(level.contexts)
             for p in range(len(level.tiles[x]) if x in level.tiles else level.points)}
    units = []
    for cube in cubes(table):
        contexts, points = cube.sets
        this = [] if contexts is None else [([ch.context[c] for c in sorted(contexts)], 1.0)]
        adds = {ch.context[cube.value]: 1.0}
        if points is None:
            units.append(Unit(this, adds))
        else:
            group = [ch.point[p] for p in sorted(points)]
            units += [Unit([*this, (group, s)], adds) for s in signs]
    if i > 0:
        units += [Unit([([c], 1.0)], {c: -1.0}) for c in ch.context[:len(level.contexts)]]
    for p in range(level.points):
        for s in signs:
            adds = {ch.point[p]: -s, ch.a: 1.0} | ({ch.b: 1.0} if i > 0 else {})
            units.append(Unit([([ch.point[p]], s)], adds))
    for c in ch.action[:len(plan.actions[i])]:
        units.append(Unit([([c], 1.0)], {c: -1.0}))
    return units


def _shift_units(plan: Plan, ch: Channels, i: int) -> list[Unit]:
    units = []
    for cube in plan.tables[i]:
        groups = (ch.letter, ch.old, ch.context)
        present = [([g[x] for x in sorted(values)], 1.0)
                   for g, values in zip(groups, cube.sets) if values is not None]
        units.append(Unit(present, {ch.action[cube.value]: 1.0, ch.a: 1.0, ch.b: -1.0}))
    for c in ch.old[:plan.contexts_after(i) + 1]:
        units.append(Unit([([c], 1.0)], {c: -1.0}))
    return units


def _mlp(plan: Plan, ch: Channels, units: list[Unit]) -> dict[str, np.ndarray]:
    gate, up = np.zeros((plan.inner, plan.D)), np.zeros((plan.inner, plan.D))
    down = np.zeros((plan.D, plan.inner))
    for u, unit in enumerate(units):
        for group, sign in unit.present:
            gate[u, group] = sign * W
        gate[u, ch.const] = -W * (len(unit.present) - 0.5)
        up[u, ch.const] = 1 / UNIT
        for channel, x in unit.adds.items():
            down[channel, u] = x * SIZE / W
    return {"mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up, "mlp.down_proj.weight": down}


# ---- mixers


class Mixer:
    """Weights of one mixer. All of them are zero and β is 1 unless set."""

    def __init__(self, plan: Plan, ch: Channels):
        n, H, K, P, D = plan.factors, plan.heads, plan.K, plan.P, plan.D
        self.q, self.k = np.zeros((H, K, D)), np.zeros((n, H, K, D))
        self.v, self.beta = np.zeros((n, H, P, D)), np.zeros((n, H, D))
        self.gate, self.o = np.zeros((H, D)), np.zeros((D, H, P))
        self.before = np.zeros((n, H, P), bool)    # values of the token before
        # o = K^-1/2 · 16 √(K P): RMSNorm turns it into √P, and epsilon does not change it
        self.value = max(W, 16 * math.sqrt(K * P))
        self.read = SIZE / math.sqrt(P)
        self.const = ch.const

    def set_if(self, row: np.ndarray, channel: int, group: list[int], value: float) -> None:
        """Makes the projection `row` give `value` if this channel, or one of earlier calls, is
        present, and at most −`value` if another one of the group is; SiLU turns that into 0.

        In F32 a sum without threshold would do. But in Q8_0 entries that should be 0 are not, and
        the L2 norm would make a unit key of them. All channels of the group have a weight, so that
        equal rows of a key remain equal."""
        if row[self.const] == 0:
            row[group] = -2 * value / UNIT
            row[self.const] = -value / UNIT
        row[channel] = 2 * value / UNIT

    def column(self, i: int) -> tuple[int, int]:
        """Head and column of the i-th entry of a group."""
        return divmod(i, self.v.shape[2])

    def tensors(self, plan: Plan) -> dict[str, np.ndarray]:
        n, H, K = plan.factors, plan.heads, plan.K

        def taps(before: np.ndarray) -> np.ndarray:
            return np.stack([before, ~before], axis=-1).reshape(-1, 1, TAPS).astype(np.float32)

        out = delta_mixer(self.q, self.k, self.v, self.beta, self.o, conv=False)
        out |= {"q_conv1d.weight": taps(np.zeros(H * K, bool)),
                "k_conv1d.weight": taps(np.zeros(n * H * K, bool)),
                "v_conv1d.weight": taps(self.before)}
        if plan.gated:
            out |= {"a_proj.weight": self.gate, "A_log": np.zeros(H), "dt_bias": np.full(H, OPEN)}
        return {f"attn.{name}": x for name, x in out.items()}


def _reflecting_register(plan: Plan, ch: Channels, i: int) -> Mixer:
    """Heads 0 … m−1 read the points; head m is constant and takes 1 from A."""
    mixer, m = Mixer(plan, ch), plan.cascade.levels[i].points
    for h in range(m):
        mixer.q[h, h, ch.const] = KEY
        mixer.o[ch.point[h], h, 0] = mixer.read
    mixer.beta[:, :m, ch.const] = BETA
    for action, j in plan.actions[i].items():
        c = ch.action[j]
        if isinstance(action, int):
            mixer.gate[:m, c] = (SHUT - OPEN) / UNIT
            keys = [(0, action), (1, m + action)]
        else:
            keys = [(f, row) for f, (x, y) in enumerate(swaps(inverse(action)))
                    for row in (x, m + x, y, m + y)]
        for h in range(m):
            for f, row in keys:
                mixer.set_if(mixer.k[f, h, row], c, ch.action, W)
                if isinstance(action, int):
                    mixer.set_if(mixer.v[f, h, 0], c, ch.action, mixer.value)
    mixer.q[m, 0, ch.const] = mixer.k[0, m, 0, ch.const] = KEY
    mixer.v[0, m, 0, ch.const] = mixer.value / UNIT
    mixer.o[ch.a, m, 0] = -mixer.read
    return mixer


def _storing_register(plan: Plan, ch: Channels, i: int) -> Mixer:
    mixer, m = Mixer(plan, ch), plan.cascade.levels[i].points
    heads = -(-m // plan.P)
    mixer.q[:heads, 0, ch.const] = KEY
    for action, j in plan.actions[i].items():
        if isinstance(action, int):
            for h in range(heads):
                mixer.set_if(mixer.k[0, h, 0], ch.action[j], ch.action, W)
            mixer.set_if(mixer.v[0, *mixer.column(action)], ch.action[j], ch.action, mixer.value)
    for p in range(m):
        mixer.o[ch.point[p], *mixer.column(p)] = mixer.read
        mixer.o[ch.a, *mixer.column(p)] = -mixer.read
    return mixer


def _shift(plan: Plan, ch: Channels, i: int) -> Mixer:
    mixer, n = Mixer(plan, ch), plan.contexts_after(i)
    heads = -(-(n + 1) // plan.P)
    mixer.q[:heads, 0, ch.const] = mixer.k[0, :heads, 0, ch.const] = KEY
    for c in range(n + 1):
        source, group = (ch.context[c], ch.context) if c < n else (ch.letter[-1], ch.letter)
        mixer.set_if(mixer.v[0, *mixer.column(c)], source, group, mixer.value)
        mixer.before[0, *mixer.column(c)] = c < n
        mixer.o[ch.old[c], *mixer.column(c)] = mixer.read
        mixer.o[ch.a, *mixer.column(c)] = -mixer.read
    return mixer


# ---- the model


def build(name: str, plan: Plan, signed: bool, symbols: list[str],
          letters: dict[str, int]) -> Checkpoint:
    """`symbols` are the tokens. `letters` maps those that are letters to the letters of the
    automaton; BOS and the outputs of the states are among the others."""
    ch = Channels(plan)
    first = plan.cascade.levels[0]
    full = first.contexts[0]

    tokens = np.zeros((len(symbols), plan.D))
    for row, s in zip(tokens, symbols):
        entries = [ch.const, ch.a, ch.b]
        if s == BOS:
            entries += [ch.letter[-1], ch.action[plan.actions[0][first.start]]]
        elif s in letters:
            action = first.moves[letters[s], full, full]
            entries += [ch.letter[plan.letters[letters[s]]], ch.action[plan.actions[0][action]]]
        row[entries + ch.filling(plan.D)[:plan.D // 4 - len(entries)]] = SIZE
    arrays = {"model.embeddings.weight": tokens}

    for layer in range(plan.layers):
        i = layer // 2
        make = (_shift if layer % 2 else
                _reflecting_register if plan.cascade.levels[i].permutes else _storing_register)
        parts = make(plan, ch, i).tensors(plan) | _mlp(plan, ch, plan.units[layer])
        parts |= {"attn_norm.weight": np.ones(plan.D), "mlp_norm.weight": np.ones(plan.D)}
        arrays |= {f"model.layers.{layer}.{key}": x.astype(np.float32) for key, x in parts.items()}

    output = np.zeros((len(symbols), plan.D))
    for c, answer in enumerate(plan.answers):
        output[symbols.index(answer), ch.context[c]] = OUTPUT
    arrays |= {"model.norm.weight": np.ones(plan.D), "lm_head.weight": output}

    config = fla_config("gated_deltaproduct", plan.D, plan.inner, len(symbols),
                        num_heads=plan.heads, allow_neg_eigval=signed, head_dim=plan.K,
                        expand_v=plan.P / plan.K, use_short_conv=True, conv_size=TAPS,
                        use_output_gate=False, use_forget_gate=plan.gated,
                        num_householder=plan.factors) | {"num_hidden_layers": plan.layers}
    return in_memory(name, config, arrays)


def best_plan(d: Dfa, vocab: int, what: str) -> Plan:
    """The smallest model among those of the schemes that are within the limits."""
    plans, reasons = [], []
    for scheme in SCHEMES:
        try:
            plans.append(make_plan(build_cascade(d, scheme), vocab))
        except TooLarge as e:
            reasons.append(f"{scheme}: {e}")
    if not plans:
        raise ModelError(f"{what} with {d.n} states is too large to compile: {'; '.join(reasons)}")
    plan = min(plans, key=lambda x: x.parameters)
    if plan.parameters > MAX_PARAMETERS:
        raise ModelError(f"{what} needs {plan.layers} layers with {plan.parameters} parameters; "
                         f"expected at most {MAX_PARAMETERS}")
    return plan
