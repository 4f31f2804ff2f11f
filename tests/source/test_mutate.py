"""tests/tools/mutate: its operators change what they say, and nothing else."""

import ast
import importlib.machinery
import importlib.util
import sys

import pytest

C = b"""\
#define MORE(a) if (a < 1) {}
static const int table[] = { 1, 2 }; // f(1, 2);
static int f(int n, char * p) {
    /* n = 3; */ const char * s = "n < 3";
#if MORE(2) < 3
    if (n <= 4) {
        p[n] = '<';
        g(n, h(p, 0x10), s);
    }
#endif
    return n;
}
"""
C_CHANGES = {
    ("negate", b"(n <= 4)", b"(!(n <= 4))"), ("compare", b"<=", b"<"), ("constant", b"4", b"5"),
    ("constant", b"0x10", b"0x11"), ("drop", b"p[n] = '<';", b";"),
    ("drop", b"g(n, h(p, 0x10), s);", b";"), ("swap", b"n, h(p, 0x10)", b"h(p, 0x10), n"),
    ("swap", b"h(p, 0x10), s", b"s, h(p, 0x10)"), ("swap", b"p, 0x10", b"0x10, p"),
}
PYTHON = """\
def f(n: int = 3) -> None:
    '''é: n < 3'''
    if n not in (1, 1):  # n == 2
        n += g("é", n)
        raise ValueError
    name = n < 2.5 or True
""".encode()
PYTHON_CHANGES = {
    ("constant", b"3", b"4"), ("negate", b"n not in (1, 1)", b"(not (n not in (1, 1)))"),
    ("compare", b"not in", b"in"), ("constant", b"1", b"2"),
    ("drop", 'n += g("é", n)'.encode(), b"pass"), ("swap", '"é", n'.encode(), 'n, "é"'.encode()),
    ("drop", b"raise ValueError", b"pass"),
    ("compare", b"<", b"<="), ("constant", b"2.5", b"6.0"), ("constant", b"True", b"False"),
}


@pytest.fixture(scope="module")
def tool(root):
    loader = importlib.machinery.SourceFileLoader("mutate", str(root / "tests/tools/mutate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    sys.modules["mutate"] = module  # for its dataclass
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("language, source, changes",
                         [("c", C, C_CHANGES), ("python", PYTHON, PYTHON_CHANGES)])
def test_operators(tool, language, source, changes):
    mutants = list(getattr(tool, f"{language}_mutants")(source))
    assert {(m.operator, source[m.start:m.end], m.text) for m in mutants} == changes
    for m in mutants:
        assert m.apply(source) == source[:m.start] + m.text + source[m.end:] != source
        assert m.first <= source.count(b"\n", 0, m.start) + 1 <= m.last


def test_statement_lines(tool):
    """A defect belongs to the lines from the start of its statement on."""
    source = b"void f(void) {\n    g(1,\n      2);\n    x = 3;\n}\n"
    lines = {source[m.start:m.end]: (m.first, m.last) for m in tool.c_mutants(source)}
    assert lines[b"2"] == (2, 3) and lines[b"3"] == lines[b"x = 3;"] == (4, 4)


def test_sample(tool, root):
    """The seed decides; nothing is drawn twice; every file can be read."""
    files = {str(path.relative_to(root)) for folder in ("src/text", "convert/lrnn_convert")
             for path in (root / folder).rglob("*.[cp]*") if path.suffix in (".c", ".py")}
    folders = ["src/text", "convert"]
    first = tool.draw(root, folders, files, 400, 1)
    assert first == tool.draw(root, folders, files, 400, 1)
    assert first != tool.draw(root, folders, files, 400, 2)
    assert len(set(first)) == 400 and len({file for file, _ in first}) > 40
    for file, m in first:
        if file.endswith(".py"):
            ast.parse(m.apply((root / file).read_bytes()))
    assert {m.operator for _, m in first} == {"negate", "compare", "drop", "swap", "constant"}
