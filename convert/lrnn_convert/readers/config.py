"""config.json, as Python writes it: Infinity and NaN are accepted, and transformers' {"__float__": "Infinity"}."""

import json
from pathlib import Path
from typing import Any

from ..errors import DataError


def _floats(obj: dict) -> Any:
    if set(obj) == {"__float__"}:
        return float(obj["__float__"])
    return obj


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_hook=_floats)
    except (ValueError, RecursionError, TypeError) as e:
        raise DataError(f"{path}: not valid JSON: {e}") from None
    except OSError as e:
        raise DataError(f"{path}: {e.strerror}") from None


def read_config(path: Path) -> dict[str, Any]:
    config = read_json(path)
    if not isinstance(config, dict):
        raise DataError(f"{path}: found a {type(config).__name__}, expected an object")
    return config
