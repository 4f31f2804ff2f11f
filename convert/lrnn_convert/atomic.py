"""Output files that are complete or absent."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path. It replaces `path` on success and is deleted on failure."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    except OSError as e:
        raise DataError(f"{part}: {e.strerror or e}") from None
    finally:
        part.unlink(missing_ok=True)
