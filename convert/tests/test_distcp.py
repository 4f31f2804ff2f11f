"""Checkpoints of torch.distributed.checkpoint: one that torch wrote (tests/tools/make-distcp.py),
and whole models written here by Python's pickler with stand-ins for torch's names."""

import itertools
import pickle
import random
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tiny
from conftest import File
from test_pickles import Fake, save_zip, torch  # noqa: F401

from lrnn_convert.errors import DataError
from lrnn_convert.readers.distcp import read_distcp

SAMPLE = Path(__file__).parent / "data" / "distcp"
WEIGHTS = {
    "model.layers.0.w": ("F32", np.arange(35, dtype=np.float32).reshape(7, 5) / 8),
    "lm_head.weight": ("F32", -np.arange(6, dtype=np.float32).reshape(2, 3)),
    "bias": ("BF16", np.arange(4, dtype=np.float32) / 2),
    "whole": ("F16", np.arange(3, dtype=np.float32)),
}


def test_sample_of_torch():
    """The chunks of three processes, without the optimizer."""
    tensors = read_distcp(SAMPLE)
    assert tensors.keys() == WEIGHTS.keys()
    for name, (dtype, values) in WEIGHTS.items():
        assert tensors[name].dtype == dtype and tensors[name].shape == values.shape
        assert (tensors[name].load() == values).all()


def test_changed_bytes(tmp_path):
    """Whatever the bytes are: the tensors, or one sentence."""
    folder = tmp_path / "c"
    shutil.copytree(SAMPLE, folder)
    rng, refused = random.Random(3), 0
    for name in (".metadata", "__0_0.distcp"):
        data = (folder / name).read_bytes()
        for _ in range(400 if name == ".metadata" else 100):
            changed = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(len(data))] = rng.choice((0, 1, 0x28, 0x7F, 0x80, 0xFF))
            if rng.random() < 0.1:
                del changed[rng.randrange(len(changed)):]
            (folder / name).write_bytes(changed)
            try:
                for tensor in read_distcp(folder).values():
                    if tensor.dtype in ("F32", "F16", "BF16"):
                        tensor.load()
            except DataError as e:
                assert "\n" not in str(e) and str(folder) in str(e)
                refused += 1
        (folder / name).write_bytes(data)
    assert refused > 200


# ---- written here

MODULE = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"


@pytest.fixture
def names(torch, monkeypatch):  # noqa: F811
    """Classes with torch's names."""
    made = {}
    for module, classes in ((MODULE, ("Metadata", "TensorStorageMetadata", "ChunkStorageMetadata",
                                      "TensorProperties", "MetadataIndex")),
                            (FILES, ("_StorageInfo",))):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
        for name in classes:
            made[name] = type(name, (), {"__module__": module, "__qualname__": name})
            setattr(sys.modules[module], name, made[name])

    class Size(tuple):
        def __reduce__(self):
            return Size, (tuple(self),)

    Size.__module__, Size.__qualname__ = "torch", "Size"
    torch["torch"].Size = made["Size"] = Size
    for name in ("float32", "bfloat16"):
        dtype = type(name, (), {"__module__": "torch", "__qualname__": name})
        setattr(torch["torch"], name, dtype)
        made[name] = dtype
    return made


def make(names, kind, **fields):
    obj = names[kind]()
    obj.__dict__ |= fields
    return obj


class Writer:
    """Saves tensors in chunks; `cuts` gives the cuts along each dimension of a tensor."""

    def __init__(self, names, folder):
        self.names, self.folder = names, folder
        self.entries, self.stored, self.paths = {}, {}, {}
        self.data = {"__0_0.distcp": b"", "__1_0.distcp": b"junk"}

    def add(self, key, x, cuts=None, path=None, sizes=None):
        size = self.names["Size"]
        cuts = cuts or [[0]] * x.ndim
        ends = [[*c[1:], n] for c, n in zip(cuts, x.shape)]
        chunks = []
        for i, place in enumerate(itertools.product(*(range(len(c)) for c in cuts))):
            begin = [c[p] for c, p in zip(cuts, place)]
            part = x[tuple(slice(b, e[p]) for b, e, p in zip(begin, ends, place))]
            file = f"__{i % 2}_0.distcp"
            save_zip(self.folder / "part", Fake(np.array(part)))
            raw = (self.folder / "part").read_bytes()
            info = make(self.names, "_StorageInfo", relative_path=file,
                        offset=len(self.data[file]), length=len(raw))
            self.data[file] += raw
            chunks.append(make(self.names, "ChunkStorageMetadata", offsets=size(begin),
                               sizes=size(sizes or part.shape)))
            index = make(self.names, "MetadataIndex", fqn=key, offset=size(begin), index=i)
            self.stored[index] = info
        properties = make(self.names, "TensorProperties", dtype=self.names["float32"])
        self.entries[key] = make(self.names, "TensorStorageMetadata", properties=properties,
                                 size=size(x.shape), chunks=chunks)
        self.paths[key] = path or (key,)

    def save(self):
        (self.folder / "part").unlink(missing_ok=True)
        for name, data in self.data.items():
            (self.folder / name).write_bytes(data)
        root = make(self.names, "Metadata", state_dict_metadata=self.entries,
                    planner_data=self.paths, storage_data=self.stored)
        (self.folder / ".metadata").write_bytes(pickle.dumps(root, protocol=4))
        return self.folder


