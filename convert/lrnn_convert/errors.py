"""Errors shown to the user: one sentence with the file, key or tensor, the value found and the
value expected."""

from typing import Any

SHOWN = 120                                # characters of a value in a message


def shown(value: Any) -> str:
    """A value of a file as text, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


# those of examples/common/exit-code.c that the converter has
EXIT_CODES = {
    0: "done",
    1: "system error (memory, disk, device)",
    2: "usage error",
    3: "bad data",
    4: "bad model",
    6: "non-finite or wrong results",
}


class ConvertError(Exception):
    exit_code = 1


class OutputError(ConvertError):
    """The output cannot be written."""


class HubError(ConvertError):
    """The hub cannot be reached, or refuses."""


class UsageError(ConvertError):
    """The command line is wrong, or a package that it needs is not installed."""

    exit_code = 2


class DataError(ConvertError):
    """A file is damaged, incomplete or not in the format that its name promises."""

    exit_code = 3


class ModelError(ConvertError):
    """The files are sound, but the model in them cannot be converted."""

    exit_code = 4


class VerifyError(ConvertError):
    """The model file computes something else than the library of the checkpoint."""

    exit_code = 6
