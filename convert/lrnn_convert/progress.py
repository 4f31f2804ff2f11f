"""A line on the terminal that is redrawn in place. Silent elsewhere."""

import os
import sys

BAR = 32                                   # columns


class ProgressLine:
    """Is erased at the end of `with`."""

    def __init__(self, quiet: bool = False) -> None:
        self.on = sys.stderr.isatty() and not quiet
        self.drawn = 0                     # columns

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_) -> None:
        self.erase()

    def columns(self) -> int:
        """That fit the terminal now. A line that fills it would move the cursor to the next one."""
        return max((os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1, 0)

    def draw(self, text: str) -> None:
        if not self.on:
            return
        text = text[: self.columns()]
        blank = min(self.drawn, self.columns())
        print(f"\r{text:<{blank}}", end="", file=sys.stderr, flush=True)
        self.drawn = len(text)

    def draw_share(self, done: int, total: int, name: str) -> None:
        """A bar, a percentage and a name."""
        if self.on:
            width = min(BAR, self.columns() // 3)
            bar = "#" * (width * done // total)
            self.draw(f"[{bar:<{width}}] {100 * done // total:3d} %  {name}")

    def erase(self) -> None:
        if self.drawn:
            self.draw("")
            print("\r", end="", file=sys.stderr, flush=True)