@pytest.fixture
def writer(names, tmp_path):
    folder = tmp_path / "step-1"
    folder.mkdir()
    return Writer(names, folder)


def content(file):
    """All but the name of the checkpoint."""
    kv = {key: value for key, value in file.kv.items()
          if key not in ("general.name", "lrnn.source")}
    return kv, {name: (x.shape, x.tobytes()) for name, x in file.data.items()}


@pytest.mark.parametrize("nested", [True, False], ids=["under model", "at the top level"])
def test_whole_model(bench, writer, nested):
    """The same content as from safetensors. Tensors are cut along one or both dimensions."""
    config, tensors = tiny.delta_net()
    expected = content(bench.convert(config, tensors))
    for i, (name, x) in enumerate(tensors.items()):
        cuts = [[0, 1] if d == 0 and n > 1 else [0, n // 2] if i % 2 and n > 1 else [0]
                for d, n in enumerate(x.shape)]
        key, path = ("model." + name, ("model", name)) if nested else (name, None)
        writer.add(key, x, cuts, path)
        writer.add(f"optim.{name}", x, None, ("optim", "state", name))
    writer.save()
    config_path = bench.folder / "config.json"
    assert bench.run("--config", str(config_path), source=writer.folder) == 0
    assert content(File(bench.out)) == expected
    # the folder of an experiment, with one checkpoint in it
    shutil.copy(config_path, writer.folder.parent)
    assert bench.run(source=writer.folder.parent) == 0
    assert content(File(bench.out)) == expected
    shutil.copytree(writer.folder, writer.folder.parent / "step-2")
    assert bench.run(source=writer.folder.parent) == 3
    assert "2 distributed checkpoints; name one of them: " in bench.err and "step-2" in bench.err


X = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_cuts(writer):
    for i, cuts in enumerate(([[0], [0]], [[0, 1, 3], [0]], [[0], [0, 2]], [[0, 2], [0, 1, 2]])):
        writer.add(f"t{i}", X, cuts)
    writer.add("scalar", np.float32(3).reshape(()))
    tensors = read_distcp(writer.save())
    for i in range(4):
        assert (tensors[f"t{i}"].load() == X).all()
    assert tensors["scalar"].load() == 3


def refuse(writer, text):
    with pytest.raises(DataError, match=text):
        for tensor in read_distcp(writer.save()).values():
            tensor.load()


def test_chunks_that_do_not_cover(writer):
    writer.add("t", X, [[0, 2], [0]])
    entry = writer.entries["t"]
    size = writer.names["Size"]
    whole = list(entry.chunks)
    entry.chunks = whole[:1]
    refuse(writer, r"tensor t: 1 chunks do not cover the shape \[4, 3\]")
    entry.chunks = whole + whole[:1]
    refuse(writer, r"two chunks start at \[0, 0\]")
    for sizes in ((1, 3), (3, 3), (2, 2), (2, 4)):
        changed = make(writer.names, "ChunkStorageMetadata", offsets=size((0, 0)),
                       sizes=size(sizes))
        entry.chunks = [changed, whole[1]]
        refuse(writer, "do not cover")
    entry.chunks = [make(writer.names, "ChunkStorageMetadata", offsets=size((0,)),
                         sizes=size((4,)))]
    refuse(writer, "a chunk is malformed")
    entry.chunks = whole
    assert (read_distcp(writer.save())["t"].load() == X).all()
    writer.add("t", X, [[0, 2], [0, 1]])
    entry = writer.entries["t"]
    for i in range(4):                     # a hole in a grid of four
        chunk = entry.chunks.pop(i)
        refuse(writer, r"tensor t: 3 chunks do not cover")
        entry.chunks.insert(i, chunk)


def test_damaged_storage(writer):
    writer.add("t", X)
    info, = writer.stored.values()
    for change, text in (({"relative_path": "../x"}, "plain file name"),
                         ({"relative_path": 3}, "plain file name"),
                         ({"relative_path": "none"}, "none: this file of .metadata is missing"),
                         ({"offset": 10**6}, "truncated"), ({"length": -1}, "malformed"),
                         ({"offset": 3, "length": 600}, "not a complete zip|no header"),
                         ({"length": 60}, "not a complete zip"),
                         ({"length": 40}, r"shape \[4, 3\] in 40 bytes"),
                         ({"transform_descriptors": ["zstd"]}, "transformations .*zstd")):
        before = dict(info.__dict__)
        info.__dict__ |= change
        refuse(writer, text)
        info.__dict__.clear()
        info.__dict__ |= before
    writer.entries["t"].properties.dtype = writer.names["bfloat16"]
    refuse(writer, r"has F32 \[4, 3\]; expected BF16 \[4, 3\]")
    writer.entries["t"].properties.dtype = writer.names["float32"]
    writer.stored.clear()
    refuse(writer, r"the chunk at \[0, 0\] is stored nowhere")
    writer.entries.clear()
    refuse(writer, "no tensors")


class Call:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_code_is_not_executed(writer, tmp_path):
    writer.add("t", X)
    writer.paths["evil"] = Call(str(tmp_path / "executed"))
    refuse(writer, r"the pickle refers to (_?io)\.open; refused")
    assert not (tmp_path / "executed").exists()


def test_not_metadata(tmp_path):
    (tmp_path / ".metadata").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match="expected the metadata"):
        read_distcp(tmp_path)
