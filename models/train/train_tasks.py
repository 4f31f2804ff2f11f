"""Trains the state-tracking models.

    python train_tasks.py --out RUNS                         all, many hours on one core
    python train_tasks.py --out RUNS parity-delta-neg …      only these

Writes the checkpoint (config.json, model.safetensors, tokenizer.json) and scores.json to RUNS/NAME,
and the learning curve of every seed to RUNS/NAME/curve.jsonl. Skips models that already have a
scores.json. A run that was interrupted continues from its last checkpoint, also with another
--steps, as long as the learning rate has not begun to fall.

The recipe, the same for both eigenvalue ranges, is in ../README.md. 40 letters do not require a
state that is still exact after 10,000, so more than the answers enters the loss:

    push_ends   pushes β to the ends of its range, once the length is 40
    spread      of the logits, once the length is 40: equal answers must have equal logits, which a
                drifting state cannot give
    spread      of the outputs of the mixers, from the start (`steady`): a sum modulo m must close
                its circle instead of counting on
    Hints       a layer must know parts of the automaton's state (`hints`)
"""

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from checkpoint import make_model, save_model
from layers import delta_config, llama_config, mamba_config
from tasks import BOS, NO_ANSWER, TASKS, Task
from xlstm import xlstm_config

SHORTEST, LONGEST = 3, 40
VALIDATION = 512
SEQUENCES = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
SAVE_EVERY = 200                           # steps
FULL_LOGIT = 18.0                          # σ(18) is 1 in F32
ERASE_LOGIT = math.log(3)                  # 2 σ(log 3) is 1.5


@dataclass(frozen=True)
class Recipe:
    task: str
    config: dict
    steps: int = 1000
    rate: float = 1e-2
    flat: float = 0.0                      # share of the steps at the full rate, then cosine
    rows: int = 64                         # sequences per step
    beta2: float = 0.99                    # of AdamW
    push: float = 0.01                     # weight of push_ends
    erase: bool = False                    # of push_ends
    alike: float = 1.0                     # weight of spread
    steady: float = 0.0                    # weight of spread of the outputs of the mixers
    hints: tuple[tuple[int, ...], ...] = ()    # parts of the state that a layer must know
    first: int = 4                         # length at which the curriculum begins
    longest: int = LONGEST                 # length at which it ends
    enough: float = 0.97                   # accuracy required for the next length
    seeds: int = 3


# (sum, term, operator): what the three layers of modular arithmetic must know
ARITHMETIC_HINTS = ((2,), (1, 2), (0, 1))
# the image of each point, which tells no more than the answer
IMAGES = (0, 1, 2, 3, 4)


def recipes() -> dict[str, Recipe]:
    return with_hints() | table_recipes() | group_recipes()


def with_hints() -> dict[str, Recipe]:
    found = {}
    sets = (("parity", "parity", 1), ("mod3", "mod:3", 2), ("mod5", "mod:5", 2), ("s3", "S3", 2),
            ("arith5", "mod-arith:5", 3))
    # task, factors, width, options
    products = {"mod5": ("mod:5", 2, 32, dict(rate=5e-3, rows=128, steady=1.0)),
                "s3": ("S3", 2, 32, {}),
                "s5": ("S5", 4, 64, dict(steps=10500, rate=5e-3, flat=0.6, rows=128, seeds=1,
                                         steady=1.0, first=1, hints=(IMAGES,)))}
    for signed, suffix in ((False, "pos"), (True, "neg")):
        for name, task, layers in sets:
            vocab = len(TASKS[task].symbols)
            width, options = 32, {}
            if name == "arith5":
                width = 64
                options = dict(steps=5000, rate=4e-3, flat=0.5, rows=128, beta2=0.98, erase=signed,
                               enough=0.9, seeds=1, hints=ARITHMETIC_HINTS)
            mamba = mamba_config(vocab, width, layers, signed, conv=1, init=0.1)
            found[f"{name}-mamba-{suffix}"] = Recipe(task, mamba, **options)
            delta = delta_config(vocab, width, layers, width // 16, 2 * width, signed, conv=False,
                                 init=0.1)
            found[f"{name}-delta-{suffix}"] = Recipe(task, delta, **options)
        for name, (task, factors, width, options) in products.items():
            product = delta_config(len(TASKS[task].symbols), width, 1, width // 16, 2 * width,
                                   signed, conv=False, factors=factors, init=0.1)
            found[f"{name}-deltaproduct{factors}-{suffix}"] = Recipe(task, product, **options)
    return found


