"""Checkpoints in memory, and the vectors that all exact models consist of."""

from pathlib import Path

import numpy as np

from ..checkpoint import Checkpoint
from ..readers.tensor import Tensor

BOS = "<s>"

# Embeddings have D/4 entries of this size and zeros elsewhere. Their mean square is then 2^18 for
# every token, large enough that no epsilon changes it, and the first RMSNorm turns each entry into
# exactly UNIT.
SIZE = 1024.0
UNIT = 2.0


def in_memory(name: str, config: dict, arrays: dict[str, np.ndarray]) -> Checkpoint:
    tensors = {}
    for tensor, array in arrays.items():
        x = np.asarray(array, np.float32)
        tensors[tensor] = Tensor(tensor, x.shape, "F32", name, lambda x=x: x)
    return Checkpoint(name, Path("."), config, tensors)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def power_of_four(n: int) -> int:
    """The smallest key size 4, 16, … that is at least n. Its root is a power of two: the L2 norm of
    a key is computed as RMSNorm / √K, and would be rounded otherwise."""
    return 4 ** max(1, -(-(n - 1).bit_length() // 2))


class Layout:
    """Assigns channels of the residual stream, one after another."""

    def __init__(self):
        self.used = 0

    def take(self, n: int) -> range:
        self.used += n
        return range(self.used - n, self.used)

    def width(self, least: int) -> int:
        """D: room for all channels and, in a quarter of D, for the entries that give every token
        the same norm."""
        width = power_of_two(max(least, 4))
        while width < self.used + width // 4:
            width *= 2
        return width


def embeddings(tokens: list[dict[int, float]], width: int, first_free: int) -> np.ndarray:
    """One row per token. `tokens` gives its channels as multiples of SIZE; entries in channels that
    nothing reads, from first_free on, complete its norm."""
    out = np.zeros((len(tokens), width), np.float32)
    for row, channels in zip(out, tokens, strict=True):
        for channel, value in channels.items():
            row[channel] = value
        left = width // 4 - round(float(np.sum(row.astype(np.float64) ** 2)), 6)
        n = round(left)
        if abs(left - n) > 1e-5 or n < 0 or first_free + n > width:
            raise AssertionError(f"squares of {channels} leave {left} of {width // 4}")
        row[first_free:first_free + n] = 1.0
    return out * np.float32(SIZE)


def zero_mlp(width: int, inner: int) -> dict[str, np.ndarray]:
    return {"gate_proj": np.zeros((inner, width)), "up_proj": np.zeros((inner, width)),
            "down_proj": np.zeros((width, inner))}


def fla_model(width: int, inner: int, tokens: np.ndarray, output: np.ndarray,
              mixer: dict[str, np.ndarray],
              mlp: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """fla's language model with one layer. The matrices of the MLP default to zero."""
    mlp = mlp or zero_mlp(width, inner)
    return {
        "model.embeddings.weight": tokens,
        "model.layers.0.attn_norm.weight": np.ones(width),
        "model.layers.0.mlp_norm.weight": np.ones(width),
        "model.norm.weight": np.ones(width),
        "lm_head.weight": output,
        **{f"model.layers.0.attn.{name}": x for name, x in mixer.items()},
        **{f"model.layers.0.mlp.{name}.weight": x for name, x in mlp.items()},
    }


def fla_config(model_type: str, width: int, inner: int, vocab: int, **options) -> dict:
    return {"model_type": model_type, "hidden_size": width, "num_hidden_layers": 1,
            "intermediate_size": inner, "vocab_size": vocab, "norm_eps": 1e-6,
            "hidden_act": "swish", "tie_word_embeddings": False, **options}


def mamba_model(tokens: np.ndarray, output: np.ndarray,
                layer: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """transformers' Mamba and Mamba-2 with one layer."""
    width = tokens.shape[1]
    return {
        "backbone.embeddings.weight": tokens,
        "backbone.norm_f.weight": np.ones(width),
        "lm_head.weight": output,
        "backbone.layers.0.norm.weight": np.ones(width),
        **{f"backbone.layers.0.mixer.{name}": x for name, x in layer.items()},
    }


def identity_conv(channels: int) -> np.ndarray:
    """A short convolution that passes the newest token through."""
    taps = np.zeros((channels, 1, 4))
    taps[:, 0, 3] = 1.0
    return taps


def delta_mixer(q: np.ndarray, k: np.ndarray, v: np.ndarray, beta: np.ndarray, o: np.ndarray,
                conv: bool) -> dict[str, np.ndarray]:
    """The weights of a delta rule: q [H, K, D], k [n_h, H, K, D], v [n_h, H, P, D], β [n_h, H, D],
    o [D, H, P]; with convolutions that change nothing."""
    D, P = o.shape[0], o.shape[2]
    rows = {"q": q.reshape(-1, D), "k": k.reshape(-1, D), "v": v.reshape(-1, D)}
    return ({f"{x}_proj.weight": w for x, w in rows.items()}
            | {"b_proj.weight": beta.reshape(-1, D), "o_norm.weight": np.ones(P),
               "o_proj.weight": o.reshape(D, -1)}
            | {f"{x}_conv1d.weight": identity_conv(len(w)) for x, w in rows.items() if conv})
