"""Output files: complete or absent, never in place of an input, a device, a pipe or a folder."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import tiny
from conftest import File
from lrnn_convert import model
from lrnn_convert.cli import main

PACKAGE = Path(__file__).resolve().parents[1]
AUTOMATON = "states: a b\nstart: a\nx: b a\n"
EXACT = "parity-delta-net"


@pytest.fixture
def inputs(bench):
    """A folder with an input for every command; returns {command: argv without its output}."""
    bench.save(*tiny.delta_net())
    (bench.path / "a.txt").write_text(AUTOMATON)
    commands = {"checkpoint": [bench.folder], "automaton": ["automaton", bench.path / "a.txt"],
                "exact": ["exact", EXACT]}
    if pyarrow := pytest.importorskip("pyarrow", reason="data needs pyarrow"):
        import pyarrow.parquet
        table = pyarrow.table({"text": ["one", "two"]})
        pyarrow.parquet.write_table(table, bench.path / "t.parquet")
        commands["data"] = ["data", bench.path / "t.parquet"]
    return commands


COMMANDS = ("checkpoint", "automaton", "exact", "data")


def arguments(inputs, command, out):
    """The command line that writes `out`."""
    target = out.parent if command == "exact" else out
    return [*map(str, inputs[command]), "-o", str(target)]


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    # the name of a socket has at most 107 bytes
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


OPEN = tempfile.TemporaryFile()

SPECIAL = {
    "a fifo": make_fifo,
    "a socket": make_socket,
    "a folder": lambda p: p.mkdir(),
    "a link to a fifo": lambda p: (os.mkfifo(p.with_name("fifo")), p.symlink_to("fifo")),
    "a link to a device": lambda p: p.symlink_to("/dev/null"),
    "a link to a folder": lambda p: (p.with_name("d").mkdir(), p.symlink_to("d")),
    "a symbolic link": lambda p: (p.with_name("file").write_text("x"), p.symlink_to("file")),
    "a symbolic link to nothing": lambda p: p.symlink_to("nothing"),
    # /dev/stdout is such a link; standard output is a regular file here
    "a symbolic link of a process": lambda p: p.symlink_to(f"/proc/self/fd/{OPEN.fileno()}"),
}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("command", COMMANDS)
def test_only_regular_files_are_replaced(bench, inputs, command, special):
    out = bench.path / "out" / f"{EXACT}.gguf"
    out.parent.mkdir()
    SPECIAL[special](out)
    before, kind = names(bench.path), stat.S_IFMT(out.lstat().st_mode)
    assert main(arguments(inputs, command, out)) == 1
    what = ("a directory" if "folder" in special else "a symbolic link" if "symbolic" in special
            else "a device, pipe or socket")
    assert bench.capsys.readouterr().err == (
        f"lrnn-convert: {out}: found {what}, expected a regular file or none\n")
    assert stat.S_IFMT(out.lstat().st_mode) == kind and names(bench.path) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("command", ["checkpoint", "automaton", "exact"])
def test_a_model_file_is_not_written_to_standard_output(bench, inputs, monkeypatch, command):
    monkeypatch.chdir(bench.path)          # a file named - would be written here
    before = names(bench.path)
    assert main([*map(str, inputs[command]), "-o", "-"]) == 2
    assert "standard output" in bench.capsys.readouterr().err and names(bench.path) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_without_a_name(inputs, command):
    assert main([*map(str, inputs[command]), "-o", ""]) == 2


def test_a_file_named_like_standard_output(bench, inputs, monkeypatch):
    monkeypatch.chdir(bench.path)
    assert main([str(bench.folder), "-o", "./-"]) == 0 and File(bench.path / "-").data
    (bench.path / "-").unlink()
    assert main([*map(str, inputs["data"]), "-o", "./-", "--quiet"]) == 0
    assert (bench.path / "-").read_text() == '{"text":"one"}\n{"text":"two"}\n'


#
# Inputs
#

def check_inputs(bench, argv, paths):
    """No file of `paths` is replaced: by its name, by a symbolic link or by a hard link to it."""
    for path in paths:
        content, link = path.read_bytes(), bench.path / "links"
        link.mkdir()
        (link / "symbolic").symlink_to(path)
        os.link(path, link / "hard")
        before = names(bench.path)
        for out in (path, path.parent / ".." / path.parent.name / path.name, link / "symbolic",
                    link / "hard"):
            assert main([*map(str, argv), "-o", str(out)]) == 2
            err = bench.capsys.readouterr().err
            assert err.startswith(f"lrnn-convert: the output file {out} is also an input (")
            assert err.count("\n") == 1
            assert path.read_bytes() == content and names(bench.path) == before
        (link / "symbolic").unlink()
        (link / "hard").unlink()
        link.rmdir()


TOKENIZER = {"tokenizer.json": "{}", "tokenizer_config.json": "{}", "special_tokens_map.json": "{}",
             "tokenizer.model": "", "rwkv_vocab_v1.txt": "", "README.md": "# about"}


def test_files_of_a_checkpoint_are_not_replaced(bench, inputs):
    for name, text in TOKENIZER.items():
        (bench.folder / name).write_text(text)
    (bench.folder / "nested").mkdir()
    (bench.folder / "nested" / "other.bin").write_bytes(b"x")
    check_inputs(bench, inputs["checkpoint"], [p for p in bench.folder.rglob("*") if p.is_file()])


def test_files_beside_a_single_file_checkpoint_are_not_replaced(bench, inputs):
    for name, text in TOKENIZER.items():
        (bench.folder / name).write_text(text)
    read = [bench.folder / n for n in TOKENIZER if n != "README.md"]
    check_inputs(bench, [bench.folder / "model.safetensors"],
                 [bench.folder / "model.safetensors", bench.folder / "config.json", *read])


@pytest.mark.parametrize("named", ["a file", "a folder"])
def test_a_tokenizer_is_not_replaced(bench, inputs, named):
    folder = bench.path / "tokenizer"
    folder.mkdir()
    for name, text in TOKENIZER.items():
        (folder / name).write_text(text)
    name = folder / "tokenizer.json" if named == "a file" else folder
    check_inputs(bench, [*inputs["checkpoint"], "--tokenizer", name],
                 [folder / n for n in ("tokenizer.json", "tokenizer_config.json",
                                       "special_tokens_map.json")])


def test_an_automaton_is_not_replaced(bench, inputs):
    check_inputs(bench, inputs["automaton"], [bench.path / "a.txt"])


def test_data_are_not_replaced(bench, inputs):
    folder = bench.path / "set"
    folder.mkdir()
    (bench.path / "t.parquet").rename(folder / "t.parquet")
    (folder / "README.md").write_text("# about")
    check_inputs(bench, ["data", folder / "t.parquet"], [folder / "t.parquet"])
    check_inputs(bench, ["data", folder], [folder / "t.parquet"])
    # a file that is not an input may be replaced: an earlier result
    assert main(["data", str(folder), "-o", str(folder / "out.jsonl"), "--quiet"]) == 0
    assert main(["data", str(folder), "-o", str(folder / "out.jsonl"), "--quiet"]) == 0


def test_saved_data_are_not_replaced(bench, inputs):
    folder = bench.path / "set"
    folder.mkdir()
    (bench.path / "t.parquet").rename(folder / "data.parquet")
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.parquet"}]}')
    check_inputs(bench, ["data", folder], [p for p in folder.iterdir()])


def test_a_model_file_in_the_folder_of_the_checkpoint_is_replaced(bench, inputs):
    out = bench.folder / "model.gguf"
    for _ in range(2):
        assert main([str(bench.folder), "-o", str(out), "--quiet"]) == 0
        assert File(out).data
    # --dry-run reports what would fail
    assert main([str(bench.folder), "-o", str(bench.folder / "config.json"), "--dry-run",
                 "--quiet"]) == 2


#
# Temporary files
#

# runs lrnn-convert in another process; it stops before its first tensor, says so and waits
STOPPED = """
import sys, time
from lrnn_convert import model
from lrnn_convert.__main__ import main
def wait(self):
    print("stopped", flush=True)
    time.sleep(60)
