"""Parts of the command line that all commands share."""

import argparse
import difflib
import itertools
import shlex
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from .describe import WRITERS, Describe
from .errors import EXIT_CODES, UsageError


class Parser(argparse.ArgumentParser):
    """Reports errors the way the rest of the converter does. `commands` are other first words than
    an argument."""

    def __init__(self, description: str, epilog: str = "", commands: Iterable[str] = (),
                 **options):
        self.notes, self.commands = epilog, tuple(commands)
        codes = [f"  {code} {text}" for code, text in EXIT_CODES.items()]
        codes = ["exit status:", *codes, "  128 + N ended by signal N"]
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter,
                         description=textwrap.fill(description, 80),
                         epilog="\n".join([epilog, *codes]).lstrip(), **options)
        self.add_argument("--describe", action=Describe, choices=list(WRITERS),
                          help="print a man page, or completions for a shell")

    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")

    def parse_args(self, args: list[str]) -> argparse.Namespace:
        """A misspelled option is named first: argparse would report what is missing without it."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for word in itertools.takewhile(lambda x: x != "--", args):
            name = word.partition("=")[0]
            if name.startswith("--") and " " not in name \
                    and not any(x.startswith(name) for x in known):
                hint = did_you_mean(name, known)
                if not hint:
                    self.error(f"unknown option {name}")
                raise UsageError(f"unknown option {name}{hint}")
        return super().parse_args(args)


def did_you_mean(word: str, known: Iterable[str], kind: str = "") -> str:
    """The end of an error about an unknown word; "" if no known one is near."""
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {kind}{near[0]}?" if near else ""


def install_command(package: str) -> str:
    """Of a package, for the interpreter that runs us."""
    return shlex.join([sys.executable, "-m", "pip", "install", package])


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
