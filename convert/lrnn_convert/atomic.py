"""Output files: complete or absent, and never in place of an input, a device, a pipe or a folder.
"""

import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from . import signals
from .errors import OutputError, UsageError


GGUF_MAGIC = b"GGUF"


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuses an output before any work is done for it. `inputs` need not exist."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"-o {path}: the folder {folder} does not exist")
    _check_kind(path)
    _check_inputs(path, inputs)
    _check_link(path)


def _check_inputs(path: Path, inputs: Iterable[Path]) -> None:
    """An output must not replace an input, also through symbolic and hard links."""
    try:
        out = path.stat()
        with path.open("rb") as f:
            if f.read(len(GGUF_MAGIC)) == GGUF_MAGIC:
                return                     # an earlier result; the converter reads no GGUF files
    except FileNotFoundError:
        return
    except OSError:
        pass                               # a file that cannot be read can still be replaced
    for file in inputs:
        try:
            same = os.path.samestat(out, file.stat())
        except OSError:
            continue
        if same:
            raise UsageError(f"the output file {path} is also an input ({file}); expected another "
                             "file")


def _check_kind(path: Path) -> None:
    """Renaming a file to `path` would replace /dev/null by a regular file. Links are followed."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return                             # a new file; other problems show when it is written
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise OutputError(f"{path}: found {what}, expected a regular file or none")


def _check_link(path: Path) -> None:
    """Renaming would also replace the link /dev/stdout; its target is a regular file if standard
    output is."""
    if path.is_symlink():
        raise OutputError(f"{path}: found a symbolic link, expected a regular file or none")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a file under a temporary name. It replaces `path` on success and is deleted on
    failure."""
    _check_kind(path)
    _check_link(path)
    _remove_stale(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with _create(temporary) as file:
            signals.temporary_files.add(str(temporary))
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not _is_at(file, temporary):
                    raise OutputError(f"{temporary}: replaced by another process")
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    if _is_at(file, temporary):
                        temporary.unlink()
                raise
            finally:
                signals.temporary_files.discard(str(temporary))
    except OSError as e:
        raise OutputError(f"{path}: cannot be written: {e.strerror or e}") from None


def _create(path: Path) -> BinaryIO:
    """Creates and locks a file that does not exist; a link of this name is not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o666), "wb")
    with suppress(OSError):                # not every file system has locks
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _remove_stale(path: Path) -> None:
    """Deletes temporary files of this output that killed processes left, as atomic-file.c does."""
    pattern = re.compile(re.escape(path.name) + r"\.([1-9]\d{0,9})\.tmp", re.ASCII)
    with suppress(OSError), os.scandir(path.absolute().parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match and _is_dead(int(match[1])):
                with suppress(OSError):
                    _remove_unlocked(entry.path)


def _remove_unlocked(name: str) -> None:
    """Deletes a file of ours that nobody has locked. The lock matters where numbers do not identify
    a process: on a file system that containers or machines share."""
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
    finally:
        os.close(fd)


def _is_dead(pid: int) -> bool:
    if pid == os.getpid():
        return True                        # an earlier process with our number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass                               # a process of somebody else, or not a number of any
    return False
