"""Tensors are streamed: the converter needs at most twice the memory of the largest tensor."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from lrnn_convert.checkpoint import open_checkpoint
from lrnn_convert.families import convert as convert_checkpoint
from lrnn_convert.writer import write_gguf

PACKAGE = Path(__file__).resolve().parents[1]
ROWS, WIDTH = 1 << 17, 64                  # 32 MiB as F32
SLACK = 8 << 20                            # for the interpreter

# Runs in a separate process, with a limit on further allocations as a multiple of that tensor.
CONVERT = f"""
import resource, sys
from lrnn_convert.cli import main
status = open("/proc/self/status").read().splitlines()
have = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmData"))
limit = have + int(float(sys.argv[1]) * {4 * ROWS * WIDTH}) + {SLACK}
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


def convert(bench, times, kind):
    command = [sys.executable, "-c", CONVERT, str(times), bench.folder, "-o", bench.out, "--type",
               kind, "--quiet"]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=PACKAGE)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("kind", ["f32", "bf16", "q8_0"])
def test_twice_the_largest_tensor_is_enough(bench, kind):
    config, tensors = tiny.delta_net()
    for name, x in tensors.items():
        if x.shape[-1:] == (tiny.D,):
            tensors[name] = np.repeat(x, WIDTH // tiny.D, axis=-1)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = np.repeat(x, WIDTH // tiny.D, axis=0)
    for name in ("model.embeddings.weight", "lm_head.weight"):
        tensors[name] = np.ones((ROWS, WIDTH), np.float16)     # becomes F32 in memory
    bench.save(config | {"hidden_size": WIDTH}, tensors)
    done = convert(bench, 2, kind)
    assert done.returncode == 0, done.stderr
    assert bench.out.stat().st_size > 2 * ROWS * WIDTH
    done = convert(bench, 0.5, kind)                           # the limit is real
    assert (done.returncode, done.stderr) == (1, "lrnn-convert: out of memory\n")


def resident(path):
    """Bytes of a mapped file that are in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    return sum(1024 * int(next(x for x in lines if x.startswith("Rss:")).split()[1])
               for line in lines if line.endswith(str(path)))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_pages_are_released(bench):
    config, tensors = tiny.delta_net()
    bench.save(config, tensors | {"lm_head.weight": np.ones((ROWS, tiny.D), np.float32),
                                  "model.embeddings.weight": np.ones((ROWS, tiny.D), np.float32)})
    file = bench.folder / "model.safetensors"
    checkpoint = open_checkpoint(bench.folder)
    checkpoint.tensors["lm_head.weight"].load().sum()
    assert resident(file) >= 4 * ROWS * tiny.D
    write_gguf(convert_checkpoint(checkpoint, "auto", frozenset(), None), bench.out, "f32")
    assert resident(file) < ROWS


def test_progress_bar_only_on_a_terminal(bench):
    pty = pytest.importorskip("pty")
    bench.save(*tiny.delta_net())
    command = [sys.executable, "-m", "lrnn_convert", bench.folder, "-o", bench.out, "--quiet"]
    terminal, end = pty.openpty()
    running = subprocess.Popen(command, stderr=end, cwd=PACKAGE)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):     # Linux reports the closed end as an error
        while piece := os.read(terminal, 1024):
            shown += piece
    os.close(terminal)
    assert running.wait() == 0 and b"  4 %" in shown and b"100 %" in shown
    assert subprocess.run(command, stderr=subprocess.PIPE, cwd=PACKAGE).stderr == b""
