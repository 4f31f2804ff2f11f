"""The training text of the language models: files, shares, held-out parts and order of windows.

SOURCES lists the files, JSON lines below the data folder; ../README.md describes their content and
licenses. The last 5% of each document (novels) or of the documents (all others) are held out.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch

HELD_OUT = 0.05
BETWEEN = "\n\n"


@dataclass(frozen=True)
class Source:
    name: str
    file: str
    share: float                           # of the windows
    text: Callable[[dict], str]            # of a record
    by_document: bool                      # hold out documents instead of their ends


SOURCES = (
    Source("novels", "slimpajama/gutenberg_books.standin.jsonl", 0.35,
           lambda r: r["text"], False),
    Source("gsm8k", "math-hard/gsm8k_train4000.standin.jsonl", 0.25,
           lambda r: f"Problem: {r['question']}, Solution: {r['answer']}", True),
    Source("python", "codeparrot/debian_python.standin.jsonl", 0.35,
           lambda r: r["content"], True),
    Source("triviaqa", "triviaqa/triviaqa_nocontext_3000.jsonl", 0.05,
           lambda r: f"Question: {r['question']}, Answer: {r['answer']['value']}", True),
)


def split(source: Source, folder: Path) -> tuple[bytes, bytes]:
    """(train, held out)"""
    # not splitlines(): strings contain U+2028
    lines = (folder / source.file).read_bytes().split(b"\n")
    texts = [source.text(json.loads(line)) for line in lines if line]
    if source.by_document:
        cut = round(len(texts) * (1 - HELD_OUT))
        train, held = texts[:cut], texts[cut:]
    else:
        cuts = [round(len(t) * (1 - HELD_OUT)) for t in texts]
        train = [t[:c] for t, c in zip(texts, cuts)]
        held = [t[c:] for t, c in zip(texts, cuts)]
    return BETWEEN.join(train).encode(), BETWEEN.join(held).encode()


def as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


class Corpus:
    def __init__(self, folder: Path):
        pairs = {s.name: split(s, folder) for s in SOURCES}
        self.train = [as_tensor(a) for a, _ in pairs.values()]
        self.held_out = {name: as_tensor(b) for name, (_, b) in pairs.items()}
        self.shares = torch.tensor([s.share for s in SOURCES])

    def batch(self, step: int, rows: int, length: int) -> torch.Tensor:
        """Windows [rows, length + 1] of a step, the same for every model."""
        g = torch.Generator().manual_seed(step)
        picks = torch.multinomial(self.shares, rows, replacement=True, generator=g)
        windows = []
        for i in picks.tolist():
            text = self.train[i]
            at = torch.randint(len(text) - length, (), generator=g)
            windows.append(text[at : at + length + 1])
        return torch.stack(windows)
