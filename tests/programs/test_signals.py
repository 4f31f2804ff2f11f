"""Signals: no temporary file is left behind, and nothing that was complete is lost."""

import os
import resource
import signal
import subprocess
import time

import gguf
import numpy as np
import pytest

MODEL = "gated_deltanet_neg"
HEAD_SIZE = 2048  # a state of 16 MiB
MAX_TRIES = 20
MAX_SECONDS = 300


def names(folder):
    return sorted(p.name for p in folder.iterdir())


class Started:
    """A program that was started in the work folder and can be stopped in the middle."""

    def __init__(self, lrnn, program, *args, **options):
        self.work = lrnn.work
        self.process = subprocess.Popen([lrnn.bin / program, *map(str, args)], cwd=lrnn.work,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, **options)

    def temporary(self, out):
        return self.work / f"{out}.{self.process.pid}.tmp"

    def is_writing(self, out):
        """Programs also make an empty file, to see whether the folder can be written."""
        try:
            return self.temporary(out).stat().st_size > 0
        except FileNotFoundError:
            return False

    def freeze_while_writing(self, out):
        """Stops the process with a part of the file written. False: it ended before."""
        end = time.monotonic() + MAX_SECONDS
        while not self.is_writing(out):
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, "the program writes nothing"
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT | os.WEXITED)
        return self.is_writing(out)

    def end(self, *numbers):
        """Sends signals and lets the process run to its end. Returns exit code and stderr."""
        for number in numbers:
            self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        _, stderr = self.process.communicate(timeout=MAX_SECONDS)
        return self.process.returncode, stderr.decode()


# ---- a file that grows while a program works


@pytest.fixture
def start_logits(lrnn):
    """Starts `lrnn-perplexity logits` and stops it with a part of out.npy written."""
    lrnn.write("ids.txt", "1 2 3 4 5 6 7 8 " * 20000)
    lrnn.write("out.npy", "before")

    def start(**options):
        started = Started(lrnn, "lrnn-perplexity", "logits", "-m", lrnn.golden / f"{MODEL}.gguf",
                          "--tokens", "ids.txt", "--cut", "1", "-t", "1", "--out", "out.npy",
                          **options)
        assert started.freeze_while_writing("out.npy")
        return started
    return start


def assert_nothing_changed(lrnn):
    assert names(lrnn.work) == ["ids.txt", "out.npy"]
    assert (lrnn.work / "out.npy").read_text() == "before"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_the_program(lrnn, start_logits, number):
    code, stderr = start_logits().end(number)
    assert code == lrnn.Code.STOPPED
    assert "out.npy was not written" in stderr
    assert_nothing_changed(lrnn)


@pytest.mark.parametrize("numbers, code", [
    ([signal.SIGINT, signal.SIGTERM], -signal.SIGTERM),
    ([signal.SIGHUP, signal.SIGINT], -signal.SIGINT),
    ([signal.SIGHUP, signal.SIGTERM], -signal.SIGTERM),
])
def test_the_second_signal_kills_it(lrnn, start_logits, numbers, code):
    assert start_logits().end(*numbers)[0] == code
    assert_nothing_changed(lrnn)


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGPIPE, signal.SIGXCPU])
def test_other_signals_kill_it(lrnn, start_logits, number):
    def no_core_file():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    assert start_logits(preexec_fn=no_core_file).end(number)[0] == -number
    assert_nothing_changed(lrnn)


def test_a_closed_terminal(lrnn, start_logits):
    """SIGHUP comes from the kernel and from the shell; the second one does not kill."""
    started = start_logits()
    started.process.send_signal(signal.SIGHUP)
    started.process.send_signal(signal.SIGCONT)
    while started.process.poll() is None:
        started.process.send_signal(signal.SIGHUP)
    assert started.process.returncode == lrnn.Code.STOPPED
    started.end()
    assert_nothing_changed(lrnn)


