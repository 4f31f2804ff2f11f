"""Converts trained checkpoints to GGUF with lrnn-convert, and prints the tables of ../README.md.

    python export.py RUNS MODELS

RUNS is the output folder of train_tasks.py and train_text.py. Every finished run becomes
MODELS/NAME.gguf: state-tracking models in F32, language models in Q8_0. The others are listed on
standard error.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

CONVERTER = Path(__file__).resolve().parents[2] / "convert"


def convert(folder: Path, output: Path, signed: bool | None, *options: str) -> int:
    """signed: None if the model has no eigenvalue range."""
    command = [sys.executable, "-m", "lrnn_convert", str(folder), "-o", str(output),
               "--name", output.stem, "--quiet", *options]
    if signed is not None:
        command += ["--eigenvalues", "signed" if signed else "unsigned"]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(CONVERTER)})
    return output.stat().st_size


def number(x: float) -> str:
    return f"{x:.3f}" if abs(x) >= 0.0005 else "0.000"


def export_tasks(runs: Path, models: Path) -> None:
    scores, sequences, seeds = [], [], []
    for path in sorted(runs.glob("*/curve.jsonl")):
        if not path.with_name("scores.json").exists():
            print(f"not finished: {path.parent.name}", file=sys.stderr)
    for path in sorted(runs.glob("*/scores.json")):
        r, name = json.loads(path.read_text()), path.parent.name
        size = convert(path.parent, models / f"{name}.gguf", r["signed"], "--task", r["task"],
                       "--trained-length", str(r["longest"]))
        span = {True: "[-1,1]", False: "[0,1]", None: ""}[r["signed"]]
        scores.append([f"`{name}`", r["task"], span, *map(number, r["scores"].values())])
        if r["sequences"]:
            sequences.append([f"`{name}`", *map(number, r["sequences"].values())])
            lengths = list(r["sequences"])
        tried = ", ".join(f"{number(t['validation'])} ({t['reached']})" for t in r["seeds"])
        seeds.append([f"`{name}`", tried, r["seed"], r["steps"], f"{r['cpu_seconds']} s",
                      f"{r['parameters']:,}", f"{size / 1000:.0f} kB"])
    if scores:
        table(["file", "task", "range", *r["scores"]], scores)
        if sequences:
            table(["file", *lengths], sequences)
        table(["file", "validation of each seed (length reached)", "shipped seed",
               "steps per seed", "CPU time", "parameters", "size"], seeds)


def export_text(runs: Path, models: Path) -> None:
    """One table per corpus."""
    rows, heads = {}, {}
    for path in sorted(runs.glob("*/log.jsonl")):
        name, lines = path.parent.name, path.read_text().splitlines()
        last = json.loads(lines[-1]) if lines else dict(step=0, steps=None)
        if last["step"] != last["steps"]:
            print(f"not finished: {name}, {last['step']} steps", file=sys.stderr)
            continue
        tokenizer = () if (path.parent / "tokenizer.json").exists() else ("--tokenizer", "bytes")
        size = convert(path.parent, models / f"{name}.gguf", name.endswith("neg"), "--type", "q8_0",
                       "--trained-length", str(last["length"]), *tokenizer)
        corpus = name.partition("-")[0]
        heads[corpus] = ["file", "steps", *last["held_out"], "CPU time", "size"]
        rows.setdefault(corpus, []).append(
            [f"`{name}`", last["step"], *(f"{x:.3f}" for x in last["held_out"].values()),
             f"{last['cpu_seconds'] / 60:.0f} min", f"{size / 1e6:.2f} MB"])
    for corpus, head in heads.items():
        table(head, rows[corpus])


def table(head: list, rows: list[list]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    runs, models = Path(sys.argv[1]), Path(sys.argv[2])
    export_tasks(runs, models)
    export_text(runs, models)


if __name__ == "__main__":
    main()
