"""State-tracking tasks, with the true answer at every position. ../README.md defines them.

Every sequence begins with <s> (id 0), which has no answer, followed by one letter per token. The
answer at a position is a symbol: the token that the model must rate most likely there among the
whole vocabulary. Letters are random, so nothing else could be predicted.
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Callable

import numpy as np
import torch

BOS = "<s>"
NO_ANSWER = -100                           # cross_entropy ignores it


@dataclass(frozen=True)
class Task:
    name: str
    symbols: list[str]
    n_answers: int
    # generator, rows, letters -> ids, answers
    make: Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]

    def batch(self, rng: np.random.Generator, rows: int,
              length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """ids and answers [rows, 1 + length], starting with <s>."""
        ids, answers = self.make(rng, rows, length)
        first = np.zeros((rows, 1), dtype=np.int64)
        return (torch.from_numpy(np.hstack([first, ids])),
                torch.from_numpy(np.hstack([first + NO_ANSWER, answers])))

    def scaled(self, accuracy: float) -> float:
        """0 is chance, 1 is perfect."""
        chance = 1 / self.n_answers
        return (accuracy - chance) / (1 - chance)


def modular_addition(name: str, m: int) -> Task:
    def make(rng, rows, length):
        x = rng.integers(0, m, (rows, length))
        return 1 + x, 1 + x.cumsum(axis=1) % m

    return Task(name, [BOS, *map(str, range(m))], m, make)


def modular_arithmetic(name: str, m: int) -> Task:
    plus, minus, times, equals, zero = 1, 2, 3, 4, 5

    def make(rng, rows, length):
        ids, values = (np.empty((rows, length), dtype=np.int64) for _ in range(2))
        total, term = (np.zeros(rows, dtype=np.int64) for _ in range(2))
        op = np.full(rows, plus)
        for t in range(length):
            if t % 2 == 0:
                x = rng.integers(0, m, rows)
                total = np.where(op == times, total, total + term) % m
                term = np.choose(op - 1, [x, -x, term * x]) % m
                ids[:, t] = zero + x
            else:
                last = t == length - 1
                op = np.full(rows, equals) if last else rng.integers(plus, times + 1, rows)
                ids[:, t] = op
            values[:, t] = zero + (total + term) % m
        return ids, values

    return Task(name, [BOS, "+", "-", "*", "=", *map(str, range(m))], m, make)


def symmetric_group(name: str, n: int) -> Task:
    elements = list(permutations(range(n)))
    number = {p: i for i, p in enumerate(elements)}
    # table[a, b]: a ∘ b, first b then a
    table = np.array([[number[tuple(a[b[i]] for i in range(n))] for b in elements]
                      for a in elements])

    def make(rng, rows, length):
        x = rng.integers(0, len(elements), (rows, length))
        y, state = np.empty_like(x), np.zeros(rows, dtype=np.int64)
        for t in range(length):
            state = table[state, x[:, t]]
            y[:, t] = state
        return 1 + x, 1 + y

    symbols = ["".join(str(i + 1) for i in p) for p in elements]
    return Task(name, [BOS, *symbols], len(elements), make)


TASKS = {t.name: t for t in (
    modular_addition("parity", 2),
    modular_addition("mod:3", 3),
    modular_addition("mod:5", 5),
    modular_arithmetic("mod-arith:5", 5),
    symmetric_group("S3", 3),
)}
