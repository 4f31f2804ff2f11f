"""Regular expressions, as far as they are regular: | * + ? {m} {m,} {m,n} ( ) . [a-z] [^a-z] and
the escapes of ESCAPES and CLASSES. An expression must match a whole prefix; there are no anchors.

An expression becomes its position automaton (Glushkov): one NFA state per character class in it,
and no empty moves.
"""

from dataclasses import dataclass, field

from ..errors import DataError

MAX_POSITIONS = 4096

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
CLASSES = {"d": "0123456789", "s": " \t\n\r\f\v",
           "w": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"}
SPECIAL = "|*+?{}()[].^$\\"


@dataclass
class Positions:
    """The position automaton. Position i reads a character of chars[i]; a text is matched if its
    first character is read by one of `first`, the next by one of follow[that position], and the
    last by one of `last`. Sets of positions are numbers: bit i is position i."""

    chars: list[frozenset[str]] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)
    first: int = 0
    last: int = 0
    empty: bool = True                     # the empty text is matched


def members(numbers: int) -> list[int]:
    """The bits that are set."""
    return [i for i, bit in enumerate(bin(numbers)[:1:-1]) if bit == "1"]


@dataclass(frozen=True)
class Part:
    first: int = 0
    last: int = 0
    empty: bool = True


class Parser:
    """Text to tree to positions. `size` counts the positions of a tree before `part` makes them,
    so that (a{9999}){9999} is refused at once."""

    def __init__(self, text: str, alphabet: list[str] | None):
        self.text, self.at = text, 0
        self.alphabet = alphabet
        self.result = Positions()

    def fail(self, what: str) -> DataError:
        return DataError(f"regular expression {self.text!r}: {what} at character {self.at + 1}")

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self) -> str:
        c = self.peek()
        self.at += 1
        return c

    # ---- trees: ("chars", set), ("or", [trees]), ("then", [trees]), ("repeat", tree, m, n | None)

    def parse(self):
        tree = self.alternatives(0)
        if self.peek():
            raise self.fail("')' without '('")
        return tree

    def alternatives(self, depth: int):
        if depth > 100:
            raise self.fail("more than 100 nested groups")
        branches = [self.sequence(depth)]
        while self.peek() == "|":
            self.take()
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else ("or", branches)

    def sequence(self, depth: int):
        items = []
        while self.peek() and self.peek() not in "|)":
            items.append(self.repeated(depth))
        return ("then", items)

    def repeated(self, depth: int):
        item = self.atom(depth)
        repeats = 0
        while self.peek() and self.peek() in "*+?{":
            repeats += 1
            if repeats > 1:
                raise self.fail(f"{self.peek()!r} after another repetition; use a group")
            c = self.take()
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(c) or self.bounds()
            # the empty text, repeated, is empty
            item = ("repeat", item, low, high) if self.size(item) else ("then", [])
        return item

    def bounds(self) -> tuple[int, int | None]:
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at:end].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise self.fail("'{' without m}, m,} or m,n} after it")
        if max(len(low), len(high)) > 9:
            raise self.fail("a repetition of more than 9 digits")
        m, n = int(low), (int(high) if high else None) if comma else int(low)
        if n is not None and n < m:
            raise self.fail(f"{{{m},{n}}} has its bounds in the wrong order")
        self.at = end + 1
        return m, n

    def atom(self, depth: int):
        c = self.take()
        if c == "(":
            if self.text.startswith("?:", self.at):
                self.at += 2
            elif self.peek() == "?":
                raise self.fail("'(?' begins an extension, which is not regular or not supported")
            tree = self.alternatives(depth + 1)
            if self.take() != ")":
                self.at -= 1
                raise self.fail("'(' without ')'")
            return tree
        if c == "[":
            return ("chars", self.bracket())
        if c == ".":
            return ("chars", self.all_but(frozenset("\n")))
        if c == "\\":
            return ("chars", self.escape())
        if c in SPECIAL:
            self.at -= 1
            raise self.fail(f"unexpected {c!r}; a literal one is \\{c}")
        return ("chars", frozenset(c))

    def all_but(self, chars: frozenset[str]) -> frozenset[str]:
        if self.alphabet is None:
            raise self.fail("'.' or a negated class, which needs --alphabet or --bytes,")
        return frozenset(self.alphabet) - chars

    def escape(self) -> frozenset[str]:
        c = self.take()
        if c.lower() in CLASSES and c:
            chars = frozenset(CLASSES[c.lower()])
            if c.isupper():
                return self.all_but(chars)
            return chars if self.alphabet is None else chars & frozenset(self.alphabet)
        if c == "x":
            digits = self.text[self.at:self.at + 2]
            if len(digits) != 2 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise self.fail("\\x without two hexadecimal digits")
            self.at += 2
            return frozenset(chr(int(digits, 16)))
        if c in ESCAPES and c:
            return frozenset(ESCAPES[c])
        if not c or c.isalnum():
            raise self.fail(f"unknown escape \\{c}")
        return frozenset(c)

    def bracket(self) -> frozenset[str]:
        negated = self.peek() == "^"
        if negated:
            self.take()
        chars, start = set(), True
        while start or self.peek() != "]":
            start = False
            if not self.peek():
                raise self.fail("'[' without ']'")
            low = self.class_member()
            if self.peek() == "-" and self.text[self.at + 1:self.at + 2] not in ("]", ""):
                self.take()
                high = self.class_member()
                if len(low) != 1 or len(high) != 1 or min(high) < min(low):
                    raise self.fail("a range without two characters in ascending order")
                if ord(min(high)) - ord(min(low)) > MAX_POSITIONS:
                    raise self.fail(f"a range of more than {MAX_POSITIONS} characters")
                low = frozenset(map(chr, range(ord(min(low)), ord(min(high)) + 1)))
                if self.alphabet is not None:
                    low &= frozenset(self.alphabet)
            chars |= low
        self.take()
        return self.all_but(frozenset(chars)) if negated else frozenset(chars)

    def class_member(self) -> frozenset[str]:
        c = self.take()
        return self.escape() if c == "\\" else frozenset(c)

    # ---- positions

    def size(self, tree) -> int:
        kind = tree[0]
        if kind == "chars":
            return 1
        if kind == "repeat":
            _, inner, low, high = tree
            return self.size(inner) * (max(low, 1) if high is None else high)
        return sum(map(self.size, tree[1]))

    def part(self, tree) -> Part:
        kind = tree[0]
        if kind == "chars":
            i = len(self.result.chars)
            self.result.chars.append(tree[1])
            self.result.follow.append(0)
            return Part(1 << i, 1 << i, False)
        if kind == "or":
            whole = Part(empty=False)
            for p in map(self.part, tree[1]):
                whole = Part(whole.first | p.first, whole.last | p.last, whole.empty or p.empty)
            return whole
        if kind == "then":
            whole = Part()
            for t in tree[1]:
                whole = self.joined(whole, self.part(t))
            return whole
        _, inner, low, high = tree
        whole = Part()
        # x{2,} = x x+,  x{1,3} = x (x (x)?)?
        for i in range(low - 1 if high is None else low):
            whole = self.joined(whole, self.part(inner))
        if high is None:
            copy = self.part(inner)
            for i in members(copy.last):
                self.result.follow[i] |= copy.first
            return self.joined(whole, Part(copy.first, copy.last, copy.empty or low == 0))
        for i in range(high - low):
            copy = self.part(inner)
            whole = self.joined(whole, Part(copy.first, copy.last, True))
        return whole

    def joined(self, a: Part, b: Part) -> Part:
        for i in members(a.last):
            self.result.follow[i] |= b.first
        return Part(a.first | b.first if a.empty else a.first,
                    a.last | b.last if b.empty else b.last, a.empty and b.empty)


def positions(text: str, alphabet: list[str] | None) -> tuple[Positions, list[str]]:
    """The position automaton of an expression, and its alphabet: by default the characters that
    occur in it."""
    parser = Parser(text, alphabet)
    tree = parser.parse()
    size = parser.size(tree)
    if size > MAX_POSITIONS:
        raise DataError(f"regular expression {text[:80]!r} has {size} positions, once its "
                        f"repetitions are written out; expected at most {MAX_POSITIONS}")
    whole = parser.part(tree)
    result = parser.result
    result.first, result.last, result.empty = whole.first, whole.last, whole.empty
    used = sorted(frozenset().union(*result.chars)) if result.chars else []
    if alphabet is None:
        alphabet = used
    outside = [c for c in used if c not in set(alphabet)]
    if outside:
        raise DataError(f"regular expression {text!r}: {outside[0]!r} is not in the alphabet "
                        f"{''.join(alphabet)[:80]!r}")
    if not alphabet:
        raise DataError(f"regular expression {text!r} has no characters; give --alphabet")
    return result, alphabet
