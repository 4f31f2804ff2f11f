"""What may happen to a tensor between checkpoint and file.

Each transformation knows its result's shape without the data, so that the file's header is written before the first
weight is read. Shapes are row-major, as in torch; GGUF lists the same bytes fastest first.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class How:
    shape: Callable[[list[Shape]], Shape]
    apply: Callable[[list[np.ndarray]], np.ndarray]
    vector: bool = False                   # [D], [1, 1, D] and the like are the same thing


def size_of(shape: Shape) -> int:
    n = 1
    for dim in shape:
        n *= dim
    return n


# a Linear's weight [out, in] is already ggml's {in, out}
SAME = How(lambda s: s[0], lambda a: a[0])

# parameters that some versions store as [1, 1, D], [H, K] or [1, 1, H, 1]
FLAT = How(lambda s: (size_of(s[0]),), lambda a: a[0].reshape(-1), vector=True)


def conv_width(width: int) -> int:
    """Readers expect a past: a convolution of width 1 gets an older tap of zero."""
    return max(width, 2)


def conv_taps(x: np.ndarray) -> np.ndarray:
    """Depthwise convolution [C, 1, W] to [C, W]: torch keeps the input-channel dimension, which is 1."""
    taps = x[:, 0, :]
    return np.pad(taps, ((0, 0), (conv_width(taps.shape[1]) - taps.shape[1], 0)))


CONV = How(lambda s: (s[0][0], conv_width(s[0][2])), lambda a: conv_taps(a[0]))

# A = -exp(A_log): the runtime never needs A_log itself
NEG_EXP = How(lambda s: s[0], lambda a: -np.exp(a[0]))
NEG_EXP_FLAT = How(lambda s: (size_of(s[0]),), lambda a: -np.exp(a[0].reshape(-1)), vector=True)

# x @ W of official RWKV is a Linear with the transposed weight
TRANSPOSE = How(lambda s: s[0][::-1], lambda a: np.ascontiguousarray(a[0].T))

# one tensor a Householder factor becomes one factor-major tensor
CONCAT = How(lambda s: (sum(x[0] for x in s), *s[0][1:]), lambda a: np.concatenate(a, axis=0))
CONCAT_CONV = How(lambda s: (sum(x[0] for x in s), conv_width(s[0][2])), lambda a: conv_taps(np.concatenate(a, axis=0)))


def rows(begin: int, end: int) -> How:
    """A part of a fused projection."""
    return How(lambda s: (end - begin, *s[0][1:]), lambda a: a[0][begin:end])


def reshape(shape: Shape, inner: How = SAME) -> How:
    return How(lambda s: shape, lambda a: inner.apply(a).reshape(shape), vector=True)


def repeat_heads(n_heads: int, times: int) -> How:
    """Rows of n_heads heads, each head repeated: head h of the result is head h / times of the source."""

    def apply(a):
        x = a[0].reshape(n_heads, -1, a[0].shape[-1])
        return np.repeat(x, times, axis=0).reshape(-1, a[0].shape[-1])

    return How(lambda s: (s[0][0] * times, *s[0][1:]), apply)
