"""Trains language models.

    python train_text.py --data DATA --out RUNS                          all of them
    python train_text.py --data DATA --out RUNS stories-delta-neg …      only these

DATA is the folder with the training texts (../README.md). RUNS/NAME receives the checkpoint
(config.json, model.safetensors and, unless tokens are bytes, tokenizer.json), log.jsonl, and every
--save-every steps the state of the optimizer (state.pt), from which the same command continues.
Models of one corpus see the same windows in the same order with the same learning rate: constant
after a warm-up, then linear to zero over the last quarter of the steps. Until that quarter begins,
a run may be stopped and continued with another --steps.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

from checkpoint import save_model
from layers import LanguageModel, delta_config
from text import Bytes, Sample, Stories

DECAY_PART = 0.25
WEIGHT_DECAY = 0.1
SEED = 1


@dataclass(frozen=True)
class Recipe:
    corpus: Callable[[Path], Bytes | Stories]
    mixers: tuple[str, ...]
    width: int
    layers: int
    heads: int
    inner: int
    rows: int                              # windows per step
    length: int
    steps: int
    rate: float
    warm_up: int = 200
    tied: bool = False


def novels_and_more(folder: Path) -> Bytes:
    return Bytes(folder, 0.05, novels=0.35, gsm8k=0.25, python=0.35, triviaqa=0.05)


def code_and_problems(folder: Path) -> Bytes:
    return Bytes(folder, 0.1, python=0.65, gsm8k=0.35)


MIXERS = {
    "delta-pos":          dict(signed=False),
    "delta-neg":          dict(signed=True),
    "deltaproduct2-neg":  dict(signed=True, factors=2, forget=True, gate=True),
}
RECIPES = {
    "text":    Recipe(novels_and_more, tuple(MIXERS), width=160, layers=4, heads=5, inner=448,
                      rows=4, length=512, steps=3200, rate=3e-3),
    "stories": Recipe(Stories, tuple(MIXERS), width=256, layers=4, heads=8, inner=640, rows=8,
                      length=512, steps=3400, rate=2e-3, tied=True),
    "code":    Recipe(code_and_problems, ("delta-pos", "delta-neg"), width=192, layers=4, heads=6,
                      inner=512, rows=4, length=1024, steps=3400, rate=2e-3),
}
MODELS = {f"{name}-{mixer}": (recipe, mixer) for name, recipe in RECIPES.items()
          for mixer in recipe.mixers}


def rate_at(recipe: Recipe, step: int, steps: int) -> float:
    decay = round(steps * DECAY_PART)
    return recipe.rate * min(1.0, (step + 1) / recipe.warm_up, (steps - step) / decay)


def make_optimizer(model: LanguageModel) -> torch.optim.Optimizer:
    """Weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [dict(params=matrices, weight_decay=WEIGHT_DECAY),
              dict(params=others, weight_decay=0.0)]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)


@torch.no_grad()
def bits_per_byte(model: LanguageModel, samples: list[Sample]) -> float:
    nats = sum(F.cross_entropy(model(s.ids[None, :-1])[0], s.ids[1:], reduction="sum").item()
               for s in samples)
    return nats / sum(s.n_bytes for s in samples) / math.log(2)


def save(model, optimizer, step: int, seconds: float, out: Path) -> None:
    save_model(model, out)
    fresh = out / "state.pt.new"
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step,
                    seconds=seconds), fresh)
    fresh.rename(out / "state.pt")


def train(name: str, data: Path, out: Path, steps: int | None, save_every: int) -> None:
    recipe, mixer = MODELS[name]
    steps = steps or recipe.steps
    torch.manual_seed(SEED)
    corpus = recipe.corpus(data)
    model = LanguageModel(delta_config(corpus.vocab, recipe.width, recipe.layers, recipe.heads,
                                       recipe.inner, tied=recipe.tied, end=corpus.end,
                                       **MIXERS[mixer]))
    optimizer = make_optimizer(model)
    first, seconds = 0, 0.0
    out.mkdir(parents=True, exist_ok=True)
    corpus.save_tokenizer(out)
    if (out / "state.pt").exists():
        state = torch.load(out / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds = state["step"], state["seconds"]

    log = open(out / "log.jsonl", "a", buffering=1)
    began, mean = time.process_time() - seconds, 0.0
    for step in range(first, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, step, steps)
        w = corpus.batch(step, recipe.rows, recipe.length)
        loss = F.cross_entropy(model(w[:, :-1]).flatten(0, 1), w[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean += loss.item()
        done = step + 1
        if done % 50 == 0:
            print(f"{name} step {done}/{steps}  {mean / 50:.3f} nats per token", flush=True)
            mean = 0.0
        if done % save_every == 0 or done == steps:
            samples = corpus.held_out(recipe.length, whole=done == steps)
            held_out = {k: round(bits_per_byte(model, v), 4) for k, v in samples.items()}
            seconds = time.process_time() - began
            entry = dict(step=done, steps=steps, length=recipe.length,
                         cpu_seconds=round(seconds), held_out=held_out)
            log.write(json.dumps(entry) + "\n")
            save(model, optimizer, done, seconds, out)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, metavar="RUNS", help="output folder")
    p.add_argument("--steps", type=int, metavar="N", help="instead of those of the recipe")
    p.add_argument("--save-every", type=int, default=250, metavar="N")
    args = p.parse_args()
    for name in args.names:
        if name not in MODELS:
            p.error(f"unknown model {name}; expected one of {', '.join(MODELS)}")
    torch.set_num_threads(1)
    for name in args.names or MODELS:
        train(name, args.data, args.out / name, args.steps, args.save_every)


if __name__ == "__main__":
    main()
