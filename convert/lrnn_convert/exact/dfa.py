"""Deterministic automata with an output per state (Moore machines): from a regular expression,
completed, without unreachable states, minimized."""

from dataclasses import dataclass

from ..errors import DataError
from .regex import Positions

MAX_STATES = 64             # of the automaton that is compiled; the task of lrnn-probe has the same
MAX_SUBSETS = 4096          # states before minimization

ACCEPT, REJECT = "accept", "reject"


@dataclass(frozen=True)
class Dfa:
    """States are 0 … n−1. moves[letter][state] is the next state."""

    start: int
    letters: list[str]
    moves: list[tuple[int, ...]]
    outputs: list[str]                     # of each state
    names: list[str]                       # of each state

    @property
    def n(self) -> int:
        return len(self.outputs)


def from_positions(p: Positions, letters: list[str], what: str) -> Dfa:
    """Subset construction. State −1 of the NFA is the start."""
    reads = {c: frozenset(i for i, chars in enumerate(p.chars) if c in chars) for c in letters}
    start = frozenset([-1])
    number, order, rows = {start: 0}, [start], []
    for subset in order:
        follow = set().union(*(p.first if i < 0 else p.follow[i] for i in subset))
        row = []
        for c in letters:
            target = frozenset(follow & reads[c])
            if target not in number:
                if len(order) == MAX_SUBSETS:
                    raise DataError(f"{what} needs more than {MAX_SUBSETS} states before "
                                    f"minimization; expected at most {MAX_SUBSETS}")
                number[target] = len(order)
                order.append(target)
            row.append(number[target])
        rows.append(row)
    accepting = p.last | ({-1} if p.empty else set())
    outputs = [ACCEPT if subset & accepting else REJECT for subset in order]
    return Dfa(0, letters, list(zip(*rows)), outputs, [str(i) for i in range(len(order))])


def reachable(d: Dfa) -> tuple[Dfa, list[str]]:
    """Without the states that no text leads to, and their names."""
    order, seen = [d.start], {d.start}
    for s in order:
        for to in d.moves:
            if to[s] not in seen:
                seen.add(to[s])
                order.append(to[s])
    kept = sorted(seen)
    number = {s: i for i, s in enumerate(kept)}
    moves = [tuple(number[to[s]] for s in kept) for to in d.moves]
    dropped = [name for s, name in enumerate(d.names) if s not in seen]
    return Dfa(number[d.start], d.letters, moves, [d.outputs[s] for s in kept],
               [d.names[s] for s in kept]), dropped


def minimized(d: Dfa) -> Dfa:
    """Merges states that no text tells apart (Moore: refine the partition by outputs until the
    successors agree). Classes are numbered by their first state and have its name."""
    classes = _numbered(d.outputs)
    while True:
        finer = _numbered([(classes[s], *(classes[to[s]] for to in d.moves)) for s in range(d.n)])
        if finer == classes:
            break
        classes = finer
    first = [classes.index(c) for c in range(max(classes) + 1)]
    moves = [tuple(classes[to[s]] for s in first) for to in d.moves]
    return Dfa(classes[d.start], d.letters, moves, [d.outputs[s] for s in first],
               [d.names[s] for s in first])


def _numbered(keys: list) -> list[int]:
    """Equal keys get equal numbers, in the order of their first occurrence."""
    numbers: dict = {}
    return [numbers.setdefault(k, len(numbers)) for k in keys]


def compact(d: Dfa, what: str) -> tuple[Dfa, list[str]]:
    """The smallest equivalent automaton, and the names of unreachable states. `what` names the
    source in errors."""
    d, dropped = reachable(d)
    d = minimized(d)
    if d.n > MAX_STATES:
        raise DataError(f"{what} has {d.n} states after minimization; expected at most "
                        f"{MAX_STATES}")
    return d, dropped
