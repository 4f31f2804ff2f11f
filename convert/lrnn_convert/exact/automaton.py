"""A finite automaton as a model.

    states: even odd
    start:  even
    0:      even odd        # where the letter takes each state, in the order of `states`
    1:      odd  even

Letters that permute the states become reflections. Letters that take every state to the same one
become a reset through the gate. Any other letter merges some states and keeps others apart; that
needs several layers in cascade (Krohn and Rhodes), which is not supported.
"""

from dataclasses import dataclass

from ..errors import DataError, ModelError
from .checkpoint import BOS
from .householder import Task
from .permutations import inverse, swaps

MAX_STATES = 64


@dataclass
class Automaton:
    states: list[str]
    start: int
    letters: dict[str, tuple[int, ...]]    # letter -> next state of each state

    def text(self) -> str:
        """The text of the automaton without comments, which becomes a key of the model file."""
        lines = [f"states: {' '.join(self.states)}", f"start: {self.states[self.start]}"]
        lines += [f"{letter}: {' '.join(self.states[s] for s in to)}"
                  for letter, to in self.letters.items()]
        return "\n".join(lines) + "\n"


def parse(text: str, file: str) -> Automaton:
    states: list[str] = []
    start = None
    letters: dict[str, tuple[int, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{file}:{number}"
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        key, colon, rest = line.partition(":")
        key, words = key.strip(), rest.split()
        if not colon or not key or len(key.split()) != 1:
            raise DataError(f"{where}: found {line!r}; expected 'states: …', 'start: …' or "
                            "'LETTER: …'")
        if key == "states":
            if states or not words or len(set(words)) != len(words) or len(words) > MAX_STATES:
                raise DataError(f"{where}: found {len(words)} states: {' '.join(words)}; expected "
                                f"one line of 1 to {MAX_STATES} different states")
            states = words
        elif not states:
            raise DataError(f"{where}: found {key!r}; expected the line of states first")
        elif key == "start":
            if start is not None or len(words) != 1 or words[0] not in states:
                raise DataError(f"{where}: start is {' '.join(words)!r}; expected one of "
                                f"{' '.join(states)}, once")
            start = states.index(words[0])
        else:
            unknown = [w for w in words if w not in states]
            if key in letters or unknown or len(words) != len(states):
                what = ("is given twice" if key in letters
                        else f"goes to {unknown[0]!r}" if unknown
                        else f"has {len(words)} targets")
                raise DataError(f"{where}: letter {key!r} {what}; expected one line with a target "
                                f"for each of the {len(states)} states")
            letters[key] = tuple(states.index(w) for w in words)
    if not states:
        raise DataError(f"{file}: the states are missing")
    if start is None:
        raise DataError(f"{file}: the start is missing")
    if not letters:
        raise DataError(f"{file}: the letters are missing")
    if BOS in letters or BOS in states:
        raise DataError(f"{file}: {BOS!r} cannot be a letter or a state")
    return Automaton(states, start, letters)


def to_task(a: Automaton, file: str) -> Task:
    """Follows the start state as a value: it is at position s when the automaton is in state s."""
    letters, resets = {}, {}
    for letter, to in a.letters.items():
        if len(set(to)) == len(to):
            # h_t[to(s)] = h_{t−1}[s]
            letters[letter] = inverse(to)
        elif len(set(to)) == 1:
            resets[letter] = to[0]
        else:
            twice = next(t for t in to if to.count(t) > 1)
            merged = [a.states[s] for s, t in enumerate(to) if t == twice]
            raise ModelError(f"{file}: letter {letter!r} takes {' and '.join(merged[:2])} to "
                             f"{a.states[twice]} and other states elsewhere; expected a "
                             "permutation or a reset")
    answers = {s: [(i, a.start)] for i, s in enumerate(a.states)}
    return Task(len(a.states), letters, [a.start], answers, resets)


def family(task: Task) -> str:
    """The smallest family that can express the task."""
    if task.resets:
        return "gated_delta_product"
    one_swap = all(len(swaps(p)) <= 1 for p in task.letters.values())
    return "delta_net" if one_swap else "delta_product"
