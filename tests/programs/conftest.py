"""One fixture for tests of the programs: `lrnn` runs a program and checks how it ends."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from enum import IntEnum

import pytest

# The line editor asks for brackets around pasted text while it edits.
READY = r"\x1b\[\?2004h[^\n]*> "  # a line can be typed
ENTERED = r"\x1b\[\?2004l\r\n"   # it was entered
# A build with CUDA says this of itself.
CUDA_NOTICE = (r"CUDA kernels: compiled \(nvcc [0-9.]+, sm_[0-9a-z_, ]+\), "
               r"run on a software device, never on a GPU\n\Z")
# A build with CUDA prints this on every machine without a GPU.
NO_GPU = re.compile(r"\Alrnn-[a-z ]+: no CUDA GPU was found[^\n]*; everything runs on the CPU\n")


class Code(IntEnum):
    """Exit codes of the programs."""

    OK = 0
    SYSTEM = 1
    USAGE = 2
    DATA = 3
    MODEL = 4
    STOPPED = 5
    NUMBERS = 6


class Result:
    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.raw_stderr = code, stdout, stderr
        self.stderr = NO_GPU.sub("", stderr)


class Terminal:
    """A program on a pseudo-terminal: its stdin, stdout and stderr unless `streams` replaces them.
    """

    TIMEOUT_S = 120

    def __init__(self, command, cwd, columns=80, term="xterm", env=None, **streams):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams = {name: slave for name in ("stdin", "stdout", "stderr")} | streams

        def own_terminal():  # so that Ctrl-C on it sends a signal
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command, cwd=cwd, preexec_fn=own_terminal, **streams,
            env={k: v for k, v in (os.environ | {"TERM": term, "LRNN_HISTORY": "", "COLUMNS": None}
                                   | (env or {})).items() if v is not None})
        os.close(slave)
        self.seen = b""  # everything that was printed
        self.at = 0      # up to here `expect` has found its patterns

    def send(self, data):
        data = data.encode() if isinstance(data, str) else data
        while data:
            data = data[os.write(self.master, data):]
            self._read(0)  # the echo, before it blocks the program

    def _read(self, timeout_s):
        """Reads what there is. False: nothing, or the program has closed the terminal."""
        if not select.select([self.master], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux: EIO after the last close
            data = b""
        self.seen += data
        return data != b""

    def expect(self, pattern):
        """Reads until the output after the last match matches `pattern`. Returns the match."""
        end = time.monotonic() + self.TIMEOUT_S
        while not (found := re.search(pattern, self.text()[self.at:], re.S)):
            more = self._read(0.1)
            assert more or (self.process.poll() is None and time.monotonic() < end), \
                f"no {pattern!r} in {self.text()[self.at:]!r}"
        self.at += found.end()
        return found

    def text(self):
        return self.seen.decode(errors="replace")

    def close(self):
        """Reads to the end. Returns the exit code: negative if a signal ended the program."""
        end = time.monotonic() + self.TIMEOUT_S
        while self._read(0.1) or self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
        os.close(self.master)
        return self.process.wait()

    def lines(self):
        """Lines as they appear on the screen; a progress line counts each time it is drawn."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text())
        return [line for line in re.split(r"[\r\n]+", text) if not NO_GPU.match(line + "\n")]


class Programs:
    """The programs of a build. They run in the folder `work`, so relative paths are files in it."""

    Code = Code

    def __init__(self, build, root, work):
        self.bin, self.tools = build / "bin", build / "tests"
        self.golden, self.models = root / "tests/golden", root / "models"
        self.work = work

    def start(self, program, *args, stdin=b"", binary=False, timeout=None):
        """Runs a program to its end and checks nothing. `stdin` is bytes or an open file, `timeout`
        in seconds."""
        path = self.bin / program if isinstance(program, str) else program
        source = {"input" if isinstance(stdin, bytes) else "stdin": stdin}
        done = subprocess.run([path, *map(str, args)], cwd=self.work, capture_output=True,
                              timeout=timeout, **source)
        stdout = done.stdout if binary else done.stdout.decode(errors="replace")
        return Result(done.returncode, stdout, done.stderr.decode(errors="replace"))

    def on_terminal(self, program, *args, **options):
        """Starts a program on a terminal."""
        return Terminal([self.bin / program, *map(str, args)], self.work, **options)

    def run(self, program, *args, code=Code.OK, stdout=None, stderr=None, **options):
        """Runs a program that must end with `code`. `stdout` and `stderr` are regular expressions
        that must be found in its output."""
        done = self.start(program, *args, **options)
        command = " ".join(map(str, [program, *args]))
        assert done.code == code, \
            f"{command}: exit code {done.code}, expected {int(code)}: {done.stderr}"
        for pattern, text in ((stdout, done.stdout), (stderr, done.stderr)):
            if pattern is not None:
                assert re.search(pattern, text, re.S), f"{command}: no '{pattern}' in: {text}"
        return done

    def fail(self, code, program, *args, stderr=None, **options):
        """Runs a program that must fail with nothing on stdout and one line on stderr. Returns the
        line."""
        done = self.run(program, *args, code=code, stderr=stderr, **options)
        command = " ".join(map(str, [program, *args]))
        assert done.stdout == "", f"{command}: unexpected output: {done.stdout}"
        assert re.fullmatch(rf"{program}[^\n]*: [^\n]+\n", done.stderr), \
            f"{command}: expected one line on stderr: {done.stderr}"
        return done.stderr

    def tool(self, name, *args, code=0):
        """Runs a helper program of the tests."""
        return self.run(self.tools / name, *args, code=code)

    def golden_models(self):
        models = sorted(self.golden.glob("*.gguf"))
        assert models
        return models

    def text_model(self, golden, path, *eos):
        """Writes a golden model with a tokenizer whose ids are bytes. `eos` ends a text."""
        self.tool("make-text-model", self.golden / f"{golden}.gguf", self.work / path, *eos)
        return self.work / path

    def write(self, path, content):
        """Writes a file in the work folder."""
        (self.work / path).parent.mkdir(parents=True, exist_ok=True)
        (self.work / path).write_bytes(content.encode() if isinstance(content, str) else content)
        return self.work / path


@pytest.fixture(autouse=True, scope="session")
def environment():
    # Small models: threads that spin at barriers would take the cores from those that work.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", "passive")
        yield


@pytest.fixture(scope="session")
def programs_in(build, root):
    """programs_in(folder) runs the programs in that folder; for fixtures of a whole module."""
    return lambda work: Programs(build, root, work)


@pytest.fixture(scope="module")
def programs(programs_in, tmp_path_factory):
    """The programs in a folder of the whole module."""
    return programs_in(tmp_path_factory.mktemp("module"))


@pytest.fixture
def lrnn(programs_in, tmp_path):
    return programs_in(tmp_path)
