"""Runs the program of the wheel that has the name of this command."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).resolve().parent / "bin" / Path(sys.argv[0]).name
    os.execv(program, [str(program), *sys.argv[1:]])
