"""Deterministic automata with an output per state (Moore machines): from a regular expression,
completed, without unreachable states, minimized."""

from dataclasses import dataclass

from ..errors import DataError
from .regex import Positions, members

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
    """Subset construction. Bit 0 of a subset is the start of the NFA, bit i + 1 its position i."""
    reads = [sum(1 << i for i, chars in enumerate(p.chars) if c in chars) for c in letters]
    kinds = dict.fromkeys(reads)           # letters that the same positions read go together
    number, order, rows = {1: 0}, [1], []
    for subset in order:
        follow = p.first if subset & 1 else 0
        for i in members(subset >> 1):
            follow |= p.follow[i]
        for kind in kinds:
            target = (follow & kind) << 1
            if target not in number:
                if len(order) == MAX_SUBSETS:
                    raise DataError(f"{what} needs more than {MAX_SUBSETS} states before "
                                    f"minimization; expected at most {MAX_SUBSETS}")
                number[target] = len(order)
                order.append(target)
            kinds[kind] = number[target]
        rows.append([kinds[kind] for kind in reads])
    accepting = p.last << 1 | p.empty
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
    """Merges states that no text tells apart (Hopcroft: split every class by the states that a
    letter takes into a given class; after a split, only the smaller half splits others). Classes
    are numbered by their first state and have its name."""
    moves = list(dict.fromkeys(d.moves))
    before: list[list[list[int]]] = [[[] for _ in range(d.n)] for _ in moves]
    for sources, to in zip(before, moves):
        for s in range(d.n):
            sources[to[s]].append(s)
    classes = _numbered(d.outputs)
    members_of = [{s for s in range(d.n) if classes[s] == c} for c in range(max(classes) + 1)]
    todo = set(range(len(members_of)))
    while todo:
        targets = list(members_of[todo.pop()])
        for sources in before:
            found: dict[int, list[int]] = {}
            for s in (s for t in targets for s in sources[t]):
                found.setdefault(classes[s], []).append(s)
            for c, states in found.items():
                if len(states) == len(members_of[c]):
                    continue
                new = len(members_of)
                members_of[c].difference_update(states)
                members_of.append(set(states))
                for s in states:
                    classes[s] = new
                todo.add(new if c in todo or len(states) <= len(members_of[c]) else c)
    classes = _numbered(classes)
    first = [classes.index(c) for c in range(len(members_of))]
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
