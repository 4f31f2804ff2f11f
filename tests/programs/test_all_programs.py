"""Every program: --help, --version, wrong options, man page and completions."""

import re
import shutil
import struct
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


def test_one_version(lrnn, root, programs):
    """CMakeLists.txt has the version; the converter and lrnn.py say the same, and a change of it
    begins a section of the changelog."""
    build = (root / "CMakeLists.txt").read_text()
    version = re.search(r"project\(lrnn\s+VERSION\s+(\d+\.\d+\.\d+)\s", build)[1]
    for program in {*programs, "lrnn-convert"}:
        lrnn.run(program, "--version", stdout=rf"\A{program} {re.escape(version)}(?![\d.])")
    binding = (root / "examples/python/lrnn.py").read_text()
    assert re.search(r'^API_VERSION = "(.*)"$', binding, re.M)[1] == version.rpartition(".")[0]
    assert version in re.search(r"^## .*$", (root / "CHANGELOG.md").read_text(), re.M)[0]


COMMANDS = {"lrnn-perplexity": [["run"], ["report"], ["compare"], ["compare", "-m", "x"],
                                ["export"], ["imatrix"], ["logits"]]}


def test_fits_a_terminal(lrnn, programs):
    for program in programs:
        for command in [[], *COMMANDS.get(program, [])]:
            for option in ("--help", "--version"):
                lines = lrnn.run(program, *command, option).stdout.splitlines()
                assert [line for line in lines if len(line) > MAX_TERMINAL_COLUMNS] == []


def test_examples_of_help_are_whole_commands(lrnn, programs):
    """A line that was broken ends with a backslash, so that a shell reads one command."""
    for program in programs:
        text = lrnn.run(program, "--help").stdout
        examples = re.search(r"\nExamples\n(.*?)\n\n", text, re.S).group(1)
        for command in examples.replace(" \\\n", "").splitlines():
            assert re.match(r"  lrnn-[a-z-]+ ", command), command


def test_unknown_option(lrnn, programs):
    for program in programs:
        lrnn.fail(lrnn.Code.USAGE, program, "--no-such-option")


# ---- exit codes


@pytest.fixture
def overflow(lrnn):
    """A model with finite weights whose logits overflow."""
    content = (lrnn.golden / "delta_net_neg.gguf").read_bytes()
    return lrnn.write("overflow.gguf", content[:-4096] + struct.pack("<f", 3e38) * 1024)


def test_help_lists_the_exit_codes(lrnn, programs):
    texts = {re.search(r"\nExit status\n(.*)\Z", lrnn.run(p, "--help").stdout, re.S).group(1)
             for p in programs}
    assert len(texts) == 1
    codes = re.findall(r"^  ([0-9]+) \S", texts.pop(), re.M)
    assert codes == [str(int(code)) for code in lrnn.Code]


def test_exit_codes(lrnn, overflow):
    """Every code, from a program that most users run."""
    model = lrnn.golden / "delta_net_neg.gguf"
    hybrid = lrnn.golden / "delta_net_hybrid.gguf"
    command = ["lrnn-cli", "-t", "1", "-p", "3 1 4", "-n", "8"]
    lrnn.run(*command, "-m", model)
    lrnn.fail(lrnn.Code.SYSTEM, *command, "-m", model, "--state-save", "missing/state")
    lrnn.fail(lrnn.Code.USAGE, *command, "-m", model, "-n", "-2")
    lrnn.fail(lrnn.Code.DATA, *command, "-m", model, "-p", "3 1 x")
    lrnn.fail(lrnn.Code.MODEL, *command, "-m", "missing.gguf")
    lrnn.run(*command, "-m", hybrid, "-c", "6", code=lrnn.Code.STOPPED,
             stderr="the attention cache is full")
    lrnn.fail(lrnn.Code.NUMBERS, *command, "-m", overflow, "-q", stderr="not finite")


def test_stopped_run_can_be_resumed(lrnn):
    """Code 5 keeps its promise: the state of a stopped generation is saved, and continues."""
    hybrid = lrnn.golden / "delta_net_hybrid.gguf"
    command = ["lrnn-cli", "-m", hybrid, "-t", "1", "--greedy", "-q"]
    whole = lrnn.run(*command, "-p", "3 1 4", "-n", "8").stdout.split()
    stopped = lrnn.run(*command, "-p", "3 1 4", "-n", "8", "-c", "6", "--state-save", "state",
                       code=lrnn.Code.STOPPED).stdout.split()
    n_left = str(8 - len(stopped))
    rest = lrnn.run(*command, "--state-load", "state", "-n", n_left).stdout.split()
    assert stopped + rest == whole


def test_numbers_that_are_not_finite(lrnn, overflow):
    lrnn.write("ids.txt", "3 1 4 1 5 9 2 6")
    lrnn.run("lrnn-perplexity", "logits", "-m", overflow, "--tokens", "ids.txt", "--out", "x.npy",
             code=lrnn.Code.NUMBERS)


# ---- options


@pytest.mark.parametrize("value, limit", [("1", "the minimum is 2"),
                                          ("999999999999", "the maximum is [0-9]+")])
def test_option_out_of_range(lrnn, value, limit):
    lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity", "run", "-m", "x.gguf", "--data", "x.txt",
              "--min-doc-tokens", value, stderr=f"--min-doc-tokens is {value}; {limit}\n")


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


# ---- on a terminal


LONG_NAME = "modèle-au-nom-très-long-" * 3


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_progress_fits_the_terminal(lrnn, columns):
    """One line that overwrites itself, never two. It keeps both of its ends."""
    model = lrnn.text_model("delta_net_neg", f"{LONG_NAME}.gguf")
    lrnn.write("text.txt", "All work and no play. " * 12000)
    for command, begin, end in (
            (["lrnn-bench", "-m", model, "-p", "0", "-n", "8192,16384", "-t", "1", "-r", "2"],
             r"\[[0-9]+/2\] ", r" thread(, about [0-9]+ s left)?"),
            (["lrnn-perplexity", "run", "-m", model, "--data", "text.txt", "-w", "1024", "-t", "1",
              "-o", "scores"],
             LONG_NAME[:8], r"about [0-9.]+ (s|min|h) left")):
        terminal = lrnn.on_terminal(*command, columns=columns)
        assert terminal.close() == lrnn.Code.OK, terminal.text()
        progress = [line for line in terminal.lines() if re.match(begin, line)
                    and re.search(end + r"\Z", line)]
        assert progress, terminal.text()
        too_long = [line for line in progress if len(line) >= columns]
        assert too_long == []
        assert "\ufffd" not in terminal.text()  # no character is cut
