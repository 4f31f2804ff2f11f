"""Errors that a user sees: one sentence that names the file, key or tensor, what was found, what was expected."""


class ConvertError(Exception):
    exit_code = 1


class UsageError(ConvertError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class DataError(ConvertError):
    """A file is damaged, incomplete or not what its name says."""

    exit_code = 3


class ModelError(ConvertError):
    """The files are sound, but the model in them is not one that can be converted."""

    exit_code = 4
