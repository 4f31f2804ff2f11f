"""Every sampling option of lrnn-cli has its effect: the tokens are those that the definitions of
the options give for the logits of lrnn-perplexity logits and the published random generator."""

import json

import numpy as np
import pytest

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 3, 1]
N = 24
MASK = (1 << 64) - 1
DEFAULTS = {"temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05, "repeat-penalty": 1.0,
            "repeat-last": 64, "seed": 1}
PLAIN = {"temp": 1, "top-k": 0, "top-p": 1, "min-p": 0}
CASES = [
    {},
    {**PLAIN},
    {**PLAIN, "temp": 0.3},
    {**PLAIN, "temp": 3},
    {**PLAIN, "temp": 3, "top-k": 1},
    {**PLAIN, "temp": 3, "top-k": 4},
    {**PLAIN, "temp": 3, "top-p": 0.5},
    {**PLAIN, "temp": 3, "top-p": 0},
    {**PLAIN, "temp": 3, "min-p": 0.3},
    {**PLAIN, "temp": 3, "min-p": 1},
    {**PLAIN, "temp": 3, "repeat-penalty": 4},
    {**PLAIN, "seed": 2},
    {**PLAIN, "seed": 1 + (1 << 32)},
    {"temp": 0, "repeat-penalty": 50, "repeat-last": 1},
    {"temp": 0, "repeat-penalty": 50, "repeat-last": 4},
    {"temp": 0, "repeat-penalty": 50, "repeat-last": 64},
    {"temp": 0, "repeat-penalty": 50, "repeat-last": 0},
    {"temp": 0, "repeat-penalty": 0.2},
    {"temp": 0},
]


class Generator:
    """xoroshiro128+, seeded by splitmix64."""

    def __init__(self, seed):
        self.state = []
        for _ in range(2):
            seed = seed + 0x9e3779b97f4a7c15 & MASK
            z = seed
            z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
            z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
            self.state.append(z ^ z >> 31)

    def next(self):
        """A number in [0, 1)."""
        a, b = self.state
        x = a ^ b
        self.state = [((a << 24 | a >> 40) ^ x ^ x << 16) & MASK, (x << 37 | x >> 27) & MASK]
        return ((a + b & MASK) >> 11) / 2 ** 53


def choose(logits, history, options, generator):
    """The token, or None if the random number is too close to the boundary between two."""
    logits = logits.astype(float)
    last = options["repeat-last"]
    for token in set(history[-last:] if last > 0 else []):
        penalty = options["repeat-penalty"]
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    order = np.argsort(-logits, kind="stable")
    if options["temp"] == 0:
        return order[0]
    order = order[:options["top-k"] or None]
    p = np.exp(logits[order] - logits[order[0]])
    before = np.concatenate([[0], np.cumsum(p)[:-1]]) / p.sum()
    kept = (before < options["top-p"]) & (p >= options["min-p"])
    kept[0] = True
    order = order[kept]
    weights = np.exp((logits[order] - logits[order[0]]) / options["temp"])
    edges = np.cumsum(weights) / weights.sum()
    u = generator.next()
    if np.abs(edges[:-1] - u).min(initial=1) < 1e-5:
        return None
    return order[np.searchsorted(edges, u)]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_options(lrnn, options):
    model = lrnn.golden / "gated_deltanet_neg.gguf"
    command = [part for name, value in {"seed": 1, **options}.items()
               for part in (f"--{name}", value)]
    done = lrnn.run("lrnn-cli", "-m", model, "-t", "1", "-q", "-n", N, "--jsonl",
                    "-p", " ".join(map(str, PROMPT)), *command)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    tokens = [line["id"] for line in lines]
    assert len(tokens) == N

    lrnn.write("ids.txt", " ".join(map(str, PROMPT + tokens)))
    lrnn.run("lrnn-perplexity", "logits", "-m", model, "--tokens", "ids.txt", "--out", "l.npy",
             "-t", "1", "-q")
    logits = np.load(lrnn.work / "l.npy")[len(PROMPT) - 1:]
    chosen = {**DEFAULTS, **options}
    generator = Generator(chosen["seed"])
    for i, token in enumerate(tokens):
        expected = choose(logits[i], PROMPT + tokens[:i], chosen, generator)
        assert expected is None or token == expected, (i, token, expected)
        z = logits[i].astype(float)
        log_prob = z[token] - z.max() - np.log(np.exp(z - z.max()).sum())
        assert lines[i]["logprob"] == pytest.approx(log_prob, abs=1e-4)


def test_options_differ():
    """The cases can tell the options apart: on random logits each of them gives other tokens."""
    logits = 3 * np.random.default_rng(0).normal(size=(200, 48))
    seen = {}
    for options in CASES:
        chosen, generator = {**DEFAULTS, **options}, Generator(options.get("seed", 1))
        tokens = list(PROMPT)
        for row in logits:
            token = choose(row, tokens, chosen, generator)
            tokens.append(-1 if token is None else int(token))
        seen.setdefault(tuple(tokens), []).append(options)
    # those that keep only the most likely token are greedy
    greedy = [options for options in CASES if options.get("top-k") == 1 or options.get("min-p") == 1
              or options.get("top-p") == 0 or options.get("repeat-last") == 0
              or options == {"temp": 0}]
    assert len(seen) == len(CASES) - len(greedy) + 1
