"""Transformations of tensors between checkpoint and model file.

Each one computes the shape of its result without the data, so the header of the file is written
before any weight is read. Shapes are row-major, as in torch; GGUF lists the same dimensions
fastest first.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


Part = tuple[int, Any]                     # the number of a source, and an index into it


@dataclass(frozen=True)
class Transform:
    shape: Callable[[list[Shape]], Shape]
    apply: Callable[[list[np.ndarray]], np.ndarray] | None
    any_rank: bool = False                 # accept dimensions of 1: [D], [1, 1, D], …

    # in place of apply: the result is these parts, one after the other, and is never in memory as
    # a whole
    parts: Callable[[list[Shape]], Iterator[Part]] | None = None


# a Linear's weight [out, in] already has ggml's layout {in, out}
SAME = Transform(lambda s: s[0], lambda a: a[0], parts=lambda s: iter([(0, ...)]))

# parameters that some versions store as [1, 1, D], [H, K] or [1, 1, H, 1]
FLAT = Transform(lambda s: (math.prod(s[0]),), lambda a: a[0].reshape(-1), any_rank=True)


def conv_width(width: int) -> int:
    """Width in the file: a convolution of width 1 gets an older tap of zero, as readers need 2."""
    return max(width, 2)


def conv_taps(x: np.ndarray) -> np.ndarray:
    """Depthwise convolution [C, 1, W] to [C, W], without torch's input-channel dimension."""
    taps = x[:, 0, :]
    return np.pad(taps, ((0, 0), (conv_width(taps.shape[1]) - taps.shape[1], 0)))


CONV = Transform(lambda s: (s[0][0], conv_width(s[0][2])), lambda a: conv_taps(a[0]))

# A = -exp(A_log): the runtime never needs A_log itself
NEG_EXP = Transform(lambda s: s[0], lambda a: -np.exp(a[0]))
NEG_EXP_FLAT = Transform(FLAT.shape, lambda a: -np.exp(a[0].reshape(-1)), any_rank=True)

# x @ W of official RWKV is a Linear with the transposed weight
TRANSPOSE = Transform(lambda s: s[0][::-1], lambda a: np.ascontiguousarray(a[0].T))

# one tensor per Householder factor becomes one factor-major tensor
CONCAT = Transform(lambda s: (sum(x[0] for x in s), *s[0][1:]), lambda a: np.concatenate(a, axis=0))
CONCAT_CONV = Transform(lambda s: (sum(x[0] for x in s), conv_width(s[0][2])),
                        lambda a: conv_taps(np.concatenate(a, axis=0)))


# one matrix per expert becomes one tensor
STACK = Transform(lambda s: (len(s), *s[0]), None,
                  parts=lambda s: ((i, ...) for i in range(len(s))))


def expert_rows(begin: int, end: int) -> Transform:
    """A part of the fused projections of all experts."""
    return Transform(lambda s: (s[0][0], end - begin, s[0][2]), None,
                     parts=lambda s: ((0, (e, slice(begin, end))) for e in range(s[0][0])))


def rows(begin: int, end: int) -> Transform:
    """A part of a fused projection."""
    return Transform(lambda s: (end - begin, *s[0][1:]), lambda a: a[0][begin:end])


def scaled(factor: float | np.ndarray) -> Transform:
    """Multiplied by a constant, or each row by its own [rows, 1]."""
    if np.all(factor == 1):
        return SAME
    return Transform(SAME.shape, lambda a: a[0] * np.asarray(factor, np.float32))


def neighbors(heads: int, n: int) -> Transform:
    """The rows of q or k. RoPE turns the first n rows of each head in the pairs (i, i + n/2), and
    those of the result in the pairs (2i, 2i + 1)."""

    def apply(a):
        x = a[0].reshape(heads, -1, a[0].shape[-1])
        turned = x[:, :n].reshape(heads, 2, n // 2, -1).swapaxes(1, 2).reshape(heads, n, -1)
        return np.concatenate([turned, x[:, n:]], axis=1).reshape(a[0].shape)

    return Transform(SAME.shape, apply)


def reshape(shape: Shape, inner: Transform = SAME) -> Transform:
    return Transform(lambda s: shape, lambda a: inner.apply(a).reshape(shape), any_rank=True)


def repeat_heads(n_heads: int, times: int) -> Transform:
    """Repeats the rows of each head: head h of the result is head h / times of the source."""

    def apply(a):
        x = a[0].reshape(n_heads, -1, a[0].shape[-1])
        return np.repeat(x, times, axis=0).reshape(-1, a[0].shape[-1])

    return Transform(lambda s: (s[0][0] * times, *s[0][1:]), apply)
