"""Parts that RWKV-6 and RWKV-7 share."""

import numpy as np

from ..model import Model
from ..transforms import Transform
from .layer_parts import write_heads, write_sizes

OFFICIAL_GROUP_EPS = 64e-5                 # ln_x of the official code, for every head length


def stack(n: int, width: int) -> Transform:
    """n vectors to {width, 1, 1, n}: llama.cpp's fused lerp."""
    return Transform(lambda s: (n, 1, 1, width),
                     lambda a: np.stack([x.reshape(-1) for x in a]).reshape(n, 1, 1, width),
                     any_rank=True)


def write_norm(m: Model, dst: str, src: str, width: int) -> None:
    """Writes a LayerNorm. norm_bias = false omits the bias, which is then zero."""
    m.put(dst + ".weight", src + ".weight", (width,))
    if m.has(src + ".bias"):
        m.put(dst + ".bias", src + ".bias", (width,))
    else:
        m.constant(dst + ".bias", (width,), 0.0)


def write_outer_norms(m: Model, pre: str | None, final: str, width: int) -> None:
    """Writes the norm after the embedding, if there is one, and the final norm."""
    if pre is not None:
        write_norm(m, "token_embd_norm", pre, width)
    write_norm(m, "output_norm", final, width)


def check_fla(m: Model, attention: str) -> None:
    """Refuses unsupported options of fla; `attention` is the reason to refuse attention layers."""
    m.refuse_unless("attn", (None,), attention)
    m.refuse_unless("hidden_act", (None, "sqrelu"), "only sqrelu is supported")


def group_eps_reason(eps: float) -> tuple[str, bool]:
    return (f"group norm eps {eps:g}, there fixed at 64e-5", abs(eps - OFFICIAL_GROUP_EPS) > 1e-9)


def outer_reasons(m: Model, pre_norm: bool) -> tuple[tuple[str, bool], ...]:
    tied = not any(out.name == "output.weight" for out in m.outs)
    return ("no norm after the embedding", not pre_norm), ("tied embeddings", tied)


def write_keys(m: Model, layers: int, D: int, V: int, F: int, H: int, K: int, P: int, eps: float,
               group_eps: float, pre_norm: bool) -> None:
    """The keys of an lrnn file."""
    write_sizes(m, layers, D, V, eps, F)
    write_heads(m, H, K, P)
    m.set_f32("lrnn.output_norm_epsilon", group_eps)
    m.set_bool("lrnn.pre_norm", pre_norm)
