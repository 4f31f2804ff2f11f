"""An automaton as a cascade of permutation-reset machines, called levels.

A chain of sets  Q = X_0 ⊃ X_1 ⊃ … ⊃ X_L = {q}  surrounds the true state q. Level i has a register
of m points and selects X_i among the *tiles* of X_{i−1}: subsets that cover it. A letter a takes
the true state from X_{i−1} to X'_{i−1} ⊇ a(X_{i−1}). There are two cases:

    a(X_{i−1}) = X'_{i−1}     a takes tiles to tiles: the register is permuted
    otherwise                 a tile of X'_{i−1} contains a(X_{i−1}): the register is reset to it

Either way X'_i ⊇ a(X_i), so the chain can continue. What happens to the register depends on the
letter, X_{i−1} before it and X_{i−1} after it, and on nothing else.

Two choices of tiles are known:

    holonomy    the largest proper subsets among the images a_1 a_2 … (Q) and the single states.
                Sets that are images of each other share a register through a fixed bijection.
                Levels: the longest chain of such classes (Egri-Nagy and Nehaniv, arXiv 1508.06345)
    subsets     all subsets with one element less: n − 1 levels (after Zeiger and Ginzburg)

Sets of states are bit masks.
"""

from dataclasses import dataclass
from typing import Callable

from ..usage import count
from .dfa import Dfa
from .permutations import Permutation, swaps
from .regex import members

MAX_SETS = 1024             # images; contexts of a level
COUNT_SETS = 1 << 16        # images that are counted for an error
MAX_MOVES = 40000           # combinations that a level distinguishes


class TooLarge(Exception):
    """The cascade exceeds a limit; the text says which."""


# what a letter does to a register: a permutation of its points, p -> action[p], or a reset
Action = Permutation | int


@dataclass
class Level:
    points: int
    contexts: list[int]                    # X_{i−1}
    tiles: dict[int, list[int]]            # context -> tile of each point; absent: X_i = X_{i−1}
    moves: dict[tuple[int, int, int], Action]   # (letter, context before, context after)
    start: int                             # point of the start state; 0 if it has none

    @property
    def permutes(self) -> bool:
        """Some action moves points; otherwise the register is held or reset."""
        hold = tuple(range(self.points))
        return any(isinstance(a, tuple) and a != hold for a in self.moves.values())

    @property
    def resets(self) -> bool:
        return any(isinstance(a, int) for a in self.moves.values())

    @property
    def factors(self) -> int:
        return max([len(swaps(a)) for a in self.moves.values() if isinstance(a, tuple)] + [1])

    def below(self, context: int, point: int) -> int:
        return self.tiles[context][point] if context in self.tiles else context

    def describe(self) -> str:
        actions = set(self.moves.values())
        group = group_order([a for a in actions if isinstance(a, tuple)], self.points)
        resets = sum(isinstance(a, int) for a in actions)
        return (f"{count(self.points, 'point')}, group of order {group}, {count(resets, 'reset')}, "
                f"{count(len(self.contexts), 'context')}")


@dataclass
class Cascade:
    scheme: str
    dfa: Dfa
    levels: list[Level]

    def contexts_after(self, i: int) -> list[int]:
        """The sets that level i (from 0) leads to; those of the last level are single states."""
        return (self.levels[i + 1].contexts if i + 1 < len(self.levels)
                else [1 << s for s in range(self.dfa.n)])


GROUP_SHOWN = 10000


def group_order(generators: list[Permutation], n: int) -> str:
    identity = tuple(range(n))
    seen, order = {identity}, [identity]
    for p in order:
        for g in generators:
            q = tuple(g[i] for i in p)
            if q not in seen:
                if len(seen) == GROUP_SHOWN:
                    return f"more than {GROUP_SHOWN}"
                seen.add(q)
                order.append(q)
    return str(len(seen))


# ---- sets


def image(mask: int, to: tuple[int, ...]) -> int:
    out = 0
    while mask:
        low = mask & -mask
        out |= 1 << to[low.bit_length() - 1]
        mask ^= low
    return out


# ---- choices of tiles: for each level, from the top, a function set -> tiles or None


Tiles = Callable[[int], list[int] | None]


def subset_tiles(dfa: Dfa) -> list[tuple[int, Tiles]]:
    """(points, tiles) of each level: the tile of point p lacks the p-th element."""

    def tiles(mask: int) -> list[int]:
        return [mask ^ 1 << s for s in members(mask)]

    return [(size, tiles) for size in range(dfa.n, 1, -1)]


