"""Tensors are streamed: the converter needs less memory than the largest tensor."""

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
ROWS, WIDTH = 1 << 19, 64                  # 64 MiB as F16, 128 as F32

# Runs in a separate process; prints by how many KiB the conversion raised the peak, with the pages
# of mapped files.
CONVERT = """
import sys
from lrnn_convert.cli import main
def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
before = status("VmHWM")
code = main(sys.argv[1:])
print(status("VmHWM") - before)
sys.exit(code)
"""


def peak(bench, *options):
    """Bytes that a conversion needs."""
    command = [sys.executable, "-c", CONVERT, bench.folder, "-o", bench.out, "--quiet", *options]
    return 1024 * int(subprocess.run(command, stdout=subprocess.PIPE, cwd=PACKAGE,
                                     check=True).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("source, kind", [(np.float16, "f16"), (np.float16, "bf16"),
                                          (np.float32, "q8_0")])
def test_less_memory_than_the_largest_tensor(bench, source, kind):
    config, tensors = tiny.delta_net()
    for name, x in tensors.items():
        if x.shape[-1:] == (tiny.D,):
            tensors[name] = np.repeat(x, WIDTH // tiny.D, axis=-1)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = np.repeat(x, WIDTH // tiny.D, axis=0)
    tied = {"hidden_size": WIDTH, "tie_word_embeddings": True}     # compared before they are read
    for name in ("model.embeddings.weight", "lm_head.weight"):
        tensors[name] = np.ones((ROWS, WIDTH), source)
    bench.save(config | tied, tensors)
    needed = peak(bench, "--type", kind)
    assert bench.out.stat().st_size > ROWS * WIDTH
    assert needed < ROWS * WIDTH           # half of the tensor in F16
    assert needed > 1 << 20                # something was measured


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("fused", [False, True])
def test_less_memory_than_the_experts_of_a_layer(bench, fused):
    """The experts of a layer are one tensor; one expert is in memory at a time."""
    X, F = 32, 1 << 16                     # 64 MiB in a tensor as F32, 2 MiB in an expert
    config, tensors = tiny.qwen35moe(X=X, F=F, fused=fused)
    bench.save(config, {n: x.astype(np.float16) for n, x in tensors.items()})
    needed = peak(bench, "--type", "f16")
    assert bench.out.stat().st_size > tiny.L * 3 * 2 * X * F * tiny.D
    assert 1 << 20 < needed < X * F * tiny.D               # a quarter of the tensor


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_out_of_memory_is_one_line(bench):
    config, tensors = tiny.delta_net()
    bench.save(config, tensors | {"lm_head.weight": np.ones((ROWS, tiny.D), np.float16),
                                  "model.embeddings.weight": np.ones((ROWS, tiny.D), np.float16)})
    limited = CONVERT.replace("code =", "import resource\nhave = 1024 * status('VmData')\n"
                              "resource.setrlimit(resource.RLIMIT_DATA, (have, have))\ncode =")
    command = [sys.executable, "-c", limited, bench.folder, "-o", bench.out, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE)
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
