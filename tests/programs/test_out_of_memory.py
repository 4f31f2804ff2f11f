"""Programs whose memory is limited end with one sentence and exit code 1, never with a signal."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20

# Below the first limit the dynamic linker fails; above the last one every program succeeds.
LIMITS = range(9 * MIB, 41 * MIB, MIB // 2)


def run_limited(lrnn, limit, program, *args):
    def set_limit():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run([lrnn.bin / program, *map(str, args)], cwd=lrnn.work,
                          capture_output=True, preexec_fn=set_limit)


def commands(lrnn):
    model = lrnn.models / "text-deltaproduct2-neg.gguf"
    (lrnn.work / "ids.txt").write_text("1 2 3 4 5 6 7 8\n")
    return {
        "lrnn-cli": ["-m", model, "-p", "hello", "-n", 3, "-s", 1, "-t", 1],
        "lrnn-inspect": [model],
        "lrnn-quantize": [model, "q8.gguf", "Q8_0", "-t", 1],
        "lrnn-probe": ["-m", lrnn.models / "parity-delta-neg.gguf", "--length", 40, "--trials", 2,
                       "-t", 1],
        "lrnn-perplexity": ["logits", "-m", model, "--tokens", "ids.txt", "--out", "logits.npy",
                            "-t", 1],
    }


@pytest.mark.parametrize("program", ["lrnn-cli", "lrnn-inspect", "lrnn-quantize", "lrnn-probe",
                                     "lrnn-perplexity"])
def test_limited_memory(lrnn, config, program):
    if config["sanitize"]:
        pytest.skip("the address sanitizer reserves terabytes of address space")
    codes = set()
    for limit in LIMITS:
        done = run_limited(lrnn, limit, program, *commands(lrnn)[program])
        if done.returncode == 127:  # the dynamic linker
            continue
        text = done.stderr.decode(errors="replace")
        if text.strip() == "libgomp: Out of memory allocating 8 bytes":  # before main
            continue
        assert done.returncode in (0, 1), f"{limit} bytes: exit code {done.returncode}: {text}"
        if done.returncode == 1:
            assert re.match(rf"{program}[^\n]*: [^\n]*memory", text), f"{limit} bytes: {text}"
        codes.add(done.returncode)
    assert codes == {0, 1}


@pytest.fixture
def control_group():
    """A control group of the memory controller: its folder and the file of its limit."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        folder = Path(root) / f"lrnn-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / limit).exists():
            yield folder, limit
            folder.rmdir()
            return
        folder.rmdir()
    pytest.skip("control groups cannot be made here")


def test_less_memory_than_the_model(lrnn, root, config, control_group):
    """Weights stay in the mapped file if a control group leaves no room for huge pages: slower, but
    the OOM killer is not called."""
    if config["sanitize"]:
        pytest.skip("the address sanitizer needs more memory")
    folder, limit = control_group
    subprocess.run([sys.executable, root / "tests/tools/make-wide-model.py",
                    lrnn.models / "text-deltaproduct2-neg.gguf", "65536", "wide.gguf"],
                   cwd=lrnn.work, check=True)
    command = ["lrnn-cli", "-m", "wide.gguf", "-p", "hello", "-n", 3, "-s", 1, "-t", 1]
    expected = lrnn.run(*command).stdout
    assert (lrnn.work / "wide.gguf").stat().st_size > 128*MIB
    (folder / limit).write_text(str(64*MIB))
    done = subprocess.run(["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh",
                           lrnn.bin / command[0], *map(str, command[1:])],
                          cwd=lrnn.work, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
