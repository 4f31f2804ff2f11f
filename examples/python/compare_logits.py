#!/usr/bin/env python3
"""Converts a checkpoint of fla or transformers and compares the logits of that library with ours.

    python compare_logits.py path/to/checkpoint [--length N | --text TEXT] [--save FILE.npz]

Run it in a Python environment that has numpy and the library: torch, transformers, and
flash-linear-attention for its families. The library computes in float32, on the GPU if there is
one. Without a GPU, Triton interprets fla's kernels, slowly.

`lrnn-convert --verify` compares 64 tokens and judges the result. Here both sets of logits are
arrays, for inputs of your choice.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "convert")]

from lrnn_convert.reference import logits as reference  # before torch: sets options of libraries

import numpy as np

import lrnn


class Failure(Exception):
    """A sentence for the user."""


def convert(checkpoint, path, kind):
    """Writes the model file with lrnn-convert, from PATH or from the build."""
    program = shutil.which("lrnn-convert") or ROOT / "build/bin/lrnn-convert"
    done = subprocess.run([program, checkpoint, "-o", path, "--quiet", "--type", kind])
    if done.returncode:
        sys.exit(done.returncode)          # the converter has said why


def library_logits(checkpoint, tokens):
    """[T, n_vocab], and the name of the library."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config.get("model_type"), str):
        raise Failure(f"{checkpoint}/config.json has no model_type")
    try:
        library, is_fla = reference.import_library(config["model_type"])
    except reference.Missing as e:
        raise Failure(f"pip install {' '.join(e.args)}") from None
    import torch

    if is_fla:
        reference.prepare_fla(torch)
    model = reference.load_model(checkpoint, torch)
    return reference.compute(model, tokens.astype(np.int64), is_fla, torch), library


def our_logits(model, tokens, n_together):
    """[T, n_vocab]. Computes n_together tokens per call; the state carries over."""
    with lrnn.Session(model, n_cache=len(tokens), cache_type=lrnn.CACHE_F32) as session:
        return np.concatenate([session.eval(tokens[i:i + n_together], n_logits=None)
                               for i in range(0, len(tokens), n_together)])


def describe(ours, theirs):
    """The largest difference and where it is."""
    difference = np.abs(ours.astype(np.float64) - theirs)
    t, v = np.unravel_index(difference.argmax(), difference.shape)
    same = (ours.argmax(1) == theirs.argmax(1)).sum()
    return (f"{difference[t, v]:.3g}, logit of id {v} after {t + 1} tokens: {ours[t, v]:.6g}, "
            f"{theirs[t, v]:.6g} in the library; most likely token equal {same} of {len(ours)} "
            "times")


def compare(args):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        convert(args.checkpoint, path, args.type)
        with lrnn.Model(path) as model:
            if args.text is not None:
                tokens = model.tokenize(args.text)
            else:
                tokens = np.random.default_rng(1).integers(0, model.info.n_vocab, args.length)
            if not len(tokens):
                raise Failure("there are no tokens to compare")
            theirs, library = library_logits(args.checkpoint, tokens)
            ours = our_logits(model, tokens, len(tokens))
            one_by_one = our_logits(model, tokens, 1)
    info = model.info
    print(f"{info.family}, eigenvalues {info.eigenvalues}, {args.type}, {len(tokens)} tokens; "
          f"logits of {library}: {theirs.min():.3g} to {theirs.max():.3g}")
    if ours.shape != theirs.shape:
        raise Failure(f"logits have the shape {list(ours.shape)}, {list(theirs.shape)} in the "
                      "library")
    print("largest difference, in one call: ", describe(ours, theirs))
    print("largest difference, one by one:  ", describe(one_by_one, theirs))
    if args.save:
        np.savez(args.save, tokens=tokens, library=theirs, lrnn=ours)


def main():
    p = argparse.ArgumentParser(description="Compare the logits of lrnn with those of the library "
                                            "that defines a checkpoint.")
    p.add_argument("checkpoint", type=Path, help="folder with config.json and safetensors")
    p.add_argument("--text", help="compare on this text (default: random token ids)")
    p.add_argument("--length", type=int, default=64, metavar="N",
                   help="number of random token ids (default: 64)")
    p.add_argument("--type", default="f32", help="type of the matrices (default: f32)")
    p.add_argument("--save", type=Path, metavar="FILE.npz",
                   help="write the arrays tokens [T], library and lrnn [T, n_vocab]")
    try:
        compare(p.parse_args())
    except (Failure, lrnn.Error, OSError, ValueError) as e:
        sys.exit(f"compare_logits.py: {e}")


if __name__ == "__main__":
    main()
