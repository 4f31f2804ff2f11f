"""Trains the state-tracking models.

    python train_tasks.py --out RUNS                         all, about 20 minutes on one core
    python train_tasks.py --out RUNS parity-delta-neg …      only these

Writes the checkpoint (config.json, model.safetensors, tokenizer.json) and scores.json to RUNS/NAME.
Skips models that already have a scores.json.

The recipe, the same for both eigenvalue ranges, is in ../README.md. 40 letters do not require a
state that is still exact after 10,000, so two terms join the loss at that length: PushEnds pushes β
to the ends of its range, and spread asks for equal logits at positions with equal answers, which
reveals a drifting state long before an error.
"""

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from layers import LanguageModel, delta_config, mamba_config, save_model
from tasks import BOS, NO_ANSWER, TASKS, Task

SHORTEST, LONGEST = 3, 40
VALIDATION = 512
ROWS = 64
FULL_LOGIT = 18.0                          # σ(18) is 1 in F32


@dataclass(frozen=True)
class Recipe:
    task: str
    config: dict
    steps: int = 1000
    rate: float = 1e-2
    push: float = 0.01                     # weight of PushEnds
    alike: float = 1.0                     # weight of spread
    enough: float = 0.97                   # accuracy required for the next length
    seeds: int = 3


def recipes() -> dict[str, Recipe]:
    found = {}
    sets = (("parity", "parity", 1), ("mod3", "mod:3", 2), ("mod5", "mod:5", 2), ("s3", "S3", 2),
            ("arith5", "mod-arith:5", 3))
    for name, task, layers in sets:
        vocab = len(TASKS[task].symbols)
        hard = name == "arith5"
        width, inner = (48, 96) if hard else (32, 64)
        options = dict(steps=4000, rate=5e-3, push=0.0, enough=0.9, seeds=1) if hard else {}
        for signed, suffix in ((False, "pos"), (True, "neg")):
            delta = delta_config(vocab, width, layers, width // 16, inner, signed, conv=False,
                                 init=0.1)
            mamba = mamba_config(vocab, width, layers, signed, conv=1, init=0.1)
            found[f"{name}-delta-{suffix}"] = Recipe(task, delta, **options)
            found[f"{name}-mamba-{suffix}"] = Recipe(task, mamba, **options)
            if name == "s3":
                product = delta_config(vocab, width, 1, width // 16, inner, signed, conv=False,
                                       factors=2, init=0.1)
                found[f"{name}-deltaproduct2-{suffix}"] = Recipe(task, product, **options)
    return found


class PushEnds:
    """Penalty on β between its ends: mean of max(0, FULL_LOGIT - |logit|). Unlike that of σ, its
    gradient does not vanish."""

    def __init__(self, model: LanguageModel):
        self.logits = []
        self.hooks = [module.register_forward_hook(self._keep)
                      for name, module in model.named_modules() if name.endswith("b_proj")]

    def _keep(self, module, inputs, output) -> None:
        self.logits.append(output)

    def take(self) -> torch.Tensor:
        total = sum((F.relu(FULL_LOGIT - x.abs()).mean() for x in self.logits), torch.zeros(()))
        self.logits.clear()
        return total

    def detach(self) -> None:
        for hook in self.hooks:
            hook.remove()


