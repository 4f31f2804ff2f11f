"""The command line's errors are errors like all others."""

import argparse

from .errors import UsageError


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")
