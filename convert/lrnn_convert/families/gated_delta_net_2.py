"""Gated DeltaNet-2 (fla's layer `GatedDeltaNet2`): KDA with two gates in place of β, one per key
channel for what is erased and one per value channel for what is written. fla has no model around
it; the checkpoint is its language model with this layer, with the model_type `gdn2`."""

from ..family import Family, Range
from ..model import Model
from .kda import write_gates, write_keys
from .layer_parts import (check_groups, convert_fla, head_length, write_conv, write_output,
                          write_projections)

FAMILY = Family("gated_delta_net_2", Range.BY_KEY)

KEYS = "expand_v head_dim num_heads num_v_heads use_short_conv allow_neg_eigval"


def convert(checkpoint, option: str) -> Model:
    return convert_fla(checkpoint, option, FAMILY, KEYS, _mixer)


def _mixer(m: Model, dst: str, src: str, layer: int, D: int) -> None:
    H = m.count("num_heads", 16)
    HV = m.count("num_v_heads", H)
    key_dim, K = head_length(m, src + "q_proj.weight", H)
    value_dim, P = head_length(m, src + "v_proj.weight", HV, "num_v_heads")
    check_groups(m, H, HV)
    write_projections(m, dst, src, D, key_dim, key_dim, value_dim)
    m.rows(dst, src, [
        ("ssm_erase.weight", "b_proj.weight", (key_dim, D)),
        ("ssm_write.weight", "w_proj.weight", (value_dim, D)),
    ])
    write_gates(m, dst, src, D, H, key_dim, value_dim)
    width = write_conv(m, dst, src, ("q", key_dim), ("k", key_dim), ("v", value_dim))
    write_output(m, dst, src, D, value_dim, P, gate=False)

    if "lrnn.head_count" not in m.kv:
        write_keys(m, H, HV, K, P, width)


MODEL_TYPES = {"gdn2": convert}
