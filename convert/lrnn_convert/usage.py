"""Parts of the command line that all commands share."""

import argparse
from pathlib import Path

from .errors import UsageError


class Parser(argparse.ArgumentParser):
    """Reports errors the way the rest of the converter does."""

    def __init__(self, **options):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")


def check_output(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"-o {path}: the folder {folder} does not exist")