def table_recipes() -> dict[str, Recipe]:
    """The cells of Table 3 of the paper, on answers alone. The parity of the linear models is
    among the recipes above."""
    found = {"parity-transformer": Recipe("parity", llama_config(3, 32, 2, 2, 64, init=0.1),
                                          rate=3e-3),
             "parity-mlstm": Recipe("parity", xlstm_config(3, 32, 2, 2, slstm=False), rate=3e-3),
             "parity-slstm": Recipe("parity", xlstm_config(3, 32, 1, 2, slstm=True))}
    for name, task in (("arith5-answers", "mod-arith:5"), ("brackets5", "mod-brackets:5")):
        vocab, width, layers = len(TASKS[task].symbols), 64, 3
        models = {"transformer": llama_config(vocab, width, layers, 4, 2 * width, init=0.1),
                  "mlstm": xlstm_config(vocab, width, layers, 4, slstm=False),
                  "slstm": xlstm_config(vocab, width, layers, 4, slstm=True)}
        for signed, suffix in ((False, "pos"), (True, "neg")):
            models[f"mamba-{suffix}"] = mamba_config(vocab, width, layers, signed, init=0.1)
            models[f"delta-{suffix}"] = delta_config(vocab, width, layers, 4, 2 * width, signed,
                                                     init=0.1)
        for model, config in models.items():
            # the paper's best result, DeltaNet on arithmetic without brackets, gets more time
            long = name == "arith5-answers" and model.startswith("delta")
            found[f"{name}-{model}"] = Recipe(
                task, config, steps=12000 if long else 8000, rows=256 if long else 128, rate=3e-3,
                flat=0.5, beta2=0.98, erase=model == "delta-neg", enough=0.9, seeds=1)
    return found


def group_recipes() -> dict[str, Recipe]:
    """The group word problems of the papers, trained on at most 32 letters."""
    found = {}
    for name, task, longest in (("s5-swaps", "S5:swaps", 32), ("s5-3-cycles", "S5:3-cycles", 32),
                                ("s5-4-tokens", "S5:4-tokens", 64), ("s5-plain", "S5", 32),
                                ("z60", "mod:60", 32)):
        vocab, width = len(TASKS[task].symbols), 64
        # one factor is DeltaNet with one layer
        models = [(f"delta{layers}-{suffix}", layers, signed, 0)
                  for layers in (1, 5) for signed, suffix in ((False, "pos"), (True, "neg"))]
        models += [(f"deltaproduct{factors}-neg", 1, True, factors) for factors in (2, 3, 4)]
        for model, layers, signed, factors in models:
            config = delta_config(vocab, width, layers, 4, 2 * width, signed, conv=False,
                                  factors=factors, init=0.1)
            long = name in ("s5-plain", "s5-4-tokens") and layers == 1
            hints = () if name in ("s5-swaps", "z60") else ((),) * (layers - 1) + (IMAGES,)
            found[f"{name}-{model}"] = Recipe(
                task, config, steps=10500 if long else 4000, rate=5e-3, flat=0.6, rows=128,
                seeds=1, longest=longest, first=4 if name == "s5-4-tokens" else 1,
                steady=1.0 if layers == 1 else 0.0, hints=hints)
    return found


class Watch:
    """Keeps the outputs of the modules whose name ends with `suffix` during a forward pass."""

    def __init__(self, model: torch.nn.Module, suffix: str):
        self.found = []
        self.hooks = [module.register_forward_hook(lambda m, x, y: self.found.append(y))
                      for name, module in model.named_modules() if name.endswith(suffix)]

    def take(self) -> list[torch.Tensor]:
        found = list(self.found)
        self.found.clear()
        return found

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()


def push_ends(logits: list[torch.Tensor], erase: bool) -> torch.Tensor:
    """Penalty on β between its ends: mean of max(0, FULL_LOGIT - |logit|). Unlike that of σ, its
    gradient does not vanish. erase: a signed β near 1, which erases, is pushed to 1."""
    total = torch.zeros(())
    for x in logits:
        size = x.abs()
        cost = F.relu(FULL_LOGIT - size)
        if erase:
            cost = torch.where(size < ERASE_LOGIT, size, cost)
        total = total + cost.mean()
    return total


