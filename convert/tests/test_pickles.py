"""Files of torch, written here by Python's pickler with stand-ins for torch's names."""

import io
import math
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import tiny

from lrnn_convert.errors import DataError
from lrnn_convert.readers.tensor import FLOAT_DTYPES
from lrnn_convert.readers.torch_pickle import read_torch

STORAGE_OF = {"float32": "FloatStorage", "float16": "HalfStorage", "uint16": "BFloat16Storage",
              "int64": "LongStorage"}


@pytest.fixture
def torch(monkeypatch):
    """Modules with torch's names, so that the pickler can refer to them."""
    made = {name: types.ModuleType(name)
            for name in ("torch", "torch._utils", "torch.nn", "torch.nn.parameter")}
    for storage in STORAGE_OF.values():
        setattr(made["torch"], storage, type(storage, (), {"__module__": "torch"}))

    def function(module, name):
        def f(*args):
            raise AssertionError("the reader must not call this")
        f.__module__, f.__qualname__, f.__name__ = module, name, name
        setattr(made[module], name, f)

    function("torch._utils", "_rebuild_tensor_v2")
    function("torch._utils", "_rebuild_parameter")
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


class Fake:
    """A tensor: a view (offset, shape, stride) of a storage."""

    def __init__(self, storage, shape=None, stride=None, offset=0, parameter=False):
        self.storage, self.offset, self.parameter = storage, offset, parameter
        self.shape = storage.shape if shape is None else shape
        self.stride = stride or tuple(math.prod(self.shape[i + 1 :])
                                      for i in range(len(self.shape)))

    def __reduce__(self):
        utils = sys.modules["torch._utils"]
        if self.parameter:
            tensor = Fake(self.storage, self.shape, self.stride, self.offset)
            return utils._rebuild_parameter, (tensor, True, OrderedDict())
        return utils._rebuild_tensor_v2, (Ref(self.storage), self.offset, self.shape, self.stride,
                                          False, OrderedDict())


class Ref:
    def __init__(self, storage):
        self.storage = storage


class Pickler(pickle.Pickler):
    def __init__(self, file, legacy):
        super().__init__(file, protocol=2)
        self.legacy, self.keys, self.data = legacy, {}, []

    def persistent_id(self, obj):
        if not isinstance(obj, Ref):
            return None
        x = obj.storage
        if id(x) not in self.keys:
            self.keys[id(x)] = str(len(self.keys))
            self.data.append(x)
        kind = getattr(sys.modules["torch"], STORAGE_OF[x.dtype.name])
        pid = ("storage", kind, self.keys[id(x)], "cpu", x.size)
        return pid + (None,) if self.legacy else pid


def dump(obj, legacy=False):
    out = io.BytesIO()
    p = Pickler(out, legacy)
    p.dump(obj)
    return out.getvalue(), p


def save_zip(path, obj, compression=zipfile.ZIP_STORED, byteorder="little"):
    data, p = dump(obj)
    with zipfile.ZipFile(path, "w", compression) as z:
        z.writestr("any_name/data.pkl", data)
        z.writestr("any_name/byteorder", byteorder)
        for i, x in enumerate(p.data):
            z.writestr(f"any_name/data/{i}", x.tobytes())
        z.writestr("any_name/version", "3\n")


def save_legacy(path, obj):
    data, p = dump(obj, legacy=True)
    keys = [p.keys[id(x)] for x in p.data]
    head = [pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    storages = [struct.pack("<Q", x.size) + x.tobytes() for x in p.data]
    path.write_bytes(b"".join([*head, data, pickle.dumps(keys, 2), *storages]))


SAVERS = {"zip": save_zip, "legacy": save_legacy}


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
def test_views_types_and_parameters(torch, tmp_path, saver):
    a = np.arange(12, dtype=np.float32)
    h = np.arange(6, dtype=np.float16)
    b = (np.arange(4, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    state = OrderedDict(
        plain=Fake(a, (3, 4)), transposed=Fake(a, (4, 3), (1, 4)), part=Fake(a, (4,), offset=4),
        half=Fake(h, parameter=True), bf16=Fake(b), steps=Fake(np.arange(3, dtype=np.int64)),
        epoch=3, empty=Fake(a, (0, 4)))
    optimizer = {"lr": 0.1, "betas": (0.9, 0.95)}
    saver(tmp_path / "m.pth", {"state_dict": state, "optimizer": optimizer})
    t = read_torch(tmp_path / "m.pth")
    assert set(t) == set(state) - {"epoch"}
    assert np.array_equal(t["plain"].load(), a.reshape(3, 4))
    assert np.array_equal(t["transposed"].load(), a.reshape(3, 4).T)
    assert np.array_equal(t["part"].load(), a[4:8])
    assert np.array_equal(t["half"].load(), h.astype(np.float32))
    assert np.array_equal(t["bf16"].load(), np.arange(4, dtype=np.float32))
    assert t["steps"].dtype == "I64" and t["empty"].load().shape == (0, 4)


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
def test_a_pickled_checkpoint_gives_the_same_file(torch, bench, saver):
    _, t = tiny.rwkv7()
    bench.convert(None, t)
    want = bench.out.read_bytes()
    source = bench.path / "ckpt.pth"       # the name is written into the file
    saver(source, OrderedDict((n, Fake(x)) for n, x in t.items()))
    assert bench.run(source=source) == 0, bench.err
    assert bench.out.read_bytes() == want


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
def test_nothing_is_executed(torch, tmp_path, saver):
    trace = tmp_path / "trace"
    saver(tmp_path / "m.pth", {"w": Fake(np.ones(3, np.float32)), "x": Evil(trace)})
    with pytest.raises(DataError, match=r"system.*refused"):
        read_torch(tmp_path / "m.pth")
    assert not trace.exists()


def test_a_view_beyond_its_storage(torch, tmp_path):
    save_zip(tmp_path / "m.pth", {"w": Fake(np.ones(3, np.float32), (2, 2))})
    with pytest.raises(DataError, match="reaches element 3"):
        read_torch(tmp_path / "m.pth")


def test_compressed_and_big_endian_are_refused(torch, tmp_path):
    state = {"w": Fake(np.ones(3000, np.float32))}
    save_zip(tmp_path / "m.pth", state, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match="compressed"):
        read_torch(tmp_path / "m.pth")
    save_zip(tmp_path / "m.pth", state, byteorder="big")
    with pytest.raises(DataError, match="big"):
        read_torch(tmp_path / "m.pth")


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
def test_truncated_anywhere(torch, tmp_path, saver):
    path = tmp_path / "m.pth"
    saver(path, {"w": Fake(np.arange(5, dtype=np.float32)),
                 "v": Fake(np.arange(7, dtype=np.float32))})
    data = path.read_bytes()
    for n in range(len(data) - 1):
        path.write_bytes(data[:n])
        with pytest.raises(DataError):
            read_torch(path)


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
def test_damaged_anywhere(torch, tmp_path, saver):
    """A changed byte leaves a readable file or causes a DataError, never another exception."""
    path = tmp_path / "m.pth"
    saver(path, {"w": Fake(np.arange(5, dtype=np.float32)),
                 "v": Fake(np.arange(7, dtype=np.float32), parameter=True)})
    data = path.read_bytes()
    for i in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:i] + bytes([data[i] ^ flip]) + data[i + 1 :])
            try:
                for tensor in read_torch(path).values():
                    if tensor.dtype in FLOAT_DTYPES:
                        tensor.load()
            except DataError:
                pass
