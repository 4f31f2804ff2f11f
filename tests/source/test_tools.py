"""What the documents say about the scripts of tests/tools and the targets of the build can be run:
the modules, programs and targets that they use exist."""

import ast
import re
import subprocess
import sys

import pytest

ELSEWHERE = {"tokenizers"}  # modules that the environment of the tests does not have


@pytest.fixture(scope="module")
def documents(root):
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=root, check=True, capture_output=True,
                           text=True).stdout.split()
    return "\n".join((root / name).read_text() for name in names)


@pytest.fixture(scope="module")
def targets(documents):
    return sorted(set(re.findall(r"--target ([\w-]+)", documents)))


@pytest.fixture(scope="module")
def scripts(root, documents, targets):
    names = set(re.findall(r"tests/tools/([\w.-]+\w)", documents))
    names |= {name for name in targets if (root / "tests/tools" / name).exists()}
    texts = {name: (root / "tests/tools" / name).read_text() for name in sorted(names)}
    return {name: text for name, text in texts.items() if text.startswith("#!")}


def test_scripts_start(root, scripts):
    """A script imports all its modules and prints its usage."""
    for name, text in scripts.items():
        done = subprocess.run([sys.executable, root / "tests/tools" / name, "--help"],
                              capture_output=True, text=True, timeout=60)
        missing = re.search(r"No module named '(\w+)'", done.stderr)
        if missing and missing[1] in ELSEWHERE:
            assert f"`{missing[1]}`" in ast.get_docstring(ast.parse(text)), name
        else:
            assert f"usage: {name} " in done.stdout + done.stderr, f"{name}: {done.stderr}"
    assert len(scripts) >= 5


def test_targets_exist(build, targets):
    known = subprocess.run(["cmake", "--build", build, "--target", "help"], check=True,
                           capture_output=True, text=True).stdout
    for target in targets:
        assert re.search(rf"^(\.\.\. )?{target}\b(?!-)", known, re.M), target
    assert "beside-llama" in targets


def programs_of(*texts):
    """{"llama": programs of llama.cpp, "bin": ours}: those in the functions that the first script
    reaches from its main."""
    trees = [ast.parse(text) for text in texts]
    functions = {f.name: f for tree in reversed(trees) for f in tree.body
                 if isinstance(f, ast.FunctionDef | ast.ClassDef)}
    reached, todo, found = set(), ["main"], {"llama": set(), "bin": set()}
    while todo:
        name = todo.pop()
        if name in reached or name not in functions:
            continue
        reached.add(name)
        for node in ast.walk(functions[name]):
            match node:
                case ast.Name(id=used) | ast.Attribute(attr=used):
                    todo.append(used)
                case ast.BinOp(ast.Attribute(attr="llama" | "bin" as where), ast.Div(),
                               ast.Constant(program)):
                    found[where].add(program)
    return found


def test_comparisons_build_their_programs(root, scripts):
    """A target builds all programs that its script calls, and the environment that it runs in."""
    text = (root / "cmake/beside-llama.cmake").read_text()
    calls = re.findall(r"lrnn_add_comparison\((\S+)\s+LLAMA ([^)]*?)\s+LRNN ([^)]*)\)", text)
    assert [name for name, _, _ in calls] == ["beside-llama", "beside-llama-logits",
                                              "beside-llama-server"]
    for name, llama, ours in calls:
        used = programs_of(scripts[name], scripts["beside-llama"])
        assert len(used["llama"]) >= 1 and len(used["bin"]) >= 1
        assert used["llama"] - set(llama.split()) == set(), f"{name}: not built"
        assert (used["bin"] | {"lrnn-convert"}) - set(ours.split()) == set(), f"{name}: not built"
