"""Permutations of 0 … n−1 as tuples of images, and the groups of the word problems.

Elements of S_n are numbered in lexicographic order of their images, so 0 is the identity. The
answer after x_1 … x_t is y_t = x_1 ∘ x_2 ∘ … ∘ x_t: the newest letter acts first. As an array h
with h_0[i] = i:  h_t[i] = h_{t−1}[x_t(i)].
"""

from itertools import permutations

Permutation = tuple[int, ...]


def symmetric(n: int) -> list[Permutation]:
    return list(permutations(range(n)))


def swaps(p: Permutation) -> list[tuple[int, int]]:
    """Swaps of positions that turn the array h into h[p(0)], h[p(1)], …; the minimum, which is n
    minus the number of cycles."""
    array, found = list(range(len(p))), []
    for i, wanted in enumerate(p):
        j = array.index(wanted)
        if i != j:
            array[i], array[j] = array[j], array[i]
            found.append((i, j))
    return found


def alternating(n: int) -> list[Permutation]:
    """The even permutations, in the same order."""
    return [p for p in symmetric(n) if len(swaps(p)) % 2 == 0]


def inverse(p: Permutation) -> Permutation:
    return tuple(p.index(i) for i in range(len(p)))


def symbol(p: Permutation) -> str:
    """One-line notation, counted from one: the identity of S_5 is 12345."""
    return "".join(str(i + 1) for i in p)
