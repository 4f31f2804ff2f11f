"""Output files: no program replaces one of its inputs, a device, a pipe or a folder."""

import os
import stat

import pytest

MODEL = "gated_deltanet_neg"
TEXT = "".join(f"It was line {i} of a text, and not the last.\n" for i in range(1, 41))
RUN = ["lrnn-perplexity", "run", "-m", "m.gguf", "--data", "text.txt", "-w", "64",
       "--max-windows", "2", "-t", "1"]

# name: (command that writes OUT, its inputs)
COMMANDS = {
    "cli": (["lrnn-cli", "-m", "m.gguf", "-f", "text.txt", "-n", "1", "-t", "1",
             "--state-save", "OUT"], ["m.gguf", "text.txt"]),
    "cli-stdin": (["lrnn-cli", "-m", "m.gguf", "-f", "-", "-n", "1", "-t", "1",
                   "--state-save", "OUT"], ["m.gguf"]),
    "logits": (["lrnn-perplexity", "logits", "-m", "m.gguf", "--tokens", "ids.txt", "-t", "1",
                "--out", "OUT"], ["m.gguf", "ids.txt"]),
    "imatrix": (["lrnn-perplexity", "imatrix", "-m", "m.gguf", "--data", "text.txt",
                 "--data", "folder", "--window", "64", "--max-windows", "2", "-t", "1",
                 "--out", "OUT"], ["m.gguf", "text.txt", "folder/deep/more.txt"]),
    "probe": (["lrnn-probe", "-m", "m.gguf", "-m", "m2.gguf", "--tokens", "ids.txt",
               "--eigenvalues", "-t", "1", "--svg", "OUT"], ["m.gguf", "m2.gguf", "ids.txt"]),
    "probe-text": (["lrnn-probe", "-m", "m.gguf", "-f", "text.txt", "--eigenvalues", "-t", "1",
                    "--svg", "OUT"], ["text.txt"]),
    "probe-automaton": (["lrnn-probe", "-m", "m.gguf", "--automaton", "text.txt", "-t", "1",
                         "--svg", "OUT"], ["text.txt"]),
    "quantize": (["lrnn-quantize", "m.gguf", "OUT", "Q8_0", "--imatrix", "i.gguf"],
                 ["m.gguf", "i.gguf"]),
}


@pytest.fixture
def inputs(lrnn):
    lrnn.write("text.txt", TEXT)
    lrnn.write("ids.txt", "3 1 4 1 5 9 2 6")
    lrnn.write("folder/deep/more.txt", TEXT)
    lrnn.text_model(MODEL, "m.gguf")
    lrnn.text_model(MODEL, "m2.gguf")
    lrnn.run("lrnn-perplexity", "imatrix", "-m", "m.gguf", "--data", "text.txt", "--out", "i.gguf",
             "--window", "64", "--max-windows", "2", "-t", "1")
    return lrnn


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_not_replaced(inputs, name):
    """By its name, by a symbolic link to it and by a hard link to it."""
    lrnn = inputs
    command, paths = COMMANDS[name]
    for path in paths:
        content = (lrnn.work / path).read_bytes()
        (lrnn.work / "symbolic").symlink_to(path)
        os.link(lrnn.work / path, lrnn.work / "hard")
        before = names(lrnn.work)
        for out in (path, f"folder/../{path}", "symbolic", "hard"):
            lrnn.fail(lrnn.Code.USAGE, *(out if arg == "OUT" else arg for arg in command),
                      stderr=f"{out}.* is also an input")
        assert names(lrnn.work) == before
        assert (lrnn.work / path).read_bytes() == content
        for link in ("symbolic", "hard"):
            (lrnn.work / link).unlink()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_device_pipe_or_folder_is_replaced(inputs, name):
    lrnn = inputs
    command, _ = COMMANDS[name]
    if name == "probe-automaton":
        pytest.skip("the text is no automaton, which is found out first")
    os.mkfifo(lrnn.work / "pipe")
    (lrnn.work / "null").symlink_to("/dev/null")
    lrnn.write("other", "not an input")
    (lrnn.work / "link").symlink_to("other")
    (lrnn.work / "dangling").symlink_to("nothing")
    before = names(lrnn.work)
    for out in ("pipe", "null", "folder", "link", "dangling"):
        done = lrnn.start(*(out if arg == "OUT" else arg for arg in command), stdin=b"a text")
        assert done.code == lrnn.Code.SYSTEM, done.stderr
        assert "expected a regular file or none" in done.stderr
    assert names(lrnn.work) == before
    assert stat.S_ISFIFO(os.stat(lrnn.work / "pipe").st_mode)
    assert (lrnn.work / "link").is_symlink() and (lrnn.work / "dangling").is_symlink()
    assert (lrnn.work / "other").read_text() == "not an input"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_name_is_refused(inputs, name):
    lrnn = inputs
    command, _ = COMMANDS[name]
    before = names(lrnn.work)
    lrnn.fail(lrnn.Code.USAGE, *("" if arg == "OUT" else arg for arg in command),
              stderr="the name of the output file is empty")
    assert names(lrnn.work) == before


