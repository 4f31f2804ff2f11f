"""The families. MODULES is the only list of them; all other code and the tests read FAMILIES.

A module of a family, or of one more layout of its checkpoints, defines

    FAMILY                   its name and eigenvalue range
    ALSO                     optional, further families that it writes
    MODEL_TYPES              model_type of config.json -> function that converts such a checkpoint
    recognize(checkpoint)    optional, for layouts without a model_type: that function, or None

and contains names, shapes and transformations of the tensors, with the reason for each.
"""

from ..checkpoint import Checkpoint
from ..errors import ModelError, shown
from ..model import Model
from . import (bailingmoe3, delta_net, falcon_h1, gated_delta_net, gated_delta_net_2,
               gated_delta_product, gla, granitehybrid, hgrn2, jamba, kda, kimi_linear, lfm2,
               mamba, mamba2, megatron_gdp, mlstm, nemotron_h, olmo_hybrid, qwen35, retnet, rwkv6,
               rwkv7, rwkv_qwen, transformer, xlstm)

MODULES = (delta_net, gated_delta_net, olmo_hybrid, qwen35, gated_delta_product,
           megatron_gdp, kda, gated_delta_net_2, kimi_linear, bailingmoe3, lfm2, mamba, jamba,
           mamba2, granitehybrid, nemotron_h, falcon_h1, gla, retnet, hgrn2, rwkv6, rwkv7,
           rwkv_qwen, mlstm, xlstm, transformer)

FAMILIES = {family.name: family for module in MODULES
            for family in (module.FAMILY, *getattr(module, "ALSO", ()))}

BY_MODEL_TYPE = {kind: convert
                 for module in MODULES for kind, convert in module.MODEL_TYPES.items()}


def choose(c: Checkpoint):
    """The function that converts the checkpoint."""
    for module in MODULES:
        convert = module.recognize(c) if hasattr(module, "recognize") else None
        if convert is not None:
            return convert
    kind = c.config.get("model_type")
    if kind is None:
        raise ModelError(f"{c.name}: no config.json with a model_type, and the tensors are not "
                         "those of an official RWKV-6, RWKV-7, Mamba or xLSTM model")
    if not isinstance(kind, str) or kind not in BY_MODEL_TYPE:
        raise ModelError(f"config.json: model_type is {shown(kind)}; expected one of "
                         f"{', '.join(sorted(BY_MODEL_TYPE))}")
    return BY_MODEL_TYPE[kind]


def convert(c: Checkpoint, option: str, ignored: frozenset[str],
            trained_length: int | None) -> Model:
    """The model to write. Missing tensors, leftover tensors and unknown keys are errors."""
    m = choose(c)(c, option)
    m.check_keys(ignored)
    m.refuse_leftovers()
    if trained_length is not None:
        m.trained_length = trained_length
        if m.arch != "lrnn":
            m.set_u32(f"{m.arch}.context_length", trained_length)
    elif m.trained_length is None and c.config.get("max_position_embeddings") is not None:
        m.notes.append(f"max_position_embeddings = "
                       f"{shown(c.config['max_position_embeddings'])} is a "
                       "default that training does not set; --trained-length N states what is "
                       "known")
    return m