def spread(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of the variance of x [N, n], 0 to 1, that the labels [N] do not explain."""
    asked = labels != NO_ANSWER
    x = x[asked]
    _, y = labels[asked].unique(return_inverse=True)
    n = int(y.max()) + 1
    means = x.new_zeros(n, x.shape[1]).index_add(0, y, x)
    means = means / torch.bincount(y, minlength=n)[:, None]
    return (x - means[y]).square().sum() / (x - x.mean(0)).square().sum()


class Hints(torch.nn.Module):
    """Linear heads, for training only, that read parts of the automaton's state from the residual
    stream after a layer."""

    def __init__(self, model: torch.nn.Module, task: Task, parts: tuple[tuple[int, ...], ...]):
        super().__init__()
        self.parts = parts
        self.sizes = task.parts
        self.heads = torch.nn.ModuleList(
            torch.nn.Linear(model.config["hidden_size"], sum(task.parts[i] for i in x))
            for x in parts)
        self.watches = [Watch(model, f"layers.{i}") for i in range(len(parts))]

    def forward(self, states: torch.Tensor, alike: float) -> torch.Tensor:
        total = torch.zeros(())
        for parts, head, watch in zip(self.parts, self.heads, self.watches, strict=True):
            x = watch.take()[0]
            if not parts:
                continue
            x = head(F.rms_norm(x, x.shape[-1:])).flatten(0, 1)
            logits = x.split([self.sizes[i] for i in parts], dim=-1)
            for i, y in zip(parts, logits, strict=True):
                total = total + F.cross_entropy(y, states[i].flatten())
                if alike > 0:
                    total = total + alike * spread(y, states[i].flatten())
        return total


def rate_at(recipe: Recipe, step: int) -> float:
    falling = max(0.0, (step / recipe.steps - recipe.flat) / (1 - recipe.flat))
    return recipe.rate * min(1.0, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * falling))


def train(recipe: Recipe, seed: int, folder: Path) -> tuple[torch.nn.Module, int, float]:
    """The model, the length that the curriculum reached, and the CPU time."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    task = TASKS[recipe.task]
    model = make_model(recipe.config)
    hints = Hints(model, task, recipe.hints)
    betas, reads = Watch(model, "b_proj"), Watch(model, "o_proj")
    weights = [*model.parameters(), *hints.parameters()]
    optimizer = torch.optim.AdamW(weights, weight_decay=0.0, betas=(0.9, recipe.beta2),
                                  fused=True)
    length, right, first, spent = recipe.first, 0.5, 0, 0.0
    saved = folder / f"seed-{seed}.pt"
    if saved.exists():
        x = torch.load(saved, weights_only=True)
        model.load_state_dict(x["model"])
        hints.load_state_dict(x["hints"])
        optimizer.load_state_dict(x["optimizer"])
        rng.bit_generator.state = json.loads(x["rng"])
        length, right, first, spent = x["length"], x["right"], x["step"], x["cpu_seconds"]
    began = time.process_time() - spent
    for step in range(first, recipe.steps):
        if step > first and step % SAVE_EVERY == 0:
            spent = time.process_time() - began
            x = dict(model=model.state_dict(), hints=hints.state_dict(),
                     optimizer=optimizer.state_dict(), rng=json.dumps(rng.bit_generator.state),
                     length=length, right=right, step=step, cpu_seconds=spent)
            torch.save(x, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)
            point = dict(seed=seed, step=step, cpu_seconds=round(spent), length=length,
                         loss=round(loss.item(), 4), **curve_point(model, task))
            for watch in (betas, reads, *hints.watches):
                watch.take()
            with (folder / "curve.jsonl").open("a") as f:
                f.write(json.dumps(point) + "\n")
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, step)
        letters = length
        if rng.random() > 0.7:
            letters = int(rng.integers(min(SHORTEST, length), length + 1))
        ids, answers, states = map(torch.from_numpy,
                                   task.batch_with_states(rng, recipe.rows, letters))
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        full = length == recipe.longest
        loss = loss + hints(states, recipe.alike if full else 0.0)
        beta, read = betas.take(), reads.take()
        if recipe.steady > 0:
            loss = loss + recipe.steady * sum(spread(x.flatten(0, 1), answers.flatten())
                                              for x in read)
        if full:
            loss = loss + recipe.push * push_ends(beta, recipe.erase)
            loss = loss + recipe.alike * spread(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if letters == length and length < recipe.longest:
            hit = logits[:, -3:].argmax(-1) == answers[:, -3:]
            hit = hit[answers[:, -3:] != NO_ANSWER]
            right = 0.8 * right + 0.2 * hit.float().mean().item()
            if right > recipe.enough:
                length, right = min(length + (1 if length < 10 else 3), recipe.longest), 0.5
    for watch in (betas, reads, *hints.watches):
        watch.remove()
    return model, length, time.process_time() - began


@torch.no_grad()
def hits(model: torch.nn.Module, task: Task, rng: np.random.Generator, rows: int,
         letters: int) -> torch.Tensor:
    """1 for right answers, 0 for wrong ones, NaN where there is none, [rows, letters]."""
    ids, answers = map(torch.from_numpy, task.batch(rng, rows, letters))
    right = (model(ids).argmax(-1) == answers).float()
    return right.masked_fill(answers == NO_ANSWER, torch.nan)[:, 1:]


def accuracy(task: Task, found: torch.Tensor) -> float:
    return task.scaled(found.nanmean().item())


def final_hits(model: torch.nn.Module, task: Task, rng: np.random.Generator,
               rows: int) -> torch.Tensor:
    """Whether the final answer is right, for `rows` sequences of each even length of 40 to 256."""
    return torch.cat([hits(model, task, rng, rows, n)[:, -1] for n in range(40, 257, 2)])


def validate(model: torch.nn.Module, task: Task) -> float:
    """Scaled accuracy at letters 40 to VALIDATION; if only the last answer depends on the whole
    sequence, of that answer at lengths 40 to 256."""
    rng = np.random.default_rng(1_000_001)
    if task.tail == 1:
        return accuracy(task, final_hits(model, task, rng, 8))
    parts = [hits(model, task, rng, 32, VALIDATION)[:, LONGEST - 1 :] for _ in range(2)]
    return accuracy(task, torch.cat(parts))


def curve_point(model: torch.nn.Module, task: Task) -> dict:
    """Scaled accuracies on sequences of the learning curve alone."""
    rng = np.random.default_rng(1_000_003)
    short = accuracy(task, hits(model, task, rng, 64, 40)[:, 2:])
    final = accuracy(task, final_hits(model, task, rng, 4))
    return {"3-40": round(short, 4), "40-256": round(final, 4)}


def score(model: torch.nn.Module, task: Task) -> dict:
    """Scaled accuracies. 40-256: all lengths equally frequent, at the final = of expressions and at
    every position of other sequences, which is equivalent. 1000 and 10000: the last answers that
    depend on the whole sequence."""
    rng = np.random.default_rng(1_000_002)
    if task.is_expression:
        inside = final_hits(model, task, rng, 32)
    else:
        inside = torch.cat([hits(model, task, rng, 64, 256)[:, 39:].flatten() for _ in range(8)])
    short = torch.cat([hits(model, task, rng, 64, 40)[:, 2:] for _ in range(8)])
    scores = {"3-40": accuracy(task, short), "40-256": accuracy(task, inside)}
    for n, rows in ((1000, 64), (10000, 16)):
        scores[str(n)] = accuracy(task, hits(model, task, rng, rows, n)[:, -task.tail :])
    return {k: round(v, 4) for k, v in scores.items()}


def score_sequences(model: torch.nn.Module, task: Task) -> dict:
    """The share of sequences whose first n answers are all right, for some lengths n."""
    rng = np.random.default_rng(1_000_004)
    found = torch.cat([hits(model, task, rng, 64, SEQUENCES[-1]) for _ in range(8)])
    whole = found.cumprod(1).mean(0)
    return {str(n): round(whole[n - 1].item(), 4) for n in SEQUENCES}


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
    best, tried, spent = None, [], 0.0
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, recipe.seeds + 1):
        model, length, seconds = train(recipe, seed, folder)
        spent += seconds
        valid = validate(model, task)
        tried.append(dict(seed=seed, reached=length, validation=round(valid, 4)))
        print(name, tried[-1], f"{seconds:.0f} s", flush=True)
        if best is None or valid > best[0]:
            best = (valid, seed, model)
        if valid == 1.0:
            break
    _, seed, model = best
    save_model(model, folder)
    save_tokenizer(task, folder)
    scores = score(model, task)
    sequences = {} if task.is_expression else score_sequences(model, task)
    signed = recipe.config.get("signed", recipe.config.get("allow_neg_eigval"))
    result = dict(task=recipe.task, signed=signed, longest=recipe.longest, steps=recipe.steps,
                  rate=recipe.rate,
                  parameters=sum(p.numel() for p in model.parameters()),
                  cpu_seconds=round(spent), seed=seed, seeds=tried,
                  scores=scores, sequences=sequences)
    (folder / "scores.json").write_text(json.dumps(result, indent=1) + "\n")
    print(name, "seed", seed, scores, flush=True)


def main() -> None:
    known = recipes()
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    p.add_argument("--out", type=Path, required=True, metavar="RUNS", help="output folder")
    p.add_argument("--steps", type=int, metavar="N", help="instead of those of the recipe")
    args = p.parse_args()
    for name in args.names:
        if name not in known:
            p.error(f"unknown model {name}; expected one of {', '.join(known)}")
    torch.set_num_threads(1)
    for name in args.names or known:
        if not (args.out / name / "scores.json").exists():
            recipe = known[name]
            run(name, replace(recipe, steps=args.steps) if args.steps else recipe, args.out)


if __name__ == "__main__":
    main()
