"""Automata and regular expressions before they become weights: parsing against Python's re,
minimization, and the cascade against the automaton itself."""

import random
import re
import time
from pathlib import Path

import pytest

from lrnn_convert.cli import main
from lrnn_convert.errors import DataError
from lrnn_convert.exact import cascade
from lrnn_convert.exact.automaton import byte_of, letter_name, over_bytes, parse, to_text
from lrnn_convert.exact.cover import cubes
from lrnn_convert.exact.dfa import Dfa, compact, from_positions, minimized, reachable
from lrnn_convert.exact.layers import best_plan
from lrnn_convert.exact.regex import positions


def random_dfa(rng, n, k, n_outputs=None):
    moves = [tuple(rng.randrange(n) for _ in range(n)) for _ in range(k)]
    names = [f"q{i}" for i in range(n)]
    outputs = names if n_outputs is None else [f"o{rng.randrange(n_outputs)}" for _ in range(n)]
    return Dfa(rng.randrange(n), [chr(97 + i) for i in range(k)], moves, outputs, names)


def answers(d, word):
    state, out = d.start, []
    for a in word:
        state = d.moves[a][state]
        out.append(d.outputs[state])
    return out


def registers(c, word):
    """The single states that the registers of a cascade lead to."""
    full, points, out = (1 << c.dfa.n) - 1, [level.start for level in c.levels], []
    for a in word:
        before = after = full
        for i, level in enumerate(c.levels):
            action = level.moves[a, before, after]
            before = level.below(before, points[i])
            points[i] = action if isinstance(action, int) else action[points[i]]
            after = level.below(after, points[i])
        out.append(after)
    return out


@pytest.mark.parametrize("scheme", cascade.SCHEMES)
def test_a_cascade_follows_its_automaton(scheme):
    rng = random.Random(7)
    for _ in range(60):
        d, _ = reachable(random_dfa(rng, rng.randint(2, 8), rng.randint(2, 4)))
        if d.n == 1:
            continue
        word = [rng.randrange(len(d.letters)) for _ in range(300)]
        c = cascade.build(d, scheme)
        names = [d.names[x.bit_length() - 1] for x in registers(c, word)]
        assert names == answers(d, word)
        for level in c.levels:
            for action in level.moves.values():
                assert isinstance(action, int) or sorted(action) == list(range(level.points))


def test_levels_agree_with_the_theory():
    def levels(moves):
        n = len(moves[0])
        d = Dfa(0, [str(i) for i in range(len(moves))], moves, [str(i) for i in range(n)],
                [str(i) for i in range(n)])
        return {scheme: len(cascade.build(d, scheme).levels) for scheme in cascade.SCHEMES}

    cycle = tuple((i + 1) % 12 for i in range(12))
    assert levels([cycle, (3,) * 12]) == {"holonomy": 1, "subsets": 11}
    # Z_5 with multiplication: permutations and one constant
    times = [tuple(d * i % 5 for i in range(5)) for d in range(5)]
    assert levels([*times, (1, 2, 3, 4, 0)])["holonomy"] == 1
    # the full transformation monoid on 4 points: one level per size of image
    assert levels([(1, 2, 3, 0), (1, 0, 2, 3), (0, 0, 2, 3)])["holonomy"] == 3


def test_minimization_is_right_and_minimal():
    rng = random.Random(3)
    for _ in range(100):
        d = random_dfa(rng, rng.randint(1, 9), 2, 2)
        small, dropped = compact(d, "test")
        assert small.n + len(dropped) <= d.n
        assert minimized(small).n == small.n
        # two states of the result differ on some word: search all pairs backwards
        differ = {(p, q) for p in range(small.n) for q in range(small.n)
                  if small.outputs[p] != small.outputs[q]}
        for _ in range(small.n):
            differ |= {(p, q) for p in range(small.n) for q in range(small.n)
                       if any((to[p], to[q]) in differ for to in small.moves)}
        assert len(differ) == small.n * (small.n - 1)
        word = [rng.randrange(2) for _ in range(200)]
        assert answers(small, word) == answers(d, word)