def spread(logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """The share of the variance of the logits, 0 to 1, that the answers do not explain."""
    asked = answers.flatten() != NO_ANSWER
    x, y = logits.flatten(0, 1)[asked], answers.flatten()[asked]
    group = F.one_hot(y, logits.shape[-1]).float()
    means = (group.T @ x) / group.sum(0).clamp(min=1)[:, None]
    return (x - means[y]).square().sum() / (x - x.mean(0)).square().sum().detach()


def train(recipe: Recipe, seed: int) -> tuple[LanguageModel, int]:
    """The model, and the length that the curriculum reached."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    task = TASKS[recipe.task]
    model = LanguageModel(recipe.config)
    ends = PushEnds(model)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, betas=(0.9, 0.99),
                                  fused=True)
    length, right = SHORTEST + 1, 0.5
    for step in range(recipe.steps):
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / recipe.steps)
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min(1.0, (step + 1) / 50) * cosine
        letters = length if rng.random() < 0.7 else int(rng.integers(SHORTEST, length + 1))
        ids, answers = task.batch(rng, ROWS, letters)
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        push = ends.take()
        if length == LONGEST:
            loss = loss + recipe.push * push + recipe.alike * spread(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if letters == length and length < LONGEST:
            hit = logits[:, -3:].argmax(-1) == answers[:, -3:]
            right = 0.8 * right + 0.2 * hit.float().mean().item()
            if right > recipe.enough:
                length, right = min(length + (1 if length < 10 else 3), LONGEST), 0.5
    ends.detach()
    return model, length


@torch.no_grad()
def hits(model: LanguageModel, task: Task, rng: np.random.Generator, rows: int,
         letters: int) -> torch.Tensor:
    """1 for right answers, 0 for wrong ones, [rows, letters]."""
    ids, answers = task.batch(rng, rows, letters)
    return (model(ids).argmax(-1) == answers)[:, 1:].float()


def validate(model: LanguageModel, task: Task) -> float:
    """Scaled accuracy at letters 40 to VALIDATION."""
    rng = np.random.default_rng(1_000_001)
    parts = [hits(model, task, rng, 32, VALIDATION)[:, LONGEST - 1 :] for _ in range(2)]
    return task.scaled(torch.cat(parts).mean().item())


def score(model: LanguageModel, task: Task) -> dict:
    """Scaled accuracies. 40-256: all lengths equally frequent, at the final = of expressions and at
    every position of other sequences, which is equivalent. 1000 and 10000: the last hundred
    answers."""
    rng = np.random.default_rng(1_000_002)
    if task.name.startswith("mod-arith"):
        inside = torch.cat([hits(model, task, rng, 32, n)[:, -1] for n in range(40, 257, 2)])
    else:
        inside = torch.cat([hits(model, task, rng, 64, 256)[:, 39:].flatten() for _ in range(8)])
    short = torch.cat([hits(model, task, rng, 64, 40)[:, 2:] for _ in range(8)])
    scores = {"3-40": short.mean().item(), "40-256": inside.mean().item()}
    for n, rows in ((1000, 64), (10000, 16)):
        scores[str(n)] = hits(model, task, rng, rows, n)[:, -100:].mean().item()
    return {k: round(task.scaled(v), 4) for k, v in scores.items()}


def save_tokenizer(task: Task, folder: Path) -> None:
    """A tokenizer of whole symbols between white space, in the format of the tokenizers library."""
    vocab = {s: i for i, s in enumerate(task.symbols)}
    bos = dict(id=0, content=BOS, single_word=False, lstrip=False, rstrip=False, normalized=False,
               special=True)
    tokenizer = dict(version="1.0", truncation=None, padding=None, normalizer=None,
                     pre_tokenizer=dict(type="WhitespaceSplit"), post_processor=None, decoder=None,
                     model=dict(type="WordLevel", vocab=vocab, unk_token=""), added_tokens=[bos])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=2) + "\n")
    config = dict(bos_token=BOS, add_bos_token=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def run(name: str, recipe: Recipe, out: Path) -> None:
    task, folder = TASKS[recipe.task], out / name
    best, tried, began = None, [], time.process_time()
    for seed in range(1, recipe.seeds + 1):
        model, length = train(recipe, seed)
        valid = validate(model, task)
        tried.append(dict(seed=seed, reached=length, validation=round(valid, 4)))
        print(name, tried[-1], f"{time.process_time() - began:.0f} s", flush=True)
        if best is None or valid > best[0]:
            best = (valid, seed, model)
        if valid == 1.0:
            break
    _, seed, model = best
    save_model(model, folder)
    save_tokenizer(task, folder)
    scores = score(model, task)
    signed = recipe.config.get("signed", recipe.config.get("allow_neg_eigval"))
    result = dict(task=recipe.task, signed=signed, steps=recipe.steps, rate=recipe.rate,
                  parameters=sum(p.numel() for p in model.parameters()),
                  cpu_seconds=round(time.process_time() - began), seed=seed, seeds=tried,
                  scores=scores)
    (folder / "scores.json").write_text(json.dumps(result, indent=1) + "\n")
    print(name, "seed", seed, scores, flush=True)


def main() -> None:
    known = recipes()
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    p.add_argument("--out", type=Path, required=True, metavar="RUNS", help="output folder")
    args = p.parse_args()
    for name in args.names:
        if name not in known:
            p.error(f"unknown model {name}; expected one of {', '.join(known)}")
    torch.set_num_threads(1)
    for name in args.names or known:
        if not (args.out / name / "scores.json").exists():
            run(name, known[name], args.out)


if __name__ == "__main__":
    main()