def holonomy_tiles(dfa: Dfa) -> list[tuple[int, Tiles]]:
    maps = sorted(set(dfa.moves))
    full = (1 << dfa.n) - 1
    sets = [full]
    seen = {full}
    for x in sets:
        for to in maps:
            y = image(x, to)
            if y not in seen and len(seen) < COUNT_SETS:
                seen.add(y)
                sets.append(y)
    if len(sets) > MAX_SETS:
        more = "at least " if len(sets) == COUNT_SETS else ""
        raise TooLarge(f"{more}{len(sets)} image sets, expected at most {MAX_SETS}")
    sets += [1 << s for s in range(dfa.n) if 1 << s not in seen]
    successors = {x: [image(x, to) for to in maps] for x in sets}
    classes = components(sets, successors)
    maximal = {x: largest_inside(x, sets) for x in sets}
    height = heights(sets, classes, successors, maximal)

    # the tiles of a set in the order of those of the first set of its class, its representative
    tiles: dict[int, list[int]] = {}
    for x in sets:
        if x in tiles or height[x] == 0:
            continue
        tiles[x] = maximal[x]
        walk = [x]
        for y in walk:
            for to, z in zip(maps, successors[y]):
                if z not in tiles and classes[z] == classes[x]:
                    tiles[z] = [image(t, to) for t in tiles[y]]
                    walk.append(z)

    def at(h: int) -> Tiles:
        return lambda x: tiles[x] if height[x] == h else None

    return [(max(len(tiles[x]) for x in sets if height[x] == h), at(h))
            for h in range(height[full], 0, -1)]


def components(nodes: list[int], successors: dict[int, list[int]]) -> dict[int, int]:
    """Strongly connected components (Tarjan, without recursion): node -> a node of its
    component."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            x, i = work.pop()
            if i == 0:
                index[x] = low[x] = len(index)
                stack.append(x)
            if i < len(successors[x]):
                work.append((x, i + 1))
                y = successors[x][i]
                if y not in index:
                    work.append((y, 0))
                elif y not in component:
                    low[x] = min(low[x], index[y])
                continue
            if low[x] == index[x]:
                while True:
                    y = stack.pop()
                    component[y] = x
                    if y == x:
                        break
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[x])
    return component


def largest_inside(x: int, sets: list[int]) -> list[int]:
    """The maximal proper subsets of x among `sets`."""
    inside = sorted((y for y in sets if y & x == y != x), key=lambda y: -y.bit_count())
    found: list[int] = []
    for y in inside:
        if not any(y & z == y for z in found):
            found.append(y)
    return sorted(found)


def heights(sets: list[int], classes: dict[int, int], successors: dict[int, list[int]],
            maximal: dict[int, list[int]]) -> dict[int, int]:
    """0 for single states; otherwise more than that of every tile, and of every image in another
    class. Equal within a class."""
    height = {x: 0 for x in sets if x.bit_count() == 1}
    by_class: dict[int, list[int]] = {}
    for x in sets:
        by_class.setdefault(classes[x], []).append(x)

    # Both relations lead to smaller sets, or to equally large ones further down the images: a
    # topological order of the classes exists. Resolve it with an explicit stack.
    for root in sets:
        work = [root]
        while work:
            x = work[-1]
            if x in height:
                work.pop()
                continue
            group = by_class[classes[x]]
            below = {y for g in group for y in (*maximal[g], *successors[g])
                     if classes[y] != classes[x]}
            missing = [y for y in below if y not in height]
            if missing:
                work += missing
                continue
            for g in group:
                height[g] = 1 + max(height[y] for y in below)
    return height


# ---- the cascade


def build(dfa: Dfa, scheme: str) -> Cascade:
    """scheme: a key of SCHEMES. Raises TooLarge."""
    full = (1 << dfa.n) - 1
    # (letter, before, after), from the top of the chain down
    frontier = {(a, full, full) for a in range(len(dfa.moves))}
    chain = full                           # the set that the start state has at this level
    levels = []
    for points, tiles_of in SCHEMES[scheme](dfa):
        contexts = sorted({x for _, before, after in frontier for x in (before, after)} | {chain})
        tiles = {x: t for x in contexts if (t := tiles_of(x)) is not None}
        level = Level(points, contexts, tiles, {}, 0)
        below = set()
        for a, before, after in frontier:
            action = level.moves[a, before, after] = _action(dfa.moves[a], before, after, tiles,
                                                             points)
            if before not in tiles:
                new = tiles[after][action] if after in tiles else after
                below.add((a, before, new))
                continue
            for p, tile in enumerate(tiles[before]):
                q = action if isinstance(action, int) else action[p]
                below.add((a, tile, tiles[after][q] if after in tiles else after))
        if len(contexts) > MAX_SETS or len(below) > MAX_MOVES:
            raise TooLarge(f"{len(contexts)} contexts in level {len(levels) + 1} and {len(below)} "
                           f"combinations in the next, expected at most {MAX_SETS} and "
                           f"{MAX_MOVES}")
        if chain in tiles:
            level.start = next(p for p, t in enumerate(tiles[chain]) if t >> dfa.start & 1)
            chain = tiles[chain][level.start]
        levels.append(level)
        frontier = below
    return Cascade(scheme, dfa, levels)


def _action(to: tuple[int, ...], before: int, after: int, tiles: dict[int, list[int]],
            points: int) -> Action:
    hold = tuple(range(points))
    if after not in tiles:
        return hold                        # nobody looks at the register
    reached = image(before, to)
    if before in tiles and reached == after:
        found = [tiles[after].index(image(t, to)) for t in tiles[before]]
        return tuple(found) + hold[len(found):]
    return next(p for p, t in enumerate(tiles[after]) if reached & t == reached)


SCHEMES = {"holonomy": holonomy_tiles, "subsets": subset_tiles}
