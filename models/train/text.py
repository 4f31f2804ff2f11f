"""The training texts of the language models: files, held-out parts and order of windows.

../README.md says how to get the files, and describes their content and licenses. A corpus gives the
windows of a step, the same for every model, and held-out samples.
"""

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BETWEEN = "\n\n"
END = "<|endoftext|>"


@dataclass(frozen=True)
class Sample:
    """Held-out text; a model predicts all tokens but the first, from an empty state."""

    ids: torch.Tensor
    n_bytes: int                           # that the predicted tokens stand for


def novels(folder: Path) -> list[str]:
    """Books of Project Gutenberg, without its header and license."""
    found = []
    for path in sorted((folder / "novels").glob("*.txt")):
        text = path.read_text(encoding="utf-8-sig")
        parts = re.split(r"^\*\*\* ?(?:START|END) OF .*$", text, flags=re.M)
        if len(parts) != 3:
            raise SystemExit(f"{path}: found {len(parts) - 1} lines that begin with *** START OF "
                             "or *** END OF; expected one of each")
        found.append(parts[1].strip())
    return found


def records(path: Path, n: int) -> list[dict]:
    """The first n records of a file of JSON lines."""
    with path.open("rb") as f:             # not splitlines(): strings contain U+2028
        return [json.loads(line) for line, _ in zip(f, range(n))]


def problems(folder: Path) -> list[str]:
    return [f"Problem: {r['question']}, Solution: {r['answer']}"
            for r in records(folder / "gsm8k.jsonl", 4000)]


def questions(folder: Path) -> list[str]:
    return [f"Question: {r['question']}, Answer: {r['answer']['value']}"
            for r in records(folder / "triviaqa.jsonl", 3000)]


def python(folder: Path) -> list[str]:
    """The Python files of packages, in the order of their hashes, at most 420 kB of each package,
    by the rules of CodeParrot: 1 kB to 1 MB, lines of at most 1,000 characters, 100 on average, a
    quarter letters and digits."""
    top = folder / "python"
    texts = {}                             # by hash: no text twice
    for path in sorted(top.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = [len(line) for line in text.split("\n")]
        if (1024 <= len(text.encode()) < 1 << 20 and max(lines) <= 1000
                and sum(lines) <= 100 * len(lines)
                and sum(c.isalnum() for c in text) >= len(text) / 4):
            package = path.relative_to(top).parts[0]
            texts.setdefault(hashlib.sha256(text.encode()).digest(), (package, text))
    used, found = Counter(), []
    for _, (package, text) in sorted(texts.items()):
        if used[package] + len(text.encode()) <= 420_000:
            used[package] += len(text.encode())
            found.append(text)
    return found


# the texts of the documents, and whether to hold out documents instead of their ends
SOURCES: dict[str, tuple[Callable[[Path], list[str]], bool]] = {
    "novels":   (novels, False),
    "gsm8k":    (problems, True),
    "python":   (python, True),
    "triviaqa": (questions, True),
}


def split(name: str, folder: Path, held_out: float) -> tuple[bytes, bytes]:
    """(train, held out): a last part of the documents, or of each"""
    read, by_document = SOURCES[name]
    texts = read(folder)
    if by_document:
        cut = round(len(texts) * (1 - held_out))
        train, held = texts[:cut], texts[cut:]
    else:
        cuts = [round(len(t) * (1 - held_out)) for t in texts]
        train = [t[:c] for t, c in zip(texts, cuts)]
        held = [t[c:] for t, c in zip(texts, cuts)]
    return BETWEEN.join(train).encode(), BETWEEN.join(held).encode()


def as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


class Bytes:
    """Windows at random places of sources, one token per byte."""

    vocab, end = 256, None

    def __init__(self, folder: Path, held_out: float, **shares: float):
        pairs = {name: split(name, folder, held_out) for name in shares}
        self.train = [as_tensor(a) for a, _ in pairs.values()]
        self.held = {name: as_tensor(b) for name, (_, b) in pairs.items()}
        self.shares = torch.tensor(list(shares.values()))

    def batch(self, step: int, rows: int, length: int) -> torch.Tensor:
        """Windows [rows, length + 1] of a step."""
        g = torch.Generator().manual_seed(step)
        picks = torch.multinomial(self.shares, rows, replacement=True, generator=g)
        windows = []
        for i in picks.tolist():
            text = self.train[i]
            at = torch.randint(len(text) - length, (), generator=g)
            windows.append(text[at : at + length + 1])
        return torch.stack(windows)

    def held_out(self, length: int, whole: bool) -> dict[str, list[Sample]]:
        """8 windows of each source, or 64, spaced evenly in the text."""
        found = {}
        for name, text in self.held.items():
            places = torch.linspace(0, len(text) - length - 1, 64 if whole else 8).long()
            found[name] = [Sample(text[at : at + length + 1], length) for at in places.tolist()]
        return found

    def save_tokenizer(self, folder: Path) -> None:
        """None: an option of lrnn-convert."""


class Stories:
    """Windows that begin with a story, in our own byte-level BPE. The text is END, a story, END, a
    story, …, END. The last 500 stories are held out."""

    vocab, end = 2048, 0
    n_stories, held_stories = 12601, 500

    def __init__(self, folder: Path):
        text = (folder / "stories.txt").read_text(encoding="utf-8")
        stories = [s.strip() for s in text.split(END) if s.strip()][: self.n_stories]
        stories, self.held = stories[: -self.held_stories], stories[-self.held_stories :]
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.train_from_iterator(stories, trainers.BpeTrainer(
            vocab_size=self.vocab, special_tokens=[END], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        text, self.starts = [], []
        for story in self.tokenizer.encode_batch(stories):
            self.starts.append(len(text))
            text += [self.end, *story.ids]
        self.text = torch.tensor([*text, self.end])

    def batch(self, step: int, rows: int, length: int) -> torch.Tensor:
        """Windows [rows, length + 1] of a step. Every story is the first of a window once before
        any is so again."""
        starts = [at for at in self.starts if at + length < len(self.text)]
        windows = []
        for i in range(step * rows, (step + 1) * rows):
            turn, i = divmod(i, len(starts))
            order = torch.randperm(len(starts), generator=torch.Generator().manual_seed(turn))
            at = starts[order[i]]
            windows.append(self.text[at : at + length + 1])
        return torch.stack(windows)

    def held_out(self, length: int, whole: bool) -> dict[str, list[Sample]]:
        """The first 50 held-out stories, or all of them, cut after `length` tokens."""
        samples = []
        for story in self.tokenizer.encode_batch(self.held[: None if whole else 50]):
            ids = [self.end, *story.ids, self.end][: length + 1]
            n_bytes = len(self.tokenizer.decode(ids).encode())
            samples.append(Sample(torch.tensor(ids), n_bytes))
        return {"stories": samples}

    def save_tokenizer(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / "tokenizer.json"))
        config = dict(bos_token=END, eos_token=END, add_bos_token=True)
        (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
