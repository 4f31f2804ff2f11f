"""The text form of a finite automaton, and the letters of its model.

    states: even odd
    start:  even
    0:      even odd        # where the letter takes each state, in the order of `states`
    1:      odd  even

A line may name several letters. `-` is a missing successor: it leads to an added state, `-`, that
is never left. The answer of a state is its name, unless there is one of these lines:

    output: a b b           # one word per state; states may share it
    accept: odd             # short for `accept` in these states and `reject` in the others
"""

from ..errors import DataError
from .checkpoint import BOS
from .dfa import ACCEPT, MAX_STATES, REJECT, Dfa

KEYWORDS = ("states", "start", "output", "accept")
SINK = "-"
MAX_LISTED = 1024           # states in a file, before minimization


class Reader:
    """Reads the lines of a file, one after another."""

    def __init__(self, file: str):
        self.file, self.where = file, file
        self.states: list[str] = []
        self.start: int | None = None
        self.outputs: list[str] | None = None
        self.rows: dict[str, list[str]] = {}

    def fail(self, text: str) -> DataError:
        return DataError(f"{self.where}: {text}")

    def line(self, keys: list[str], words: list[str]) -> None:
        keyword = keys[0] if len(keys) == 1 and keys[0] in KEYWORDS else None
        if keyword == "states":
            if (self.states or not words or len(set(words)) != len(words)
                    or len(words) > MAX_LISTED):
                raise self.fail(f"found {len(words)} states: {' '.join(words)[:200]}; expected one "
                                f"line of 1 to {MAX_LISTED} different states")
            self.states = words
        elif not self.states:
            raise self.fail(f"found {' '.join(keys)[:200]!r}; expected the line of states first")
        elif keyword == "start":
            if self.start is not None or len(words) != 1 or words[0] not in self.states:
                raise self.fail(f"start is {' '.join(words)[:200]!r}; expected one of "
                                f"{' '.join(self.states)[:200]}, once")
            self.start = self.states.index(words[0])
        elif keyword is not None:
            self.answers(keyword, words)
        else:
            for letter in keys:
                self.letter(letter, words)

    def answers(self, keyword: str, words: list[str]) -> None:
        if self.outputs is not None:
            raise self.fail(f"found a second line of answers, {keyword!r}; expected one")
        if keyword == "output":
            if len(words) != len(self.states):
                raise self.fail(f"output has {len(words)} words; expected one for each of the "
                                f"{len(self.states)} states")
            self.outputs = words
            return
        unknown = [w for w in words if w not in self.states]
        if unknown:
            raise self.fail(f"accept has {unknown[0]!r}; expected some of "
                            f"{' '.join(self.states)[:200]}")
        self.outputs = [ACCEPT if s in words else REJECT for s in self.states]

    def letter(self, letter: str, words: list[str]) -> None:
        unknown = [w for w in words if w not in self.states and w != SINK]
        if letter in self.rows or unknown or len(words) != len(self.states):
            what = ("is given twice" if letter in self.rows
                    else f"goes to {unknown[0]!r}" if unknown
                    else f"has {len(words)} targets")
            raise self.fail(f"letter {letter!r} {what}; expected one line with a target for each "
                            f"of the {len(self.states)} states")
        self.rows[letter] = words

    def result(self) -> Dfa:
        for missing, found in (("states are", self.states), ("start is", self.start is not None),
                               ("letters are", self.rows)):
            if not found:
                raise DataError(f"{self.file}: the {missing} missing")
        states, outputs = list(self.states), list(self.outputs or self.states)
        if SINK not in states and any(SINK in words for words in self.rows.values()):
            states.append(SINK)
            accepts = self.outputs is not None and set(outputs) <= {ACCEPT, REJECT}
            outputs.append(REJECT if accepts else SINK)
            self.rows = {x: [*words, SINK] for x, words in self.rows.items()}
        if BOS in self.rows or BOS in outputs:
            raise DataError(f"{self.file}: {BOS!r} cannot be a letter or an answer")
        number = {s: i for i, s in enumerate(states)}
        return Dfa(self.start, list(self.rows),
                   [tuple(number[w] for w in words) for words in self.rows.values()], outputs,
                   states)


def parse(text: str, file: str) -> Dfa:
    reader = Reader(file)
    for number, line in enumerate(text.splitlines(), 1):
        reader.where = f"{file}:{number}"
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        head, colon, rest = line.partition(":")
        if not colon or not head.split():
            raise reader.fail(f"found {line[:200]!r}; expected 'states: …', 'start: …', 'output: "
                              "…', 'accept: …' or 'LETTER: …'")
        reader.line(head.split(), rest.split())
    return reader.result()


def to_text(d: Dfa) -> str:
    """The text of a complete automaton, which becomes a key of the model file."""
    lines = [f"states: {' '.join(d.names)}", f"start: {d.names[d.start]}"]
    if d.outputs != d.names:
        lines.append(f"output: {' '.join(d.outputs)}")
    rows: dict[tuple[int, ...], list[str]] = {}
    for letter, to in zip(d.letters, d.moves):
        rows.setdefault(to, []).append(letter)
    lines += [f"{' '.join(letters)}: {' '.join(d.names[s] for s in to)}"
              for to, letters in rows.items()]
    return "\n".join(lines) + "\n"


def letter_name(c: str) -> str:
    """A character as a letter: itself, or \\xNN if a line cannot contain it."""
    if c.isprintable() and c not in " :#\\" and not 0x7f <= ord(c) <= 0xff:
        return c
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def byte_of(letter: str) -> int | None:
    """The byte that a letter names; None if it is not one."""
    if len(letter) == 1 and ord(letter) < 128:
        return ord(letter)
    if len(letter) == 4 and letter.startswith("\\x"):
        try:
            return int(letter[2:], 16)
        except ValueError:
            return None
    return None


def over_bytes(d: Dfa, file: str) -> Dfa:
    """The same automaton with a letter for each of the 256 bytes. Those without a line of the file
    lead to the added state `-`."""
    moves: dict[int, tuple[int, ...]] = {}
    for letter, to in zip(d.letters, d.moves):
        byte = byte_of(letter)
        if byte is None or byte in moves:
            raise DataError(f"{file}: letter {letter!r}; expected different bytes: an ASCII "
                            "character or \\xNN")
        moves[byte] = to
    outputs, names = d.outputs, d.names
    missing = [b for b in range(256) if b not in moves]
    if missing and SINK not in names:
        outputs = [*outputs, REJECT if set(outputs) <= {ACCEPT, REJECT} else SINK]
        names = [*names, SINK]
        moves = {b: (*to, len(to)) for b, to in moves.items()}
    sink = names.index(SINK) if missing else 0
    moves |= {b: (sink,) * len(names) for b in missing}
    return Dfa(d.start, [letter_name(chr(b)) for b in range(256)], [moves[b] for b in range(256)],
               outputs, names)
