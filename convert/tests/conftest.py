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
    """A GGUF file, read by the gguf package."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.kv = {name: field.contents() for name, field in reader.fields.items()}
        self.types = {t.name: t.tensor_type.name for t in reader.tensors}
        self.ne = {t.name: [int(d) for d in t.shape] for t in reader.tensors}
        self.data = {t.name: np.array(t.data) for t in reader.tensors}


class Bench:
    """Writes a tiny checkpoint, converts it and reads the result."""

    def __init__(self, path, capsys):
        self.path, self.capsys = path, capsys
        self.folder = path / "ckpt"
        self.out = path / "out.gguf"
        self.err = ""

    def save(self, config, tensors):
        self.folder.mkdir(exist_ok=True)
        config_path = self.folder / "config.json"
        config_path.unlink(missing_ok=True)
        if config is not None:
            config_path.write_text(config if isinstance(config, str) else json.dumps(config))
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()},
                  self.folder / "model.safetensors")
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
        """Converting must fail and leave no file; returns (exit code, error message)."""
        self.save(config, tensors)
        code = self.run(*args)
        assert code != 0
        assert not list(self.path.glob("out.gguf*"))
        errors = [line for line in self.err.splitlines() if line.startswith("lrnn-convert: ")]
        # one line, after the summary if a value is wrong
        assert len(errors) == 1 and self.err.endswith(errors[0] + "\n")
        return code, errors[0]


def header_of(path):
    """(header, data) of a safetensors file."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + n]), data[8 + n :]


def rewrite_header(path, change):
    """Changes the header of a safetensors file in place; the data stay."""
    header, data = header_of(path)
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read_strict_json(text):
    """Parses JSON without NaN and Infinity."""
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def bench(tmp_path, capsys):
    return Bench(tmp_path, capsys)
