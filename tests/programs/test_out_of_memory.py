"""Programs whose memory is limited end with one sentence and exit code 1, never with a signal."""

import re
import resource
import subprocess

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