def test_a_cover_is_exact_and_disjoint():
    rng = random.Random(5)
    for _ in range(30):
        table = {(rng.randrange(4), rng.randrange(6), rng.randrange(6)): rng.randrange(3)
                 for _ in range(50)}
        found = cubes(table)
        for row, value in table.items():
            hits = [c for c in found
                    if all(s is None or x in s for x, s in zip(row, c.sets, strict=True))]
            assert len(hits) == 1 and hits[0].value == value
        assert len(found) < len(table)


# one per line; tests/programs/test_automaton.py runs their models
EXPRESSIONS = (Path(__file__).resolve().parents[2]
               / "tests/data/expressions.txt").read_text().splitlines()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_agree_with_re(text):
    rng = random.Random(text)
    alphabet = sorted(set("abcd01. xyz"))
    found, letters = positions(text, alphabet)
    d, _ = compact(from_positions(found, letters, text), text)
    pattern = re.compile(text)
    words = [[rng.randrange(len(letters)) for _ in range(12)] for _ in range(30)]
    # words near the language: random walks along states from which it can be reached
    for _ in range(60):
        word, state = [], d.start
        for _ in range(12):
            live = [a for a, to in enumerate(d.moves) if to[to[state]] != to[state]
                    or d.outputs[to[state]] == "accept"] or list(range(len(letters)))
            word.append(rng.choice(live))
            state = d.moves[word[-1]][state]
        words.append(word)
    for word in words:
        spelled = "".join(letters[a] for a in word)
        expected = ["accept" if pattern.fullmatch(spelled, 0, i + 1) else "reject"
                    for i in range(len(word))]
        assert answers(d, word) == expected, spelled


@pytest.mark.parametrize("text, says", [
    ("(a", "'(' without ')'"), ("a)", "')' without '('"), ("[a", "'[' without ']'"),
    ("*a", "unexpected '*'"), ("a**", "after another repetition"), ("a{2", "'{' without"),
    ("a{3,2}", "wrong order"), ("^a", "unexpected '^'"), (r"\q", r"unknown escape \q"),
    ("[b-a]", "ascending order"), ("(?=a)", "extension"), ("a.", "needs --alphabet"),
    ("[^a]", "needs --alphabet"), ("", "no characters"), (r"\x1", "two hexadecimal digits"),
    ("a{1000000}", "has 1000000 positions"), ("((a{999}){999}){999}", "has 997002999 positions"),
    ("a{12345678901}", "more than 9 digits"), ("(" * 200 + "a" + ")" * 200, "nested groups"),
])
def test_bad_expressions_are_refused(tmp_path, capsys, text, says):
    out = tmp_path / "m.gguf"
    assert main(["automaton", "--regex", text, "-o", str(out)]) == 3
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("options, code, says", [
    (["--regex", "abc", "--alphabet", "ab"], 3, "'c' is not in the alphabet 'ab'"),
    (["--regex", "(a|b)*a(a|b){20}"], 3, "more than 4096 states"),
    (["--regex", "(a|b)*a(a|b){9}"], 3, "1024 states after minimization; expected at most 64"),
    (["--regex", "é", "--bytes"], 3, "expected ASCII"),
    (["--regex", "a", "--alphabet", "a", "--bytes"], 2, "--alphabet is for --regex"),
    (["--alphabet", "a"], 2, "either a file or --regex"),
    (["--regex", r"[^\x00-\xff]", "--bytes"], 3, "always answers 'reject'"),
    (["--regex", r"[\x00-\xff]*", "--bytes"], 3, "always answers 'accept'"),
])
def test_bad_requests_are_refused(tmp_path, capsys, options, code, says):
    out = tmp_path / "m.gguf"
    assert main(["automaton", *options, "-o", str(out)]) == code
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("options, code", [
    (["--regex", "a((|)){999999999}"], 0),
    (["--regex", r"a((\d){0}){999999999}", "--alphabet", "ab"], 0),
    (["--regex", "[ab]{0,4000}"], 3), (["--regex", "(a?){4000}"], 3),
    (["--regex", "(.?){4000}", "--bytes"], 3), (["--regex", "(a|b){4096}|.*", "--bytes"], 3),
])
def test_long_repetitions_take_seconds(tmp_path, capsys, options, code):
    """They took minutes, or forever."""
    begin = time.process_time()
    assert main(["automaton", *options, "-o", str(tmp_path / "m.gguf")]) == code
    assert time.process_time() - begin < 30
    assert code == 0 or capsys.readouterr().err.count("\n") == 1