model.OutputTensor.pieces = wait
sys.exit(main())
"""


def start_stopped(bench, *prefix):
    running = subprocess.Popen([*prefix, sys.executable, "-c", STOPPED, bench.folder, "-o",
                                bench.out, "--quiet"], cwd=PACKAGE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert running.stdout.readline() == "stopped\n"
    return running


def temporary_files(bench):
    return [n for n in names(bench.path) if ".tmp" in n or ".part" in n]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(bench, inputs, number):
    before = names(bench.path)
    running = start_stopped(bench)
    assert temporary_files(bench) == [f"out.gguf.{running.pid}.tmp"]
    running.send_signal(number)
    _, err = running.communicate(timeout=20)
    assert running.returncode == -number   # a shell shows 128 + number
    assert err.startswith("lrnn-convert: ") and err.count("\n") == 1
    assert names(bench.path) == before


def test_an_ignored_signal_stays_ignored(bench, inputs):
    running = start_stopped(bench, "nohup")
    running.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=1)
    running.terminate()
    running.communicate(timeout=20)
    assert not temporary_files(bench)


def test_files_of_dead_processes_are_removed(bench, inputs):
    running = start_stopped(bench)
    running.kill()
    running.communicate()
    assert temporary_files(bench) == [f"out.gguf.{running.pid}.tmp"]
    # a name of this process, from an earlier process with the same number
    (bench.path / f"out.gguf.{os.getpid()}.tmp").write_bytes(b"old")
    living = start_stopped(bench)
    mine = {"out.gguf.part": b"mine", "out.gguf.tmp": b"mine", "out.gguf.x.tmp": b"mine",
            f"other.gguf.{running.pid}.tmp": b"mine", f"out.gguf.{running.pid}.tmp.txt": b"mine"}
    for name, content in mine.items():
        (bench.path / name).write_bytes(content)
    (bench.path / "out.gguf.1.tmp").mkdir()
    assert bench.run() == 0 and File(bench.out).data
    assert sorted(temporary_files(bench)) == sorted([f"out.gguf.{living.pid}.tmp",
                                                     "out.gguf.1.tmp", *mine])
    assert all((bench.path / name).read_bytes() == content for name, content in mine.items())
    living.kill()
    living.communicate()


@pytest.mark.parametrize("name", ["out.gguf.part", f"out.gguf.{os.getpid()}.tmp"])
def test_links_are_not_followed(bench, inputs, name):
    other = bench.path / "other"
    other.write_bytes(b"other")
    (bench.path / name).symlink_to(other)
    code = bench.run()
    assert other.read_bytes() == b"other" and (bench.path / name).is_symlink()
    if name.endswith(".part"):
        assert code == 0 and File(bench.out).data
    else:
        assert code == 1 and "out.gguf: cannot be written: File exists" in bench.err


def test_two_converters_with_the_same_output(bench, inputs, monkeypatch):
    """Both write at the same time; each leaves a complete file."""
    assert bench.run("--type", "f16") == 0
    other = bench.out.read_bytes()
    assert bench.run() == 0
    mine = bench.out.read_bytes()
    pieces, seen = model.OutputTensor.pieces, []

    def pieces_after_the_other(self):
        if not seen:
            subprocess.run([sys.executable, "-m", "lrnn_convert", bench.folder, "-o", bench.out,
                            "--type", "f16", "--quiet"], check=True, cwd=PACKAGE)
            seen.append(bench.out.read_bytes())
        return pieces(self)

    monkeypatch.setattr(model.OutputTensor, "pieces", pieces_after_the_other)
    assert bench.run() == 0
    assert seen == [other] and bench.out.read_bytes() == mine and not temporary_files(bench)


# locks a file until its input ends, like a process with our number in another container
LOCK = """
import fcntl, sys
file = open(sys.argv[1], "wb")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_locks(bench, inputs):
    path = bench.path / f"out.gguf.{os.getpid()}.tmp"
    other = subprocess.Popen([sys.executable, "-c", LOCK, path], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"locked\n"
    assert bench.run() == 1 and "out.gguf: cannot be written: File exists" in bench.err
    assert path.exists() and not bench.out.exists()
    other.communicate()
    assert bench.run() == 0 and not temporary_files(bench)


def test_a_temporary_file_that_another_process_replaced(bench, inputs, monkeypatch):
    """On file systems without locks."""
    pieces = model.OutputTensor.pieces

    def pieces_after_the_other(self):
        path = bench.path / f"out.gguf.{os.getpid()}.tmp"
        path.unlink(missing_ok=True)
        path.write_bytes(b"of another process")
        return pieces(self)

    monkeypatch.setattr(model.OutputTensor, "pieces", pieces_after_the_other)
    assert bench.run() == 1 and "out.gguf" in bench.err and not bench.out.exists()
