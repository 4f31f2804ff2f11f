"""config.json as Python writes it, with Infinity, NaN and transformers' {"__float__": "Infinity"};
config.yaml of xLSTM."""

import json
import math
from pathlib import Path
from typing import Any

from ..errors import DataError

MAX_BYTES = 1 << 20                        # of a YAML file
MAX_DEPTH = 64                             # of lists and objects; recursion over them is safe


def _floats(obj: dict) -> Any:
    if set(obj) == {"__float__"}:
        return float(obj["__float__"])
    return obj


def _check_depth(value: Any) -> None:
    todo = [(value, 0)]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, (dict, list)):
            if depth == MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            inner = value.values() if isinstance(value, dict) else value
            todo += [(x, depth + 1) for x in inner]


def read_json(path: Path) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_hook=_floats)
        _check_depth(value)
        return value
    except (ValueError, RecursionError, TypeError) as e:
        raise DataError(f"{path}: not valid JSON: {e}") from None
    except OSError as e:
        raise DataError(f"{path}: {e.strerror}") from None


def read_config(path: Path) -> dict[str, Any]:
    config = read_json(path)
    if not isinstance(config, dict):
        raise DataError(f"{path}: found a {type(config).__name__}; expected an object")
    return config


def read_yaml(path: Path) -> dict[str, Any]:
    """The section `model` of a YAML file, or the whole file."""
    import yaml                            # comes with gguf
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
        if any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("aliases are not supported")      # a few lines can expand to gigabytes
        config = yaml.safe_load(text)
        _check_depth(config)
    except (ValueError, RecursionError, yaml.YAMLError) as e:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(e).split())}") from None
    except OSError as e:
        raise DataError(f"{path}: {e.strerror}") from None
    if isinstance(config, dict) and isinstance(config.get("model"), dict):
        config = config["model"]
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise DataError(f"{path}: found a {type(config).__name__}; expected keys and values")
    return config


def config_text(config: dict[str, Any]) -> str:
    """The configuration as strict JSON, with non-finite numbers as transformers writes them."""

    def finite(x: Any) -> Any:
        if isinstance(x, float) and not math.isfinite(x):
            return {"__float__": "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"}
        if isinstance(x, dict):
            return {k: finite(v) for k, v in x.items()}
        if isinstance(x, list):
            return [finite(v) for v in x]
        return x

    return json.dumps(finite(config), sort_keys=True, ensure_ascii=False, allow_nan=False)
