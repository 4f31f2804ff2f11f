import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gguf import GGUFReader  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

from lrnn_convert.cli import main  # noqa: E402


class File:
    """A GGUF file read back by the gguf package."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.kv = {name: field.contents() for name, field in reader.fields.items()}
        self.types = {t.name: t.tensor_type.name for t in reader.tensors}
        self.ne = {t.name: [int(d) for d in t.shape] for t in reader.tensors}
        self.data = {t.name: np.array(t.data) for t in reader.tensors}


class Bench:
    """Writes a tiny checkpoint, converts it, reads the result."""

    def __init__(self, path, capsys):
        self.path, self.capsys = path, capsys
        self.folder = path / "ckpt"
        self.out = path / "out.gguf"
        self.err = ""

    def save(self, config, tensors):
        self.folder.mkdir(exist_ok=True)
        if config is not None:
            text = config if isinstance(config, str) else json.dumps(config)
            (self.folder / "config.json").write_text(text)
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, self.folder / "model.safetensors")
        return self.folder

    def run(self, *args, source=None):
        code = main([str(source or self.folder), "-o", str(self.out), *args])
        self.err = self.capsys.readouterr().err
        return code

    def convert(self, config, tensors, *args):
        self.save(config, tensors)
        code = self.run(*args)
        assert code == 0, self.err
        return File(self.out)

    def refuse(self, config, tensors, *args):
        """Converting must fail: gives (exit code, the sentence), and no file may be left."""
        self.save(config, tensors)
        code = self.run(*args)
        assert code != 0
        assert not list(self.path.glob("out.gguf*"))
        said = [line for line in self.err.splitlines() if line.startswith("lrnn-convert: ")]
        assert len(said) == 1 and self.err.endswith(said[0] + "\n")       # values are read after the summary was printed
        return code, said[0]


@pytest.fixture
def bench(tmp_path, capsys):
    return Bench(tmp_path, capsys)
