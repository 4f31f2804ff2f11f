"""The exact models that ship with the project, by name."""

from dataclasses import dataclass
from typing import Callable

from ..checkpoint import Checkpoint
from . import diagonal, householder, rotation, rwkv7
from .permutations import alternating, swaps, symbol, symmetric


@dataclass(frozen=True)
class Entry:
    task: str                              # lrnn.task: what lrnn-probe asks the model
    build: Callable[[str, bool], tuple[Checkpoint, list[str]]]
    twin: bool = True                      # the family has both ranges


PARITY = householder.Task(2, {"0": (0, 1), "1": (1, 0)}, [0], {"0": [(0, 0)], "1": [(1, 0)]})


def word_problem(elements, letters) -> householder.Task:
    """Answers are all elements; all values but one are followed, which tells elements apart."""
    n = len(elements[0])
    return householder.Task(n, {symbol(p): p for p in letters}, list(range(n - 1)), {symbol(p): list(enumerate(p)) for p in elements})


def _reflections(family: str, task: householder.Task, factors: int | None = None):
    return lambda name, signed: householder.build(name, family, task, signed, factors)


S3, S5, A5 = symmetric(3), symmetric(5), alternating(5)
TWO_SWAPS = [p for p in A5 if len(swaps(p)) <= 2]

MODELS: dict[str, Entry] = {
    **{f"parity-{family.replace('_', '-')}": Entry("parity", _reflections(family, PARITY)) for family in ("delta_net", "gated_delta_net", "kda")},
    "parity-delta-product":       Entry("parity", _reflections("delta_product", PARITY, 2)),
    "parity-gated-delta-product": Entry("parity", _reflections("gated_delta_product", PARITY, 2)),
    "parity-mamba":               Entry("parity", lambda name, signed: diagonal.mamba(name)),
    "parity-mamba2":              Entry("parity", lambda name, signed: diagonal.mamba2(name)),
    "parity-gla":                 Entry("parity", lambda name, signed: diagonal.gla(name)),
    "parity-rwkv7":               Entry("parity", lambda name, signed: rwkv7.build(name), twin=False),
    **{f"z{m}": Entry(f"mod:{m}", lambda name, signed, m=m: rotation.build(name, m, signed)) for m in (3, 5, 7, 12, 60)},
    "s3":        Entry("S3", _reflections("delta_product", word_problem(S3, S3))),
    "s5":        Entry("S5", _reflections("delta_product", word_problem(S5, S5))),
    "s5-nh3":    Entry("S5", _reflections("delta_product", word_problem(S5, S5), 3)),   # one factor too few: wrong
    "s5-swaps":  Entry("S5:swaps", _reflections("delta_net", word_problem(S5, [p for p in S5 if len(swaps(p)) <= 1]))),
    "a5":        Entry("A5", _reflections("delta_product", word_problem(A5, A5))),
    "a5-nh2":    Entry("A5:2", _reflections("delta_product", word_problem(A5, TWO_SWAPS))),
}


def build(name: str, signed: bool) -> tuple[Checkpoint, list[str]]:
    return MODELS[name].build(name, signed)