def test_what_is_too_large_is_refused_with_its_size(tmp_path, capsys):
    # random maps of 24 states have too many images
    rng = random.Random(1)
    d = random_dfa(rng, 24, 4)
    (tmp_path / "a.txt").write_text(to_text(d))
    out = tmp_path / "m.gguf"
    assert main(["automaton", str(tmp_path / "a.txt"), "-o", str(out)]) == 4
    err = capsys.readouterr().err
    assert re.search(r"24 states is too large to compile: holonomy: (at least )?\d{4,} image sets, "
                     r"expected at most 1024; subsets: \d+ contexts", err)
    assert err.count("\n") == 1 and not out.exists()


PARTIAL = """\
states: a b c lost
start: a
accept: c      # a comment
x y: b c -  a
z:   a - c lost
"""


def test_partial_automata_get_a_sink(tmp_path, capsys):
    d = parse(PARTIAL, "f")
    assert d.names == ["a", "b", "c", "lost", "-"] and d.letters == ["x", "y", "z"]
    assert d.outputs == ["reject", "reject", "accept", "reject", "reject"]
    assert d.moves[0] == d.moves[1] == (1, 2, 4, 0, 4)
    assert parse(to_text(d), "f") == d
    (tmp_path / "a.txt").write_text(PARTIAL)
    assert main(["automaton", str(tmp_path / "a.txt"), "-o", str(tmp_path / "m.gguf")]) == 0
    assert "dropped 1 unreachable states: lost" in capsys.readouterr().err


@pytest.mark.parametrize("text, says", [
    ("states: a b\nstart: a\noutput: x\n0: a b\n", "output has 1 words"),
    ("states: a b\nstart: a\naccept: c\n0: a b\n", "accept has 'c'"),
    ("states: a b\nstart: a\naccept: a\noutput: x y\n0: a b\n", "second line of answers"),
    ("states: a b\nstart: a\n0 0: a b\n", "letter '0' is given twice"),
    ("states: a b\nstart: a\n0 1: a b\n1: b a\n", "letter '1' is given twice"),
    ("states: a b\nstart: a\n: a b\n", "found ': a b'"),
])
def test_malformed_lines_are_refused(text, says):
    with pytest.raises(DataError, match=re.escape(says)):
        parse(text, "f")


def test_letters_and_bytes():
    for b in range(256):
        assert byte_of(letter_name(chr(b))) == b
        assert len(letter_name(chr(b)).split()) == 1
    d = over_bytes(parse("states: a b\nstart: a\nx: b a\n\\x0a: a a\n", "f"), "f")
    assert len(d.letters) == 256 and d.names == ["a", "b", "-"]
    assert d.moves[ord("x")] == (1, 0, 2) and d.moves[10] == (0, 0, 2) and d.moves[0] == (2, 2, 2)
    with pytest.raises(DataError, match="expected different bytes"):
        over_bytes(parse("states: a b\nstart: a\nxy: b a\n", "f"), "f")


def test_the_smaller_scheme_is_taken():
    rng = random.Random(2)
    seen = set()
    for _ in range(40):
        d, _ = reachable(random_dfa(rng, 5, 2))
        if d.n < 3:
            continue
        plan = best_plan(d, 10, "test")
        seen.add(plan.cascade.scheme)
    assert seen == set(cascade.SCHEMES)


def test_the_output_has_a_default_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toggle.txt").write_text("states: a b\nstart: a\nx: b a\n")
    assert main(["automaton", "toggle.txt"]) == main(["automaton", "--regex", "(a|b)*abb"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["regex.gguf", "toggle.gguf", "toggle.txt"]
    assert "toggle.gguf, " in capsys.readouterr().err
