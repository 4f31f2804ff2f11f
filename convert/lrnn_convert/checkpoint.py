"""A checkpoint: a configuration, if the format has one, and tensors by name."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DataError
from .readers.config import read_config, read_json, read_yaml
from .readers.distcp import METADATA, read_distcp
from .readers.safetensors import read_safetensors
from .readers.tensor import Tensor
from .readers.torch_pickle import read_torch

# torch.compile and DistributedDataParallel prepend these to every name
PREFIXES = ("_orig_mod.", "module.")
MAX_NAME = 1000
MAX_PREFIXES = 4                           # of each; both can wrap a model more than once

CONFIG_FILES = ("config.json", "config.yaml")
INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
READERS = {".safetensors": read_safetensors, ".bin": read_torch, ".pt": read_torch,
           ".pth": read_torch}
# other files that users have, and what to do with them
NEXT_STEPS = {
    ".ckpt": "save the weights alone with torch: "
             "torch.save(torch.load('{name}')['state_dict'], 'weights.pth')",
    ".gguf": "this is a model file; lrnn-quantize changes its type",
}


@dataclass
class Checkpoint:
    name: str
    folder: Path
    config: dict[str, Any]                 # {} if the format has none
    tensors: dict[str, Tensor]


def input_files(path: Path) -> Iterator[Path]:
    """Files that belong to the checkpoint: all files of a folder, or a file and its configuration.
    They need not exist."""
    if not path.is_dir():
        yield from (path, *(path.parent / name for name in CONFIG_FILES))
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


def open_checkpoint(path: Path, config_path: Path | None = None) -> Checkpoint:
    """config_path: default is config.json or config.yaml next to the weights."""
    if path.is_dir():
        folder = path
        tensors = _read_folder(folder)
    elif path.is_file():
        folder = path.parent
        tensors = _read_file(path)
    else:
        raise DataError(f"{path}: no such file or folder")
    if any(len(name) > MAX_NAME for name in tensors):
        raise DataError(f"{path}: the name of a tensor has more than {MAX_NAME} characters")
    if config_path is None:
        config_path = next((folder / name for name in CONFIG_FILES if (folder / name).is_file()),
                           None)
    config = {}
    if config_path is not None:
        is_yaml = config_path.suffix in (".yaml", ".yml")
        config = (read_yaml if is_yaml else read_config)(config_path)
    name = path.resolve().name if path.is_dir() else path.stem
    return Checkpoint(name, folder, config, _strip_prefixes(tensors))


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix not in READERS:
        step = NEXT_STEPS.get(path.suffix, "").format(name=path.name)
        raise DataError(f"{path}: the name ends in {path.suffix!r}; expected one of "
                        f"{', '.join(READERS)}{'; ' * bool(step)}{step}")
    return READERS[path.suffix](path)


def _read_folder(folder: Path) -> dict[str, Tensor]:
    for index in INDEX_FILES:
        if (folder / index).is_file():
            return _read_sharded(folder, folder / index)
    for single in SINGLE_FILES:
        if (folder / single).is_file():
            return _read_file(folder / single)
    distributed = sorted(p.parent for p in folder.rglob(METADATA) if p.is_file())
    if len(distributed) == 1:
        return read_distcp(distributed[0])
    if distributed:
        raise DataError(f"{folder}: {len(distributed)} distributed checkpoints; name one of them: "
                        + some([str(p) for p in distributed]))
    files = sorted(folder.iterdir())
    found = ([p for p in files if p.suffix in READERS]
             or [p for p in files if p.suffix in NEXT_STEPS][:1])
    if len(found) == 1:
        return _read_file(found[0])
    if not found:
        raise DataError(f"{folder}: no weights; expected {', '.join(INDEX_FILES + SINGLE_FILES)} "
                        "or a single .pth")
    raise DataError(f"{folder}: {len(found)} weight files and no index; name one of them: "
                    + some([p.name for p in found]))


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _read_sharded(folder: Path, index_path: Path) -> dict[str, Tensor]:
    index = read_json(index_path)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if (not isinstance(weight_map, dict)
            or not all(isinstance(f, str) for f in weight_map.values())):
        raise DataError(f"{index_path}: no weight_map from tensor names to files")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(weight_map.values())):
        if "/" in file or "\\" in file or file in ("", ".", ".."):
            raise DataError(f"{index_path}: the shard name is {file!r}; expected a plain file name")
        if not (folder / file).is_file():
            raise DataError(f"{folder / file}: this shard of {index_path.name} is missing")
        shard = _read_file(folder / file)
        for name in shard:
            if weight_map.get(name) != file:
                raise DataError(f"{folder / file}: contains tensor {name}, which "
                                f"{index_path.name} places in {weight_map.get(name)}")
        tensors |= shard
    for name, file in weight_map.items():
        if name not in tensors:
            raise DataError(f"{folder / file}: tensor {name} of {index_path.name} is missing")
    return tensors


def _strip_prefixes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for _ in range(MAX_PREFIXES):
        for prefix in PREFIXES:
            if all(name.startswith(prefix) for name in tensors):
                tensors = {name[len(prefix):]: t for name, t in tensors.items()}
    return tensors
