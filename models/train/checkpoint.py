"""Models by their configuration, and checkpoints in the layouts of their libraries."""

import json
from pathlib import Path

import yaml
from safetensors.torch import save_file
from torch import nn

from layers import LanguageModel
from xlstm import XLSTM


def make_model(config: dict) -> nn.Module:
    """config.json of transformers and fla has a model_type, config.yaml of xlstm has none."""
    return (LanguageModel if "model_type" in config else XLSTM)(config)


def save_model(model: nn.Module, folder: Path) -> None:
    """Writes the configuration and model.safetensors. Mamba's configuration has no key for the
    eigenvalue range: it is an option of lrnn-convert."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {k: v for k, v in model.config.items() if k != "signed"}
    if isinstance(model, XLSTM):
        text = yaml.safe_dump(dict(model=config), sort_keys=False)
        (folder / "config.yaml").write_text(text)
    else:
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()},
              folder / "model.safetensors", metadata={"format": "pt"})
