"""Ends the program on a signal like a C program: without a traceback and without temporary files.

Imports nothing else of the package, so that the handlers are there before the slow imports.
"""

import os
import shutil
import signal
from contextlib import suppress

TEXTS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}

# removed on a signal
temporary_files: set[str] = set()
temporary_folders: set[str] = set()

# processes that are ended on a signal
children: set[int] = set()


def _end(number: int, _frame) -> None:
    for pid in children:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for name in temporary_files:
        with suppress(OSError):
            os.unlink(name)
    for name in temporary_folders:
        shutil.rmtree(name, ignore_errors=True)
    with suppress(OSError):
        os.write(2, f"lrnn-convert: {TEXTS[number]}\n".encode())    # print() is not reentrant
    # end by the signal itself, so that the calling shell notices it
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def install() -> None:
    for number in TEXTS:
        if signal.getsignal(number) != signal.SIG_IGN:         # nohup ignores SIGHUP
            signal.signal(number, _end)
    # the launcher of the build blocks SIGINT while Python itself starts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
