"""Output files: complete or absent, and never in place of a device, a pipe or a folder."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DataError, OutputError, UsageError


def check_output(path: Path) -> None:
    """Refuses an output before any work is done for it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"-o {path}: the folder {folder} does not exist")
    _check_kind(path)


def _check_kind(path: Path) -> None:
    """Renaming a file to `path` would replace /dev/null by a regular file. Links are followed."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return                             # a new file; other problems show when it is written
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise OutputError(f"{path}: found {what}, expected a regular file or none")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path. It replaces `path` on success and is deleted on failure."""
    _check_kind(path)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    except OSError as e:
        raise DataError(f"{part}: {e.strerror or e}") from None
    finally:
        part.unlink(missing_ok=True)
