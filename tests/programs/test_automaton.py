"""lrnn-convert automaton on the runtime: any automaton and any regular expression becomes a model
that is right at every position, on the step and chunk paths."""

import html
import json
import random
import re
import sys

import gguf
import numpy as np
import pytest

MODELS_PER_RUN = 50         # lrnn-probe takes 64


@pytest.fixture(scope="module")
def convert(root):
    """The converter, in this process: a hundred starts of Python would take a minute."""
    sys.path.insert(0, str(root / "convert"))
    try:
        from lrnn_convert.cli import main
        yield main
    finally:
        sys.path.remove(str(root / "convert"))


def random_text(rng, n, k):
    states = [f"q{i}" for i in range(n)]
    rows = [f"{chr(97 + a)}: {' '.join(rng.choice(states) for _ in range(n))}" for a in range(k)]
    return "\n".join([f"states: {' '.join(states)}", f"start: {rng.choice(states)}", *rows]) + "\n"


def check_probe(lrnn, models, *args):
    for first in range(0, len(models), MODELS_PER_RUN):
        some = models[first:first + MODELS_PER_RUN]
        found = json.loads(lrnn.run("lrnn-probe", *(x for m in some for x in ("-m", m)), *args,
                                    "-t", "1", "--json").stdout)["models"]
        assert len(found) == len(some)
        for model in found:
            for length in model["lengths"]:
                assert length["asked"] > 0 and length["right"] == length["asked"], model


STEP = ("--length", "63", "--trials", "32", "-b", "32")     # one token per call and sequence
CHUNK = ("--length", "2000", "--trials", "1", "-b", "512")


def test_random_automata(lrnn, convert, config):
    """2 to 6 states, 2 to 4 letters, 2,000 letters each."""
    rng = random.Random(17)
    models = []
    for i in range(40 if config["sanitize"] else 200):
        lrnn.write("a.txt", random_text(rng, rng.randint(2, 6), rng.randint(2, 4)))
        models.append(lrnn.work / f"{i}.gguf")
        assert convert(["automaton", str(lrnn.work / "a.txt"), "-o", str(models[-1])]) == 0
    check_probe(lrnn, models, *STEP)
    check_probe(lrnn, models, *CHUNK)


NAMED = {
    # the full transformation monoid on 4 points, whose group is S_4
    "t4": "states: 1 2 3 4\nstart: 1\na: 2 3 4 1\nb: 2 1 3 4\nc: 1 1 3 4\n",
    # Z_5 with addition and multiplication
    "z5": "states: 0 1 2 3 4\nstart: 1\ni: 1 2 3 4 0\nd: 0 2 4 1 3\nz: 0 0 0 0 0\n",
    # S_3 that a letter freezes in one of two states
    "s3-frozen": "states: 1 2 3 4 5\nstart: 1\na: 2 3 1 4 5\nb: 2 1 3 4 5\nf: 4 4 5 4 5\n"
                 "r: 1 1 1 2 3\n",
    # aperiodic: which of the letters came last, and what before it
    "pairs": "states: xx xy yx yy\nstart: xx\nx: xx yx xx yx\ny: xy yy xy yy\nn: xx xy yx yy\n",
    # a counter that stops at its end
    "counter": "states: 0 1 2 3 4 5 6\nstart: 0\nu: 1 2 3 4 5 6 6\nd: 0 0 1 2 3 4 5\n",
    "one": "states: a\nstart: a\nx: a\n",
    # the letters have the names of states
    "names": "states: a b c\nstart: a\na: a a b\nb: b c c\n",
}


def test_monoids(lrnn, convert):
    models = []
    for name, text in NAMED.items():
        lrnn.write("a.txt", text)
        models.append(lrnn.work / f"{name}.gguf")
        assert convert(["automaton", str(lrnn.work / "a.txt"), "-o", str(models[-1])]) == 0
    check_probe(lrnn, models, *STEP)
    check_probe(lrnn, models, *CHUNK)


ALPHABET = " .01abcdxyz"


def answers(lrnn, model, word, cut):
    """The most likely token after each letter of a word."""
    tokens = gguf.GGUFReader(model).get_field("tokenizer.ggml.tokens").contents()
    ids = [tokens.index("<s>"), *(tokens.index("\\x20" if c == " " else c) for c in word)]
    lrnn.write("ids.txt", " ".join(map(str, ids)))
    lrnn.run("lrnn-perplexity", "logits", "-m", model, "--tokens", "ids.txt", "--out", "l.npy",
             "-t", "1", "-q", "--cut", cut)
    logits = np.load(lrnn.work / "l.npy")
    return [tokens[i] for i in logits.argmax(axis=1)]


