"""Automata that ship as exact models."""

from .automaton import letter_name, over_bytes, parse
from .dfa import Dfa


def _walk(start, letters: dict[str, object], step, output, name) -> Dfa:
    """The reachable part of a machine that is given as a function."""
    number, order, rows = {start: 0}, [start], []
    for state in order:
        row = []
        for letter in letters.values():
            to = step(state, letter)
            if to not in number:
                number[to] = len(order)
                order.append(to)
            row.append(number[to])
        rows.append(row)
    return Dfa(0, list(letters), list(zip(*rows)), [output(s) for s in order],
               [name(s) for s in order])


def arithmetic(m: int = 5) -> Dfa:
    """The value modulo m of an expression such as 2 + 3 * 4 =, with * before + and -.

    A state (s, t, mode): s is the sum of the terms before the last one, t the last term, and mode
    the last symbol. The value is s + t. The task mod-arith:m of lrnn-probe asks for it."""

    def step(state, letter):
        s, t, mode = state
        if letter == "*":
            return s, t, "*"
        if isinstance(letter, str):
            return (s + t) % m, 0, "-" if letter == "-" else "+"
        if mode == "*":
            return s, t * letter % m, "d"
        return (s + t) % m, (-letter if mode == "-" else letter) % m, "d"

    letters = {x: x for x in "+-*="} | {str(d): d for d in range(m)}
    return _walk((0, 0, "+"), letters, step, lambda x: str((x[0] + x[1]) % m),
                 lambda x: f"{x[0]}{x[1]}{x[2]}")


def brackets(depth: int = 3) -> Dfa:
    """Words of two kinds of brackets, nested at most `depth` deep (Dyck). A ; begins a new word.
    The answer is accept where everything is closed."""

    def step(stack, letter):
        if letter == ";":
            return ""
        if stack == "!":
            return "!"
        if letter in "([":
            return stack + letter if len(stack) < depth else "!"
        return stack[:-1] if stack[-1:] == {")": "(", "]": "["}[letter] else "!"

    return _walk("", {x: x for x in "()[];"}, step, lambda x: "reject" if x else "accept",
                 lambda x: x or "0")


C_STATES = "code slash string s-esc char c-esc line l-esc block star"
C_OUTPUT = "code code string string string string comment comment comment comment"
C_ROWS = {
    "/":  "slash line string string char char line line block code",
    "*":  "code block string string char char line line star star",
    '"':  "string string code string char char line line block block",
    "'":  "char char string string code char line line block block",
    "\\": "code code s-esc string c-esc char l-esc line block block",
    "\n": "code code code string code char code line block block",
}
C_OTHERS = "code code string string char char line line block block"


def c_source() -> Dfa:
    """Tells code, string (or character constant) and comment apart at every byte of C. The answer
    is where the next byte is: a quotation mark that closes a string is followed by code."""
    rows = [f"{letter_name(c)}: {C_ROWS.get(c, C_OTHERS)}" for c in map(chr, range(256))]
    return over_bytes(parse("\n".join([f"states: {C_STATES}", "start: code", f"output: {C_OUTPUT}",
                                       *rows]), "C source"), "C source")
