"""Trains one byte-level language model.

    python train_text.py delta-neg --data DATA --out RUNS/text-delta-neg

DATA is the folder with the files that text.py lists. The output folder receives the checkpoint
(config.json, model.safetensors), log.jsonl, and every --save-every steps the state of the optimizer
(state.pt), from which the same command continues. All three models see the same windows in the same
order with the same learning rate: constant after a warm-up, then linear to zero over the last
quarter of the steps. Until that quarter begins, a run may be stopped and continued with another
--steps.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from checkpoint import save_model
from layers import LanguageModel, delta_config
from text import Corpus

WIDTH, LAYERS, HEADS, INNER = 160, 4, 5, 448
MODELS = {
    "delta-pos":          dict(signed=False),
    "delta-neg":          dict(signed=True),
    "deltaproduct2-neg":  dict(signed=True, factors=2, forget=True, gate=True),
}
ROWS, LENGTH = 4, 512
RATE, WARM_UP, DECAY_PART = 3e-3, 200, 0.25
WEIGHT_DECAY = 0.1
SEED = 1


def rate(step: int, steps: int) -> float:
    decay = round(steps * DECAY_PART)
    return RATE * min(1.0, (step + 1) / WARM_UP, (steps - step) / decay)


def make_optimizer(model: LanguageModel) -> torch.optim.Optimizer:
    """Weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [dict(params=matrices, weight_decay=WEIGHT_DECAY),
              dict(params=others, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), fused=True)


@torch.no_grad()
def bits_per_byte(model: LanguageModel, text: torch.Tensor, windows: int) -> float:
    """Mean over windows of LENGTH predictions, each from an empty state, spaced evenly in the text.
    """
    total = 0.0
    for at in torch.linspace(0, len(text) - LENGTH - 1, windows).long().tolist():
        w = text[at : at + LENGTH + 1]
        total += F.cross_entropy(model(w[None, :-1])[0], w[1:]).item()
    return total / windows / math.log(2)


def save(model, optimizer, step: int, seconds: float, out: Path) -> None:
    save_model(model, out)
    fresh = out / "state.pt.new"
    torch.save(dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step,
                    seconds=seconds), fresh)
    fresh.rename(out / "state.pt")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=list(MODELS))
    p.add_argument("--data", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--steps", type=int, default=3200)
    p.add_argument("--save-every", type=int, default=250)
    args = p.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    corpus = Corpus(args.data)
    model = LanguageModel(delta_config(256, WIDTH, LAYERS, HEADS, INNER, **MODELS[args.model]))
    optimizer = make_optimizer(model)
    first, seconds = 0, 0.0
    args.out.mkdir(parents=True, exist_ok=True)
    if (args.out / "state.pt").exists():
        state = torch.load(args.out / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds = state["step"], state["seconds"]

    log = open(args.out / "log.jsonl", "a", buffering=1)
    began, mean = time.process_time() - seconds, 0.0
    for step in range(first, args.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps)
        w = corpus.batch(step, ROWS, LENGTH)
        loss = F.cross_entropy(model(w[:, :-1]).flatten(0, 1), w[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean += loss.item() / math.log(2)
        done = step + 1
        if done % 50 == 0:
            print(f"step {done}/{args.steps}  {mean / 50:.3f} bits per byte", flush=True)
            mean = 0.0
        if done % args.save_every == 0 or done == args.steps:
            windows = 64 if done == args.steps else 8
            held_out = {name: round(bits_per_byte(model, t, windows), 4)
                        for name, t in corpus.held_out.items()}
            seconds = time.process_time() - began
            entry = dict(step=done, cpu_seconds=round(seconds), held_out=held_out)
            log.write(json.dumps(entry) + "\n")
            save(model, optimizer, done, seconds, args.out)


if __name__ == "__main__":
    main()
