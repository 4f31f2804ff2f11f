"""Few conjunctions for a table: each row (x_1, …, x_d) -> value is covered by exactly one cube."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cube:
    """Rows with x_i in sets[i] for all i. None: any x_i."""

    sets: tuple[frozenset[int] | None, ...]
    value: int


def cubes(table: dict[tuple[int, ...], int]) -> list[Cube]:
    """Disjoint on the rows of the table. What they do elsewhere is free, so every cube is made as
    large as the other rows allow, one coordinate after another."""
    keys = np.array(list(table), np.int64)             # [rows, d]
    values = np.array(list(table.values()), np.int64)  # [rows]
    free = np.ones(len(keys), bool)
    known = [np.unique(keys[:, i]) for i in range(keys.shape[1])]
    found = []
    for row in range(len(keys)):
        if not free[row]:
            continue
        taken = ~free | (values != values[row])        # rows that the cube must not contain
        inside = [keys[:, i] == keys[row, i] for i in range(keys.shape[1])]
        sets: list[frozenset[int] | None] = [None] * keys.shape[1]
        for i in reversed(range(keys.shape[1])):
            others = np.logical_and.reduce([m for j, m in enumerate(inside) if j != i])
            allowed = np.setdiff1d(known[i], keys[taken & others, i])
            inside[i] = np.isin(keys[:, i], allowed)
            sets[i] = None if len(allowed) == len(known[i]) else frozenset(allowed.tolist())
        free &= ~np.logical_and.reduce(inside)
        found.append(Cube(tuple(sets), int(values[row])))
    return found
