"""State-tracking tasks: symbols in, the true answer at every position.

Every sequence begins with <s> (id 0), which has no answer; then one letter a token. The answer at a position is a symbol too: what the
model must give as the most likely next token there, over the whole vocabulary. (Letters are random: nothing else could be predicted.)

    name         letters, in the order of their ids          answer after x_1 … x_t
    parity       0 1                                         x_1 + … + x_t mod 2
    mod:M        0 … M-1                                     x_1 + … + x_t mod M
    mod-arith:5  + - * = 0 1 2 3 4                           value mod 5, * before + and -, of the expression up to the last digit
    S3           123 132 213 231 312 321                     x_1 ∘ x_2 ∘ … ∘ x_t: the newest letter acts first

An expression has digits at odd and operators at even positions (counted from 1) and ends with =. At an operator or = the answer is the
value of what stands before it. Permutations are written by their images of 1 2 3; they are numbered in lexicographic order.
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Callable

import numpy as np
import torch

BOS = "<s>"
NO_ANSWER = -100                           # what cross_entropy ignores


@dataclass(frozen=True)
class Task:
    name: str
    symbols: list[str]
    n_answers: int
    make: Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]   # rows, letters -> ids, answers

    def batch(self, rng: np.random.Generator, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """ids and answers [rows, 1 + length], <s> in front."""
        ids, answers = self.make(rng, rows, length)
        first = np.zeros((rows, 1), dtype=np.int64)
        return torch.from_numpy(np.hstack([first, ids])), torch.from_numpy(np.hstack([first + NO_ANSWER, answers]))

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
        ids, values = np.empty((rows, length), dtype=np.int64), np.empty((rows, length), dtype=np.int64)
        total, term, op = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64), np.full(rows, plus)
        for t in range(length):
            if t % 2 == 0:
                x = rng.integers(0, m, rows)
                total = np.where(op == times, total, total + term) % m
                term = np.choose(op - 1, [x, -x, term * x]) % m
                ids[:, t] = zero + x
            else:
                op = rng.integers(plus, times + 1, rows) if t < length - 1 else np.full(rows, equals)
                ids[:, t] = op
            values[:, t] = zero + (total + term) % m
        return ids, values

    return Task(name, [BOS, "+", "-", "*", "=", *map(str, range(m))], m, make)


def symmetric_group(name: str, n: int) -> Task:
    elements = list(permutations(range(n)))
    number = {p: i for i, p in enumerate(elements)}
    # table[a, b]: a ∘ b, first b then a
    table = np.array([[number[tuple(a[b[i]] for i in range(n))] for b in elements] for a in elements])

    def make(rng, rows, length):
        x = rng.integers(0, len(elements), (rows, length))
        y, state = np.empty_like(x), np.zeros(rows, dtype=np.int64)
        for t in range(length):
            state = table[state, x[:, t]]
            y[:, t] = state
        return 1 + x, 1 + y

    return Task(name, [BOS, *("".join(str(i + 1) for i in p) for p in elements)], len(elements), make)


TASKS = {t.name: t for t in (
    modular_addition("parity", 2),
    modular_addition("mod:3", 3),
    modular_addition("mod:5", 5),
    modular_arithmetic("mod-arith:5", 5),
    symmetric_group("S3", 3),
)}
