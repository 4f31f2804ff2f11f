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
        n = 0777;
        p[n] = '<';
        g(n, h(p, 0x10), s);
    }
#endif
    return n;
}
"""
C_CHANGES = {
    ("negate", b"(n <= 4)", b"(!(n <= 4))"), ("compare", b"<=", b"<"), ("constant", b"4", b"5"),
    ("constant", b"0777", b"01000"), ("drop", b"n = 0777;", b";"),
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


class Tree:
    """Builds and runs nothing. `fails` are the tests that notice a defect."""

    def __init__(self, source, fails=()):
        self.source, self.fails, self.calls = source, fails, []

    def make(self, tests):
        self.calls.append(tests)
        return 0, ""

    def test(self, name, seconds):
        self.calls.append(name)
        return name not in self.fails


def test_judgment(tool, tmp_path):
    """Killers of the file first, then the fastest; built one by one, within the budget."""
    file = tmp_path / "f.c"
    file.write_bytes(C)
    m = next(tool.c_mutants(C))
    seconds = {"slow": 50, "fast": 1, "middle": 5}

    def judge(fails, killers, budget=100):
        tree = Tree(tmp_path, fails)
        found = tool.judge(tree, "f.c", m, seconds, killers, budget)
        assert file.read_bytes() == C  # restored
        return found, tree.calls

    killers = tool.Counter()
    assert judge(["middle"], killers) == (("killed", "middle"),
                                          [["fast"], "fast", ["middle"], "middle"])
    assert judge(["middle"], killers) == (("killed", "middle"), [["middle"], "middle"])
    outcome, calls = judge([], killers, budget=10)
    assert outcome == ("survived", "2 of the 3 tests that reach it") and "slow" not in calls
    assert tool.judge(Tree(tmp_path), "f.c", m, {}, killers, 1)[0] == "survived"


def test_targets(tool, root):
    """A test is built with its target, or with the programs that its script and its modules name.
    """
    tree = tool.Tree.__new__(tool.Tree)
    tree.source = root
    tree.targets = {"lrnn", "lrnn-convert", "lrnn-inspect", "lrnn-server", "lrnn-cli",
                    "lrnn-quantize", "make-text-model", "test-hash", "fuzz-model"}
    assert tree.targets_of("test-hash") == {"test-hash"}
    assert tree.targets_of("fuzz-model-seeds") == {"fuzz-model"}
    server = tree.targets_of("test-program-server-framing")
    assert "lrnn-server" in server and "lrnn-quantize" not in server
    assert tree.targets_of("test-convert-data") == {"lrnn-convert", "lrnn-inspect"}
