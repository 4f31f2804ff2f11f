"""State-tracking tasks, with the true answer at every position. ../README.md defines them.

Every sequence begins with <s> (id 0), which has no answer, followed by one letter per token. The
answer at a position is a symbol: the token that the model must rate most likely there among the
whole vocabulary. Letters are random, so nothing else could be predicted.
"""

from dataclasses import dataclass
from itertools import permutations
from typing import Callable

import numpy as np

BOS = "<s>"
NO_ANSWER = -100                           # cross_entropy ignores it


@dataclass(frozen=True)
class Task:
    name: str
    symbols: list[str]
    n_answers: int
    # number of values of each part of the automaton's state
    parts: tuple[int, ...]
    # generator, rows, letters -> ids, answers [rows, letters]; parts of the state
    # [len(parts), rows, letters]
    make: Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
    # whether a sequence is an expression that ends with =; the paper asks for its value only there
    is_expression: bool = False
    # number of last answers that depend on the whole sequence
    tail: int = 100

    def batch(self, rng: np.random.Generator, rows: int,
              length: int) -> tuple[np.ndarray, np.ndarray]:
        """ids and answers [rows, 1 + length], starting with <s>."""
        return self.batch_with_states(rng, rows, length)[:2]

    def batch_with_states(self, rng: np.random.Generator, rows: int, length: int
                          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """batch, and the parts of the state [len(parts), rows, 1 + length]."""
        ids, answers, states = self.make(rng, rows, length)
        first = np.zeros((rows, 1), dtype=np.int64)
        none = np.full((len(self.parts), rows, 1), NO_ANSWER)
        return (np.hstack([first, ids]), np.hstack([first + NO_ANSWER, answers]),
                np.concatenate([none, states], axis=2))

    def scaled(self, accuracy: float) -> float:
        """0 is chance, 1 is perfect."""
        chance = 1 / self.n_answers
        return (accuracy - chance) / (1 - chance)


def modular_addition(name: str, m: int) -> Task:
    def make(rng, rows, length):
        x = rng.integers(0, m, (rows, length))
        y = x.cumsum(axis=1) % m
        return 1 + x, 1 + y, y[None]

    return Task(name, [BOS, *map(str, range(m))], m, (m,), make)


def modular_arithmetic(name: str, m: int) -> Task:
    """Parts of the state: the sum of the finished terms, the term, the last operator. An operator
    leaves sum and term as they are; the next digit finishes the term."""
    plus, minus, times, equals, zero = 1, 2, 3, 4, 5

    def make(rng, rows, length):
        ids, values = (np.empty((rows, length), dtype=np.int64) for _ in range(2))
        states = np.empty((3, rows, length), dtype=np.int64)
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
            states[:, :, t] = total, term, op - plus
        return ids, values, states

    return Task(name, [BOS, "+", "-", "*", "=", *map(str, range(m))], m, (m, m, 4), make,
                is_expression=True)


def modular_brackets(name: str, m: int) -> Task:
    """An expression of n letters, then =.
        n = 1: d;  n = 2: - d;  n = 3: ( d );  n = 4: ( - d )
        n > 4: ( a o b ), a an expression of 1 to n - 4 letters, o one of + - *
    The answer at ) is the value of this pair of brackets, at = of the whole. No other letter has
    an answer. No parts of the state are defined."""
    plus, minus, times, opening, closing, equals, zero = range(1, 8)

    def expression(draw, n, ids, values):
        """Appends n letters and returns the value; draw(a, b): a random integer of a to b."""
        def put(letter, value=NO_ANSWER):
            ids.append(letter)
            values.append(value)

        if n > 2:
            put(opening)
        if n > 4:
            left = draw(1, n - 4)
            x = expression(draw, left, ids, values)
            op = draw(plus, times)
            put(op)
            y = expression(draw, n - 3 - left, ids, values)
            x = (x + y, x - y, x * y)[op - plus] % m
        else:
            x = draw(0, m - 1)
            if n % 2 == 0:
                put(minus)
            put(zero + x)
            x = x if n % 2 else -x % m
        if n > 2:
            put(closing, zero + x)
        return x

    def make(rng, rows, length):
        draws = iter(())

        def draw(a, b):
            nonlocal draws
            for x in draws:
                return a + int(x * (b - a + 1))
            draws = iter(rng.random(4096).tolist())
            return draw(a, b)

        ids, answers = [], []
        for _ in range(rows):
            row, values = [], []
            x = expression(draw, length - 1, row, values)
            ids.append([*row, equals])
            answers.append([*values, zero + x])
        return np.array(ids), np.array(answers), np.empty((0, rows, length), dtype=np.int64)

    return Task(name, [BOS, "+", "-", "*", "(", ")", "=", *map(str, range(m))], m, (), make,
                is_expression=True, tail=1)


def symmetric_group(name: str, n: int, most: int | None = None, tokens: int = 1) -> Task:
    """most: letters that move at most so many points. tokens: per letter, the others are _; the
    answer comes tokens - 1 positions late. Parts of the state: the image of each point."""
    elements = list(permutations(range(n)))
    letters = np.array([i for i, p in enumerate(elements)
                        if most is None or sum(a != b for a, b in enumerate(p)) <= most])
    number = {p: i for i, p in enumerate(elements)}
    # table[a, b]: a ∘ b, first b then a
    table = np.array([[number[tuple(a[b[i]] for i in range(n))] for b in elements]
                      for a in elements])

    def make(rng, rows, length):
        late = tokens - 1
        x = np.full((rows, length), len(elements))
        x[:, ::tokens] = rng.choice(letters, (rows, len(range(0, length, tokens))))
        y, state = np.empty_like(x), np.zeros(rows, dtype=np.int64)
        for t in range(length):
            if t >= late and (t - late) % tokens == 0:
                state = table[state, x[:, t - late]]
            y[:, t] = state
        return 1 + x, 1 + y, images[:, y]

    images = np.array(elements).T
    symbols = ["".join(str(i + 1) for i in p) for p in elements]
    return Task(name, [BOS, *symbols, *["_"] * (tokens > 1)], len(elements), (n,) * n, make)


TASKS = {t.name: t for t in (
    modular_addition("parity", 2),
    modular_addition("mod:3", 3),
    modular_addition("mod:5", 5),
    modular_addition("mod:60", 60),
    modular_arithmetic("mod-arith:5", 5),
    modular_brackets("mod-brackets:5", 5),
    symmetric_group("S3", 3),
    symmetric_group("S5", 5),
    symmetric_group("S5:swaps", 5, most=2),
    symmetric_group("S5:3-cycles", 5, most=3),
    symmetric_group("S5:4-tokens", 5, tokens=4),
)}
