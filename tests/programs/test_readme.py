"""The commands of the README that start a program run as written."""

import shlex

import pytest

MADE = ["results/report.svg", "results/report.html", "parity.svg", "story.state"]


@pytest.fixture
def checkout(lrnn, root):
    """A folder that looks like a checkout with a build."""
    (lrnn.work / "build").mkdir()
    (lrnn.work / "build/bin").symlink_to(lrnn.bin)
    for folder in ("models", "tests"):
        (lrnn.work / folder).symlink_to(root / folder)
    return lrnn.work


def test_commands(lrnn, root, config, checkout):
    if config["sanitize"]:
        pytest.skip("other tests run these programs with sanitizers on less data")
    lines = [line for line in (root / "README.md").read_text().splitlines()
             if line.startswith("    build/bin/")]
    n_run = 0
    converted = False
    for line in lines:
        # A checkpoint is not at hand, nor the model that is converted from it.
        converted = converted or "path/to/" in line
        if "path/to/" in line or (converted and " model.gguf" in line):
            continue
        program, *args = shlex.split(line)
        lrnn.run(checkout / program, *args)
        n_run += 1
    assert n_run >= 10
    assert [path for path in MADE if not (checkout / path).exists()] == []
    assert ">sample</text>" in (checkout / "results/report.svg").read_text()  # its data
