"""Output files: complete or absent, and never in place of an input, a device, a pipe or a folder.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DataError, OutputError, UsageError


GGUF_MAGIC = b"GGUF"


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuses an output before any work is done for it. `inputs` need not exist."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"-o {path}: the folder {folder} does not exist")
    _check_kind(path)
    _check_inputs(path, inputs)


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
