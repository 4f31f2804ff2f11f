"""Writes the cases of test-task.c: sequences of models/train/tasks.py, which trains the models of
these tasks. Three lines each: the task, its letters, and the answers, with . for none."""

import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "models/train"))
from tasks import NO_ANSWER, TASKS  # noqa: E402


def main():
    rng, lengths = np.random.default_rng(1), random.Random(1)
    with open(sys.argv[1], "w") as f:
        for name, task in TASKS.items():
            for _ in range(20):
                length = 2 * lengths.randint(1, 60)
                (ids,), (answers,), _ = task.make(rng, 1, length)
                print(name, " ".join(task.symbols[i] for i in ids),
                      " ".join("." if i == NO_ANSWER else task.symbols[i] for i in answers),
                      sep="\n", file=f)


if __name__ == "__main__":
    main()
