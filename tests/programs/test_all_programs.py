"""Every program: --help, --version, wrong options, man page and completions."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MAX_TERMINAL_COLUMNS = 80


@pytest.fixture(scope="module")
def programs(config):
    assert len(config["programs"]) >= 5
    return config["programs"]


def test_help_and_version(lrnn, programs):
    for program in programs:
        for option in ("--help", "--version"):
            done = lrnn.run(program, option, stdout=rf"\A{program}")
            assert done.stderr == ""


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("program", ["lrnn-cli", "lrnn-inspect"])
def test_fits_a_terminal(lrnn, program, option):
    lines = lrnn.run(program, option).stdout.splitlines()
    assert [line for line in lines if len(line) > MAX_TERMINAL_COLUMNS] == []


def test_unknown_option(lrnn, programs):
    for program in programs:
        lrnn.fail(lrnn.Code.USAGE, program, "--no-such-option")


@pytest.mark.parametrize("devices", [["--device", "no-such-device"],
                                     ["--device", "CPU,no-such-device"], ["-ngl", "-2"]])
def test_unknown_device(lrnn, devices):
    for command in (["lrnn-bench", "-m", "x.gguf"],
                    ["lrnn-cli", "-m", "x.gguf", "-p", "a"],
                    ["lrnn-inspect", "x.gguf"],
                    ["lrnn-perplexity", "logits", "-m", "x.gguf", "--tokens", "x", "--out", "x"]):
        lrnn.fail(lrnn.Code.USAGE, *command, *devices)


@pytest.mark.parametrize("folder, name, prefix", [("man", "{}.1", "--"), ("bash", "{}", "--"),
                                                  ("zsh", "_{}", "--"),
                                                  ("fish", "{}.fish", "-l ")])
def test_descriptions_name_every_option(lrnn, programs, config, folder, name, prefix):
    """Man pages and completions contain every long option of --help."""
    for program in programs:
        help_text = lrnn.run(program, "--help").stdout
        lines = re.findall(r"\n  -[a-z-]*,? ?-*[a-z-]*", help_text)
        options = {o for line in lines for o in re.findall(r"--([a-z][a-z-]*)", line)}
        assert len(options) >= 3, program
        text = (Path(config["share"]) / folder / name.format(program)).read_text()
        text = text.replace("\\-", "-")  # roff
        missing = sorted(option for option in options if prefix + option not in text)
        assert missing == [], f"{folder}: {program}"


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_reads_its_completions(config, programs):
    for program in programs:
        subprocess.run(["bash", "-n", Path(config["share"]) / "bash" / program], check=True)
