"""A mixture with many experts that no token chooses: they are not read when it is loaded."""

import re
import sys

import gguf
import numpy as np

EXPERTS, USED = 16384, 4                   # USED: those of the golden model
MIB = 1 << 20


def write_many(source, path, experts=EXPERTS):
    """A golden model with more experts, zeros, which the router avoids."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        value = experts if key == f"{arch}.expert_count" else field.contents()
        writer.add_key_value(key, value, field.types[0], sub_type=sub_type)
    for t in reader.tensors:
        data = t.data
        if "_exps." in t.name or t.name.endswith("ffn_gate_inp.weight"):
            data = np.zeros((experts, *data.shape[1:]), np.float32)
            data[:USED] = t.data
        writer.add_tensor(t.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Runs a program and prints the most memory that it had, in KiB. A child of the tests would count
# the memory of the tests, from which it was forked.
MEASURE = """
import os, sys
pid = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print("most:", usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_quantizing_needs_less_than_the_experts_of_a_layer(lrnn, config):
    path = lrnn.work / "many.gguf"
    write_many(lrnn.golden / "granite_h_moe.gguf", path, 2 * EXPERTS)
    out = lrnn.run(sys.executable, "-c", MEASURE, lrnn.bin / "lrnn-quantize", path, "small.gguf",
                   "Q8_0", "-t", 1).stdout
    largest = max(t.n_bytes for t in gguf.GGUFReader(path).tensors)
    most = int(re.search(r"most: (\d+)", out)[1]) * 1024
    print(f"experts of a layer: {largest / MIB:.0f} MiB, in memory: {most / MIB:.0f} MiB")
    # the program itself, a slab of 8 MiB in F32 and its 2 MiB in Q8_0
    assert config["sanitize"] or (largest > 31 * MIB and most < 36 * MIB)


def test_experts_are_not_read(lrnn, config):
    path = lrnn.work / "many.gguf"
    write_many(lrnn.golden / "granite_h_moe.gguf", path)
    (lrnn.work / "ids.txt").write_text("1 2 3\n")
    assert path.stat().st_size > 90 * MIB
    # on a terminal, where loading shows its progress and reads ahead
    run = lrnn.on_terminal(sys.executable, "-c", MEASURE, lrnn.bin / "lrnn-perplexity", "logits",
                           "-m", path, "--no-huge-pages", "--tokens", "ids.txt", "--out",
                           "logits.npy", "-t", 1)
    assert run.close() == lrnn.Code.OK, run.text()
    most = int(re.search(r"most: (\d+)", run.text())[1]) * 1024
    print(f"{path.stat().st_size / MIB:.0f} MiB, of which {most / MIB:.0f} MiB were in memory")
    assert config["sanitize"] or most < 60 * MIB
