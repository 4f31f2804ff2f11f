"""Exact models: the shipped files are reproducible; permutations and automata are right."""

from itertools import permutations
from pathlib import Path

import pytest

from lrnn_convert.cli import main
from lrnn_convert.exact.automaton import parse, to_text
from lrnn_convert.exact.catalog import MODELS
from lrnn_convert.exact.householder import family, to_task
from lrnn_convert.exact.permutations import alternating, inverse, swaps, symbol

SHIPPED = Path(__file__).resolve().parents[2] / "models" / "exact"


def test_shipped_files_are_reproduced_to_the_byte(tmp_path):
    assert main(["exact", "-o", str(tmp_path)]) == 0
    made = sorted(p.name for p in tmp_path.iterdir())
    assert made == sorted(p.name for p in SHIPPED.glob("*.gguf"))
    for name in made:
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), name


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_swaps_make_the_permutation_and_are_minimal(n):
    for p in permutations(range(n)):
        h = list(range(n))
        for i, j in swaps(p):
            h[i], h[j] = h[j], h[i]
        assert h == [p[i] for i in range(n)]
        cycles = 0
        seen = set()
        for i in range(n):
            cycles += i not in seen
            while i not in seen:
                seen.add(i)
                i = p[i]
        assert len(swaps(p)) == n - cycles
        assert tuple(p[i] for i in inverse(p)) == tuple(range(n))


def test_the_alternating_group_is_half_and_closed():
    group = alternating(5)
    assert len(group) == 60 and group[0] == (0, 1, 2, 3, 4) and symbol(group[0]) == "12345"
    assert {tuple(a[b[i]] for i in range(5)) for a in group for b in group} == set(group)


@pytest.mark.parametrize("name, factors", [("s3", 2), ("s5", 4), ("a5", 4), ("a5-nh2", 2),
                                           ("s5-swaps", 1), ("s5-nh3", 3)])
def test_factors_agree_with_the_theorem(name, factors):
    config = MODELS[name].build(name, True)[0].config
    assert config.get("num_householder", 1) == factors


TWINS = [name for name, entry in MODELS.items() if entry.twin]


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_same_tensors(name):
    signed, unsigned = (MODELS[name].build(name, s)[0] for s in (True, False))
    assert signed.tensors.keys() == unsigned.tensors.keys()
    for tensor, x in signed.tensors.items():
        assert x.load().tobytes() == unsigned.tensors[tensor].load().tobytes(), tensor


AUTOMATON = "states: a b c\nstart: b   # a comment\n\nx: b c a\ny: b a c\nr: c c c\n"


def test_an_automaton_is_read():
    a = parse(AUTOMATON, "f")
    assert a.names == ["a", "b", "c"] and a.start == 1
    assert dict(zip(a.letters, a.moves)) == {"x": (1, 2, 0), "y": (1, 0, 2), "r": (2, 2, 2)}
    assert parse(to_text(a), "f") == a
    task = to_task(a)
    assert task.resets == {"r": 2} and task.factors == 2 and family(task) == "gated_delta_product"


@pytest.mark.parametrize("text, message", [
    ("", "states are missing"),
    ("states: a b\n0: a b\n", "start is missing"),
    ("states: a b\nstart: a\n", "letters are missing"),
    ("start: a\nstates: a b\n", "the line of states first"),
    ("states: a a\n", "different states"),
    ("states: a b\nstart: c\n", "start is 'c'"),
    ("states: a b\nstart: a\n0: a\n", "letter '0' has 1 targets"),
    ("states: a b\nstart: a\n0: a c\n", "letter '0' goes to 'c'"),
    ("states: a b\nstart: a\n0: a b\n0: a b\n", "letter '0' is given twice"),
    ("states: a b\nstart: a\nfoo bar\n", "found 'foo bar'"),
    ("states: a b\nstart: a\n<s>: a b\n", "'<s>' cannot be a letter"),
])
def test_malformed_automata_are_refused(tmp_path, capsys, text, message):
    (tmp_path / "a.txt").write_text(text)
    assert main(["automaton", str(tmp_path / "a.txt"), "-o", str(tmp_path / "a.gguf")]) in (3, 4)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.gguf").exists()


@pytest.mark.parametrize("argv", [["exact", "nothing", "-o", "."],
                                  ["exact", "-o", "no/such/folder"],
                                  ["automaton"], ["exact", "--wrong"]])
def test_wrong_usage(argv):
    assert main(argv) == 2
