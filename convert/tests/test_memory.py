"""Tensors are streamed: converting takes no more memory than the largest tensor, twice."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

ROWS, WIDTH = 1 << 17, 64                  # 32 MiB as F32
SLACK = 8 << 20                            # the interpreter's own

# In a process of its own: what it may still allocate is limited to twice the largest tensor.
CONVERT = f"""
import resource, sys
from lrnn_convert.cli import main
have = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (have + int(float(sys.argv[1]) * {4 * ROWS * WIDTH}) + {SLACK},) * 2)
sys.exit(main(sys.argv[2:]))
"""


def convert(bench, times, kind):
    return subprocess.run([sys.executable, "-c", CONVERT, str(times), bench.folder, "-o", bench.out, "--type", kind, "--quiet"],
                          stderr=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[1])


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
        tensors[name] = np.ones((ROWS, WIDTH), np.float16)     # on the way it is F32, whatever it was
    bench.save(config | {"hidden_size": WIDTH}, tensors)
    done = convert(bench, 2, kind)
    assert done.returncode == 0, done.stderr
    assert bench.out.stat().st_size > 2 * ROWS * WIDTH
    assert convert(bench, 0.5, kind).returncode != 0           # the limit is real


def test_a_bar_on_a_terminal_and_none_elsewhere(bench):
    pty = pytest.importorskip("pty")
    bench.save(*tiny.delta_net())
    command = [sys.executable, "-m", "lrnn_convert", bench.folder, "-o", bench.out, "--quiet"]
    home = Path(__file__).resolve().parents[1]
    terminal, end = pty.openpty()
    running = subprocess.Popen(command, stderr=end, cwd=home)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):     # Linux says so when the other end is closed
        while piece := os.read(terminal, 1024):
            shown += piece
    os.close(terminal)
    assert running.wait() == 0 and b"  4 %" in shown and b"100 %" in shown
    assert subprocess.run(command, stderr=subprocess.PIPE, cwd=home).stderr == b""