def test_expressions(lrnn, convert, root):
    """Every prefix of random words, against Python's re."""
    rng = random.Random(19)
    for text in (root / "tests/data/expressions.txt").read_text().splitlines():
        model = lrnn.work / "m.gguf"
        assert convert(["automaton", "--regex", text, "--alphabet", ALPHABET, "-o",
                        str(model)]) == 0
        # letters of the expression, and now and then another one
        used = [c for c in ALPHABET if c in text] or list(ALPHABET)
        words = ["".join(rng.choice(used if rng.random() < 0.97 else ALPHABET) for _ in range(24))
                 for _ in range(2)]
        pattern = re.compile(text)
        for word, cut in zip(words, ("1", "32")):
            expected = ["accept" if pattern.fullmatch(word, 0, i) else "reject"
                        for i in range(len(word) + 1)]
            assert answers(lrnn, model, word, cut) == expected, (text, word)


def test_plain_text(lrnn):
    """A model over bytes: whether the number of double quotes is even."""
    lrnn.run("lrnn-convert", "automaton", "--regex", '([^"]*"[^"]*")*[^"]*', "--bytes", "-o",
             "m.gguf", stderr="2 states, 256 letters")
    text = 'a "b" \n\x00\xff "'
    ids = [258, *text.encode("latin-1")]
    lrnn.write("ids.txt", " ".join(map(str, ids)))
    lrnn.run("lrnn-perplexity", "logits", "-m", "m.gguf", "--tokens", "ids.txt", "--out", "l.npy",
             "-q")
    even = np.load(lrnn.work / "l.npy").argmax(axis=1) == 256
    assert even.tolist() == [text[:i].count('"') % 2 == 0 for i in range(len(text) + 1)]


EXACT = ["t4", "s3-frozen", "pairs", "counter"]


@pytest.mark.parametrize("kind, names", [("f16", EXACT), ("bf16", EXACT),
                                         ("q8_0", ["z5", "pairs", "counter"])])
def test_other_types(lrnn, convert, kind, names):
    """Exact in 16 bits, because all weights are small multiples of powers of two. In Q8_0 entries
    are off by 1e-3; registers that are only reset do not mind."""
    models = []
    for name in names:
        lrnn.write("a.txt", NAMED[name])
        models.append(lrnn.work / f"{name}.gguf")
        assert convert(["automaton", str(lrnn.work / "a.txt"), "--type", kind, "-o",
                        str(models[-1])]) == 0
    check_probe(lrnn, models, "--length", "5000", "--trials", "1")


def test_permuted_registers_need_exact_keys(lrnn):
    lrnn.write("a.txt", NAMED["t4"])
    lrnn.fail(lrnn.Code.USAGE, "lrnn-convert", "automaton", "a.txt", "--type", "q8_0", "-o",
              "m.gguf", stderr="expected f32, f16 or bf16")
    assert not (lrnn.work / "m.gguf").exists()


def test_long_sequences(lrnn, convert, config):
    """Ten automata, 50,000 letters each."""
    rng = random.Random(23)
    models = []
    for i in range(10):
        lrnn.write("a.txt", random_text(rng, 3 + i % 2, 2))
        models.append(lrnn.work / f"{i}.gguf")
        assert convert(["automaton", str(lrnn.work / "a.txt"), "-o", str(models[-1])]) == 0
    check_probe(lrnn, models, "--length", "5000" if config["sanitize"] else "50000",
                "--trials", "1", "-b", "4096")


