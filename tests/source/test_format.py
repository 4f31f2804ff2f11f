"""One format: that of the checked-in .clang-format."""

import subprocess
import sys
from pathlib import Path

import pytest

C_SUFFIXES = (".c", ".h", ".cpp", ".cu", ".cuh")


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


def test_clang_format(root, files):
    clang_format = Path(sys.executable).parent / "clang-format"
    sources = [str(p.relative_to(root)) for p in files if p.suffix in C_SUFFIXES]
    done = subprocess.run([clang_format, "--dry-run", "-Werror", *sources], cwd=root,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
