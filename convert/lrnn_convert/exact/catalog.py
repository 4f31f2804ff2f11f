"""The exact models that ship with the project, by name."""

from dataclasses import dataclass
from typing import Callable

from ..checkpoint import Checkpoint
from . import diagonal, householder, languages, rotation, rwkv7
from .dfa import Dfa
from .permutations import alternating, swaps, symbol, symmetric


@dataclass(frozen=True)
class Entry:
    task: str                              # lrnn.task: what lrnn-probe asks the model
    build: Callable[[str, bool], tuple[Checkpoint, list[str]]]
    twin: bool = True                      # the family has both ranges
    kind: str = "f16"                      # of the matrices; f16 is exact for powers of two


PARITY = householder.Task(2, {"0": (0, 1), "1": (1, 0)}, [0], {"0": [(0, 0)], "1": [(1, 0)]})


def word_problem(elements, letters) -> householder.Task:
    """Every element is an answer. Following all values but one distinguishes the elements."""
    n = len(elements[0])
    answers = {symbol(p): list(enumerate(p)) for p in elements}
    return householder.Task(n, {symbol(p): p for p in letters}, list(range(n - 1)), answers)


def _reflections(task: str, family: str, problem: householder.Task,
                 factors: int | None = None) -> Entry:
    return Entry(task, lambda name, signed: householder.build(name, family, problem, signed,
                                                              factors))


def _diagonal(build: Callable[[str], tuple[Checkpoint, list[str]]]) -> Entry:
    return Entry("parity", lambda name, signed: build(name))


def _rotation(m: int) -> Entry:
    return Entry(f"mod:{m}", lambda name, signed: rotation.build(name, m, signed), kind="f32")


S3, S5, A5 = symmetric(3), symmetric(5), alternating(5)
ONE_SWAP = [p for p in S5 if len(swaps(p)) <= 1]
TWO_SWAPS = [p for p in A5 if len(swaps(p)) <= 2]

MODELS: dict[str, Entry] = {
    "parity-delta-net":           _reflections("parity", "delta_net", PARITY),
    "parity-gated-delta-net":     _reflections("parity", "gated_delta_net", PARITY),
    "parity-kda":                 _reflections("parity", "kda", PARITY),
    "parity-delta-product":       _reflections("parity", "delta_product", PARITY, 2),
    "parity-gated-delta-product": _reflections("parity", "gated_delta_product", PARITY, 2),
    "parity-mamba":               _diagonal(diagonal.mamba),
    "parity-mamba2":              _diagonal(diagonal.mamba2),
    "parity-gla":                 _diagonal(diagonal.gla),
    "parity-rwkv7": Entry("parity", lambda name, signed: rwkv7.build(name), twin=False,
                          kind="f32"),
    **{f"z{m}": _rotation(m) for m in (3, 5, 7, 12, 60)},
    "s3":       _reflections("S3", "delta_product", word_problem(S3, S3)),
    "s5":       _reflections("S5", "delta_product", word_problem(S5, S5)),
    # one factor too few: wrong on purpose
    "s5-nh3":   _reflections("S5", "delta_product", word_problem(S5, S5), 3),
    "s5-swaps": _reflections("S5:swaps", "delta_net", word_problem(S5, ONE_SWAP)),
    "a5":       _reflections("A5", "delta_product", word_problem(A5, A5)),
    "a5-nh2":   _reflections("A5:2", "delta_product", word_problem(A5, TWO_SWAPS)),
}


@dataclass(frozen=True)
class Language:
    """An automaton that is compiled like those of lrnn-convert automaton. It has no twin."""

    make: Callable[[], Dfa]
    task: str = "automaton"
    over_bytes: bool = False


LANGUAGES: dict[str, Language] = {
    "arith5":   Language(languages.arithmetic, "mod-arith:5"),
    "dyck3":    Language(languages.brackets),
    "c-source": Language(languages.c_source, over_bytes=True),
}
