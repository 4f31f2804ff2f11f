"""Parts of the command line that all commands share."""

import argparse
import textwrap
from pathlib import Path

from .errors import EXIT_CODES, UsageError


class Parser(argparse.ArgumentParser):
    """Reports errors the way the rest of the converter does."""

    def __init__(self, description: str, epilog: str = "", **options):
        codes = [f"  {code} {text}" for code, text in EXIT_CODES.items()]
        codes = ["exit status:", *codes, "  128 + N ended by signal N"]
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter,
                         description=textwrap.fill(description, 80),
                         epilog="\n".join([epilog, *codes]).lstrip(), **options)

    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")


def count(n: int, noun: str) -> str:
    """1 level, 2 levels."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def output_path(text: str) -> Path:
    """The type of -o. A model file is written out of order, so standard output will not do."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    if text == "-":
        raise argparse.ArgumentTypeError("a model file cannot be written to standard output")
    return Path(text)


def output_path_or_stdout(text: str) -> Path | None:
    """None for standard output."""
    return None if text == "-" else output_path(text)
