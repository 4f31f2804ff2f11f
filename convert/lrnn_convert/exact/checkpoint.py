"""A checkpoint made of arrays in memory, and the vectors that all exact models are made of."""

from pathlib import Path

import numpy as np

from ..checkpoint import Checkpoint
from ..readers.tensor import Tensor

BOS = "<s>"

# Embeddings have D/4 entries of this size and zeros elsewhere. Their mean square is then 2^18 for every token, which no epsilon can change,
# and the first RMSNorm gives exactly UNIT in place of each entry.
SIZE = 1024.0
UNIT = 2.0


def in_memory(name: str, config: dict, arrays: dict[str, np.ndarray]) -> Checkpoint:
    tensors = {n: Tensor(n, x.shape, "F32", name, lambda x=x: x) for n, x in ((n, np.asarray(x, np.float32)) for n, x in arrays.items())}
    return Checkpoint(name, Path("."), config, tensors)


def power_of_two(n: int) -> int:
    """The smallest one that is not below n."""
    return 1 << (n - 1).bit_length()


class Layout:
    """Places in the residual stream, given out one after the other."""

    def __init__(self):
        self.used = 0

    def take(self, n: int) -> range:
        self.used += n
        return range(self.used - n, self.used)

    def width(self, least: int) -> int:
        """D: room for all places and, in a quarter of them, for entries that give every token the same norm."""
        width = power_of_two(max(least, 4))
        while width < self.used + width // 4:
            width *= 2
        return width


def embeddings(tokens: list[dict[int, float]], width: int, first_free: int) -> np.ndarray:
    """One row a token. `tokens` says which places it has, as multiples of SIZE; the rest of its norm goes to places that nothing reads."""
    out = np.zeros((len(tokens), width), np.float32)
    for row, places in zip(out, tokens, strict=True):
        for place, value in places.items():
            row[place] = value
        left = width // 4 - round(float(np.sum(row.astype(np.float64) ** 2)), 6)
        n = round(left)
        if abs(left - n) > 1e-5 or n < 0 or first_free + n > width:
            raise AssertionError(f"squares of {places} leave {left} of {width // 4}")
        row[first_free:first_free + n] = 1.0
    return out * np.float32(SIZE)


def shell(width: int, inner: int, tokens: np.ndarray, output: np.ndarray, mixer: dict[str, np.ndarray],
          mlp: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """One layer of fla's language model. Without an MLP its matrices are zero."""
    zero = {"gate_proj": np.zeros((inner, width)), "up_proj": np.zeros((inner, width)), "down_proj": np.zeros((width, inner))}
    return {
        "model.embeddings.weight": tokens,
        "model.layers.0.attn_norm.weight": np.ones(width),
        "model.layers.0.mlp_norm.weight": np.ones(width),
        "model.norm.weight": np.ones(width),
        "lm_head.weight": output,
        **{f"model.layers.0.attn.{name}": x for name, x in mixer.items()},
        **{f"model.layers.0.mlp.{name}.weight": x for name, x in (mlp or zero).items()},
    }


def shell_config(model_type: str, width: int, inner: int, vocab: int, **options) -> dict:
    return {"model_type": model_type, "hidden_size": width, "num_hidden_layers": 1, "intermediate_size": inner, "vocab_size": vocab,
            "norm_eps": 1e-6, "hidden_act": "swish", "tie_word_embeddings": False, **options}


def identity_conv(channels: int) -> np.ndarray:
    """A short convolution that passes the newest token through."""
    taps = np.zeros((channels, 1, 4))
    taps[:, 0, 3] = 1.0
    return taps
