"""The keys that every model file has. They precede the keys of the family."""

from . import OUTPUT_VERSION
from .model import Model
from .readers.config import config_text
from .types import TYPES


def describe(m: Model, name: str, kind: str) -> None:
    family_keys = m.kv
    m.kv = {}
    m.set_str("general.architecture", m.arch)
    m.set_str("general.type", "model")
    m.set_str("general.name", name)
    m.set_u32("general.quantization_version", 2)
    m.set_u32("general.file_type", int(TYPES[kind].file_type))
    m.set_u32("lrnn.format_version", 1)
    m.set_str("lrnn.family", m.family.name)
    m.set_str("lrnn.eigenvalues", m.eigenvalues[0])
    m.set_str("lrnn.eigenvalues_source", m.eigenvalues[1])
    if m.trained_length is not None:
        m.set_u32("lrnn.context_length_trained", m.trained_length)
    m.set_str("lrnn.source", "; ".join([m.checkpoint.name, *m.notes]))
    if m.config:
        m.set_str("lrnn.source_config", config_text(m.config))
    m.set_str("lrnn.converter", f"lrnn-convert {OUTPUT_VERSION}")
    m.kv |= family_keys