TOKENS = re.compile(r"""//(?:\\\n|[^\n])*\n|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
                    re.DOTALL)


@pytest.mark.parametrize("path", ["examples/eval/tasks/task-automaton.c", "src/base/json-read.c",
                                  "src/text/chat-format.c", "examples/highlight/main.c"])
def test_source_is_colored(lrnn, root, path):
    """The literals and comments that a regular expression finds. The / that begins a comment might
    be a division, so it has no color."""
    source = (root / path).read_text()
    expected = [t if t[0] in "\"'" else t[1:] for t in TOKENS.findall(source)]
    command = ["lrnn-highlight", "-m", lrnn.models / "exact/c-source.gguf", "-t", "1", root / path]
    page = lrnn.run(*command, "--html").stdout
    body = page[page.index("<pre>") + 5:page.rindex("</pre>")]
    assert html.unescape(re.sub("</?span[^>]*>", "", body)) == source
    spans = [html.unescape(t) for t in re.findall("<span[^>]*>(.*?)</span>", body, re.DOTALL)]
    assert "".join(spans) == "".join(expected)
    colors = dict(re.findall('<span style="color:([^"]*)">(.)', body))
    assert len(colors) == 2
    shown = lrnn.run(*command, "-b", "100").stdout
    assert re.sub("\033\\[\\d*m", "", shown) == source


def test_highlight_refuses(lrnn):
    """One message and nothing on standard output."""
    code, models = lrnn.Code, lrnn.models
    lrnn.write("a.c", "int a;\n")
    c = ["lrnn-highlight", "-m", models / "exact/c-source.gguf"]
    lrnn.fail(code.USAGE, *c, stderr="FILE is missing")
    lrnn.fail(code.USAGE, "lrnn-highlight", "a.c", stderr="--model is missing")
    lrnn.fail(code.DATA, *c, "none.c", stderr="none.c")
    lrnn.fail(code.MODEL, "lrnn-highlight", "-m", "none.gguf", "a.c", stderr="none.gguf")
    for text, found in (("( ) [", "the 5 bytes of brackets.txt have 4 tokens"), ("", "0 bytes")):
        lrnn.write("brackets.txt", text)
        done = lrnn.run("lrnn-highlight", "-m", models / "exact/dyck3.gguf", "brackets.txt",
                        code=code.MODEL if text else code.OK)
        assert text == "" or found in done.stderr
        assert done.stdout == ""


def test_shipped_languages(lrnn):
    """Modular arithmetic with the score of the paper, and brackets."""
    exact = lrnn.models / "exact"
    check_probe(lrnn, [exact / "arith5.gguf"], "--sample", "40,256", "--trials", "100")
    check_probe(lrnn, [exact / "arith5.gguf"], "--length", "2001", "--trials", "1")
    check_probe(lrnn, [exact / "dyck3.gguf"], "--length", "5000", "--trials", "1")
    # against a stack
    stack, expected = [], ["accept"]
    word = random.Random(29).choices("()[];", [4, 4, 4, 4, 1], k=2000)
    for c in word:
        if c == ";":
            stack = []
        elif stack != ["!"]:
            if c in "([":
                stack = [*stack, c] if len(stack) < 3 else ["!"]
            else:
                stack = stack[:-1] if stack and stack[-1] + c in ("()", "[]") else ["!"]
        expected.append("reject" if stack else "accept")
    assert answers(lrnn, exact / "dyck3.gguf", word, "64") == expected


@pytest.mark.parametrize("expression, letters, options", [
    ("(a|b)*abb", "ab", []), (r"[0-9]+(\.[0-9]+)?", "10.x ", ["--bytes"])])
def test_match(lrnn, expression, letters, options):
    """lrnn-cli --match agrees with Python's re, line by line, the empty line included."""
    lrnn.run("lrnn-convert", "automaton", "--regex", expression, *options, "-o", "m.gguf")
    rng = random.Random(5)
    lines = ["", *("".join(rng.choices(letters, k=rng.randrange(9))) for _ in range(60)),
             "babb" if letters == "ab" else "10.01"]
    expected = ["yes" if re.fullmatch(expression, line) else "no" for line in lines]
    assert {"yes", "no"} == set(expected)
    lrnn.write("lines.txt", "\n".join(lines) + "\n")
    done = lrnn.run("lrnn-cli", "-m", "m.gguf", "--match", "-f", "lines.txt", code=lrnn.Code.DATA)
    assert done.stdout.split("\n") == [*expected, ""]
    lrnn.run("lrnn-cli", "-m", "m.gguf", "--match", "-p", lines[-1], stdout=r"\Ayes\n\Z")


def test_match_needs_a_model_of_an_expression(lrnn, root):
    model = root / "models/text-delta-neg.gguf"
    lrnn.fail(lrnn.Code.MODEL, "lrnn-cli", "-m", model, "--match", "-p", "x",
              stderr="expected accept or reject.*lrnn-convert automaton --regex")
    lrnn.fail(lrnn.Code.USAGE, "lrnn-cli", "-m", model, "--match", "--jsonl", "-p", "x")