def test_stdin_is_an_input(inputs):
    lrnn = inputs
    with open(lrnn.work / "text.txt", "rb") as text:
        lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity", "imatrix", "-m", "m.gguf", "--data", "-",
                  "--window", "64", "--out", "text.txt", stdin=text, stderr="is also an input")
    assert (lrnn.work / "text.txt").read_text() == TEXT


# ---- lrnn-perplexity run and report, which name their files themselves


@pytest.mark.parametrize("path", ["m.gguf", "text.txt"])
@pytest.mark.parametrize("how", ["--force", "--resume"])
def test_run_replaces_no_input(inputs, path, how):
    lrnn = inputs
    (lrnn.work / "out").mkdir()
    os.link(lrnn.work / path, lrnn.work / "out/m.text.nll")
    content = (lrnn.work / path).read_bytes()
    lrnn.fail(lrnn.Code.USAGE, *RUN, "-o", "out", how, stderr="is also an input")
    assert (lrnn.work / path).read_bytes() == content


@pytest.mark.parametrize("file", ["report.json", "buckets.csv", "prefix.csv", "report.svg",
                                  "report.html"])
def test_report_replaces_no_input(inputs, file):
    lrnn = inputs
    lrnn.run(*RUN, "-o", "out")
    (lrnn.work / "out/m.text.nll").rename(lrnn.work / "out" / file)
    content = (lrnn.work / "out" / file).read_bytes()
    lrnn.fail(lrnn.Code.USAGE, "lrnn-perplexity", "report", f"out/{file}", "--out", "out",
              "--format", "json,csv,svg,html", stderr="is also an input")
    assert names(lrnn.work / "out") == [file]
    assert (lrnn.work / "out" / file).read_bytes() == content


# ---- state files


def test_a_state_file_replaces_only_state_files(inputs):
    lrnn = inputs
    command = ["lrnn-cli", "-m", "m.gguf", "-p", "a", "-n", "1", "-t", "1", "--state-save"]
    for path in ("text.txt", "m2.gguf", "i.gguf"):
        content = (lrnn.work / path).read_bytes()
        lrnn.fail(lrnn.Code.USAGE, *command, path, stderr=f"{path}: not a state file")
        assert (lrnn.work / path).read_bytes() == content
    lrnn.write("empty.state", "")  # as mktemp makes it
    lrnn.run(*command, "empty.state")
    lrnn.run(*command, "new.state")
    first = (lrnn.work / "new.state").read_bytes()
    assert first[:8] == b"lrnn-seq"
    lrnn.run(*command, "new.state", "--state-load", "new.state")
    assert (lrnn.work / "new.state").read_bytes() != first