def test_nohup(lrnn, start_logits):
    """SIGHUP stays ignored: the signal after it is the first one."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    code, _ = start_logits(preexec_fn=ignore).end(signal.SIGHUP, signal.SIGTERM)
    assert code == lrnn.Code.STOPPED
    assert_nothing_changed(lrnn)


def test_a_killed_program(lrnn, start_logits):
    """What SIGKILL leaves behind is deleted by the next program that writes the file."""
    started = start_logits()
    code, _ = started.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    stale = started.temporary("out.npy")
    assert stale.exists()
    living = lrnn.write(f"out.npy.{os.getpid()}.tmp", "of a process that runs")
    other = lrnn.write(f"out.npy.0{started.process.pid}.tmp", "of a user")
    lrnn.write("few.txt", "1 2 3")
    lrnn.run("lrnn-perplexity", "logits", "-m", lrnn.golden / f"{MODEL}.gguf", "--tokens",
             "few.txt", "--out", "out.npy")
    assert not stale.exists()
    assert living.read_text() == "of a process that runs"
    assert other.read_text() == "of a user"


def test_two_programs_write_one_file(lrnn, start_logits):
    """The second does not disturb the first."""
    first = start_logits()
    lrnn.write("few.txt", "1 2 3")
    lrnn.run("lrnn-perplexity", "logits", "-m", lrnn.golden / f"{MODEL}.gguf", "--tokens",
             "few.txt", "--out", "out.npy")
    assert first.temporary("out.npy").exists()
    assert len(np.load(lrnn.work / "out.npy")) == 3
    assert first.end()[0] == lrnn.Code.OK
    assert len(np.load(lrnn.work / "out.npy")) == 160000


def test_a_reader_that_stops_reading(lrnn):
    """lrnn-quantize prints one line per tensor; `| head -1` kills it by SIGPIPE."""
    lrnn.text_model(MODEL, "m.gguf")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([lrnn.bin / "lrnn-quantize", "m.gguf", "q.gguf", "Q8_0"], cwd=lrnn.work,
                          stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == -signal.SIGPIPE
    assert names(lrnn.work) == ["m.gguf"]


# ---- a large state


@pytest.fixture(scope="module")
def large_state(root, tmp_path_factory):
    """A golden model with one layer and one head of HEAD_SIZE x HEAD_SIZE."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    source = gguf.GGUFReader(root / "tests/golden/retnet.gguf")
    writer = gguf.GGUFWriter(path, "lrnn")
    changed = {"lrnn.block_count": 1, "lrnn.head_count": 1, "lrnn.key_length": HEAD_SIZE,
               "lrnn.value_length": HEAD_SIZE}
    for key, field in source.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, changed.get(key, field.contents()), field.types[0])
    wide = {"attn_q": (HEAD_SIZE, 32), "attn_k": (HEAD_SIZE, 32), "attn_v": (HEAD_SIZE, 32),
            "attn_gate": (HEAD_SIZE, 32), "ssm_norm": (HEAD_SIZE,), "attn_output": (32, HEAD_SIZE)}
    for tensor in source.tensors:
        if not tensor.name.startswith("blk.1."):
            shape = wide.get(tensor.name.split(".")[-2], tensor.data.shape)
            writer.add_tensor(tensor.name, np.full(shape, 0.01, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def start_save(lrnn, model):
    """lrnn-cli, stopped while it saves the state."""
    for _ in range(MAX_TRIES):
        started = Started(lrnn, "lrnn-cli", "-m", model, "-p", "1 2 3", "-n", "0", "-t", "1",
                          "--state-save", "k.state")
        if started.freeze_while_writing("k.state"):
            return started
        started.end()
    raise AssertionError(f"the state was saved {MAX_TRIES} times before it could be stopped")


def test_one_signal_does_not_lose_the_state(lrnn, large_state):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        start_save(lrnn, large_state).end(number)
        assert names(lrnn.work) == ["k.state"]
        assert (lrnn.work / "k.state").stat().st_size > 4 * HEAD_SIZE ** 2
        (lrnn.work / "k.state").unlink()


def test_a_killed_save(lrnn, large_state):
    lrnn.run("lrnn-cli", "-m", large_state, "-p", "3 4", "-n", "0", "--state-save", "k.state")
    before = (lrnn.work / "k.state").read_bytes()
    code, _ = start_save(lrnn, large_state).end(signal.SIGINT, signal.SIGTERM)
    assert code == -signal.SIGTERM
    assert names(lrnn.work) == ["k.state"]
    assert (lrnn.work / "k.state").read_bytes() == before

    started = start_save(lrnn, large_state)
    assert started.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert (lrnn.work / "k.state").read_bytes() == before
    assert started.temporary("k.state").exists()
    lrnn.run("lrnn-cli", "-m", large_state, "-p", "1 2", "-n", "0", "--state-save", "k.state")
    assert names(lrnn.work) == ["k.state"]
    assert (lrnn.work / "k.state").read_bytes() != before
