"""One format: the checked-in .clang-format for C, 100 columns for everything."""

import subprocess
import sys
from pathlib import Path

import pytest

MAX_COLUMNS = 100
C_SUFFIXES = (".c", ".h", ".cpp", ".cu", ".cuh")
CODE_SUFFIXES = (*C_SUFFIXES, ".comp", ".glsl", ".py", ".cmake", ".in", ".toml")


@pytest.fixture(scope="module")
def files(root):
    """The tracked files outside the ggml submodule; all files if this is not a git checkout."""
    if (root / ".git").exists():
        out = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True,
                             text=True).stdout
        paths = [root / line for line in out.splitlines()]
    else:
        folders = ("cmake", "convert", "docs", "examples", "models", "src", "tests")
        paths = [p for f in folders for p in (root / f).rglob("*")] + list(root.glob("*"))
    found = sorted(p for p in paths if p.is_file())
    assert len(found) > 300
    return found


def is_code(path):
    return path.suffix in CODE_SUFFIXES or path.name == "CMakeLists.txt" or path.match("ci/run")


def long_lines_of_code(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [i for i, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]


def long_lines_of_prose(path):
    """Lines of a Markdown file that are too long, except tables, code, images and single words."""
    long, fenced = [], False
    for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
        is_prose = not (fenced or text.startswith(("|", "![")) or line.startswith("    "))
        if len(line) > MAX_COLUMNS and is_prose and " " in text:
            long.append(i)
    return long


def test_clang_format(root, files):
    clang_format = Path(sys.executable).parent / "clang-format"
    sources = [str(p.relative_to(root)) for p in files if p.suffix in C_SUFFIXES]
    done = subprocess.run([clang_format, "--dry-run", "-Werror", *sources], cwd=root,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def test_line_length(root, files):
    too_long = []
    for path in files:
        if path.suffix == ".md":
            numbers = long_lines_of_prose(path)
        else:
            numbers = long_lines_of_code(path) if is_code(path) else []
        too_long += [f"{path.relative_to(root)}:{number}" for number in numbers]
    assert not too_long, "\n".join([f"more than {MAX_COLUMNS} columns:", *too_long])
