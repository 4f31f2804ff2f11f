"""Renders a chat template in a process of its own (renderer.py), with limits of memory and time:
templates are untrusted input."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import signals

SCRIPT = Path(__file__).parent / "renderer.py"
if find_spec("jinja2") is None:            # only the process imports it
    raise ModuleNotFoundError(name="jinja2")

# of the process, which renders a template a few hundred times; real templates take 0.3 seconds
MAX_SECONDS = 10                           # of computing
MAX_WAIT = 120                             # seconds on the clock: a busy machine may be slow
MAX_BYTES = 1 << 29                        # of memory in use, looked at every INTERVAL seconds
MAX_ADDRESSES = 1 << 30                    # of address space, at once; macOS has no such limit
MAX_OUTPUT = 1 << 20                       # characters of one rendering
INTERVAL = 0.2

Message = dict[str, str]


class RenderError(Exception):
    """The template cannot render a conversation, or refuses it."""


def resident_bytes(pid: int) -> int:
    """0: unknown."""
    with suppress(OSError, ValueError):
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True)
        return 1024 * int(done.stdout)
    return 0


class Template:
    """A Jinja template and the special tokens that it may insert (bos_token, eos_token …). One
    process renders all its conversations; `with` ends it."""

    def __init__(self, source: str, tokens: dict[str, str]) -> None:
        self.source = source
        limits = {"seconds": MAX_SECONDS, "bytes": MAX_BYTES, "addresses": MAX_ADDRESSES,
                  "characters": MAX_OUTPUT}
        # -I: nothing of the environment or the current folder; modules come from where ours do
        command = [sys.executable, "-I", str(SCRIPT), json.dumps(limits),
                   json.dumps([folder for folder in sys.path if folder])]
        self.deadline = time.monotonic() + MAX_WAIT
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, bufsize=0)
        signals.children.add(self.process.pid)
        try:
            self._ask({"source": source, "tokens": tokens})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Template":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        signals.children.discard(self.process.pid)
        self.process.stdin.close()
        self.process.stdout.close()

    def render(self, messages: list[Message], **settings: Any) -> str:
        """The text of a conversation, with the prompt for the next answer."""
        return self._ask({"messages": messages, **settings})

    def _ask(self, question: dict[str, Any]) -> str:
        line = json.dumps(question).encode() + b"\n"
        with suppress(BrokenPipeError):    # then it has ended, and _read says why
            while line:
                line = line[self.process.stdin.write(line):]
        answer = json.loads(self._read())
        if "error" in answer:
            raise RenderError(answer["error"])
        return answer["text"]

    def _read(self) -> bytes:
        """A line. Ends the process if it exceeds a limit that the system does not enforce."""
        out = self.process.stdout.fileno()
        pieces = []
        while not (pieces and pieces[-1].endswith(b"\n")):
            if select.select([out], [], [], INTERVAL)[0]:
                pieces.append(os.read(out, 1 << 16))
                if not pieces[-1]:
                    raise self._ended()
            elif resident_bytes(self.process.pid) > MAX_BYTES:
                self.process.kill()
                raise RenderError(f"it needs more than {MAX_BYTES // 10**6} MB of memory")
            elif time.monotonic() > self.deadline:
                self.process.kill()
                raise RenderError(f"it is not rendered within {MAX_WAIT} seconds")
        return b"".join(pieces)

    def _ended(self) -> RenderError:
        code = self.process.wait()
        if code == -signal.SIGXCPU:
            return RenderError(f"it runs for more than {MAX_SECONDS} seconds")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return RenderError(f"the process that renders it ended with {how}")
