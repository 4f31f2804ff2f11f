"""One module a family: names, shapes and transformations, with the reason beside each."""

from ..checkpoint import Checkpoint
from ..errors import ModelError
from ..model import Model
from . import (delta_net, gated_delta_net, gated_delta_product, gla, hgrn2, kda, mamba, mamba2, mlstm, olmo_hybrid, retnet, rwkv6, rwkv7,
               transformer)

BY_MODEL_TYPE = {
    "delta_net":           delta_net.convert,
    "gated_deltanet":      gated_delta_net.convert,
    "gated_deltaproduct":  gated_delta_product.convert,
    "gated_delta_product": gated_delta_product.convert,    # as the authors spell it
    "kda":                 kda.convert,
    "gla":                 gla.convert,
    "retnet":              retnet.convert,
    "hgrn2":               hgrn2.convert,
    "mamba":               mamba.convert,
    "falcon_mamba":        mamba.convert_falcon,
    "mamba2":              mamba2.convert,
    "xlstm":               mlstm.convert,
    "olmo_hybrid":         olmo_hybrid.convert,
    "transformer":         transformer.convert_fla,
    "llama":               transformer.convert_hf,
    "mistral":             transformer.convert_hf,
    "qwen2":               transformer.convert_hf,
    "qwen3":               transformer.convert_hf,
}


def choose(c: Checkpoint):
    """The family's function. model_type decides; formats that have none are told by their tensors."""
    kind = c.config.get("model_type")
    if kind in ("rwkv6", "rwkv7") and "model.embeddings.weight" in c.tensors:
        return {"rwkv6": rwkv6.convert_fla, "rwkv7": rwkv7.convert_fla}[kind]
    if kind in BY_MODEL_TYPE:
        return BY_MODEL_TYPE[kind]
    if any(".rosa" in n or n.startswith("rosa") or ".s_emb" in n for n in c.tensors):
        name = next(n for n in c.tensors if ".rosa" in n or n.startswith("rosa") or ".s_emb" in n)
        raise ModelError(f"{c.name}: tensor {name} belongs to ROSA or DeepEmbed, which is another architecture than RWKV-7")
    if "blocks.0.att.r_k" in c.tensors:
        return rwkv7.convert_official
    if "blocks.0.att.time_maa_w1" in c.tensors or "rwkv.blocks.0.attention.time_maa_w1" in c.tensors:
        return rwkv6.convert_official
    if kind is None and "ssm_cfg" in c.config:             # state-spaces
        cfg = c.config["ssm_cfg"]
        layer = cfg.get("layer", "Mamba1") if isinstance(cfg, dict) else "Mamba1"
        if layer not in ("Mamba1", "Mamba2"):
            raise ModelError(f"config.json: ssm_cfg.layer is {layer!r}, supported: Mamba1, Mamba2")
        return mamba.convert if layer == "Mamba1" else mamba2.convert
    if kind is None and "layers.0.mixer.x_proj.weight" in c.tensors:
        return mamba.convert
    if kind is None:
        raise ModelError(f"{c.name}: no config.json with a model_type, and the tensors are not those of an official RWKV-6, RWKV-7 "
                         "or Mamba model")
    raise ModelError(f"config.json: model_type is {kind!r}, supported: {', '.join(sorted(set(BY_MODEL_TYPE) | {'rwkv6', 'rwkv7'}))}")


def convert(c: Checkpoint, option: str, ignored: frozenset[str], trained_length: int | None) -> Model:
    """The model to write. Refuses what is missing, what is left over, and options that nobody has looked at."""
    m = choose(c)(c, option)
    m.check_keys(ignored)
    m.refuse_leftovers()
    if trained_length is not None:
        m.trained_length = trained_length
        if m.arch != "lrnn":
            m.set_u32(f"{m.arch}.context_length", trained_length)
    elif m.trained_length is None and c.config.get("max_position_embeddings") is not None:
        m.notes.append(f"max_position_embeddings = {c.config['max_position_embeddings']} is a default that training does not set; "
                       "--trained-length N states what is known")
    return m
