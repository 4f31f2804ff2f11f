"""The commands of the README that start a program run as written."""

import re
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
    stories = []
    converted = False
    n_run = 0
    for line in lines:
        # A checkpoint is not at hand, nor the model that is converted from it.
        converted = converted or "path/to/" in line
        if "path/to/" in line or (converted and " model.gguf" in line):
            continue
        program, *args = shlex.split(line)
        result = lrnn.run(checkout / program, *args)
        n_run += 1
        if "-n" in args and "--state-save" not in args:
            stories.append(result.stdout)
    assert n_run >= 10
    # a whole story, and the continuation of one: both have an end
    assert len(stories) == 2
    assert [s[-80:] for s in stories if not re.search(r"[.!?][\"']?\n*\Z", s)] == []
    assert [path for path in MADE if not (checkout / path).exists()] == []
    assert ">sample</text>" in (checkout / "results/report.svg").read_text()  # its data
