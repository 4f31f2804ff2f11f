"""llama.cpp's own architectures, written if llama.cpp computes the model exactly, so that it can
load the file."""

from dataclasses import dataclass

from ..errors import ModelError, shown
from ..model import Model
from ..transforms import neighbors, scaled
from .layer_parts import size_fact

UNKNOWN_CONTEXT = 1048576                  # llama.cpp's converter writes it for recurrent models


def reasons_against(*reasons: tuple[str, bool]) -> list[str]:
    """The texts of (text, applies) that apply. They go into the file."""
    return [text for text, applies in reasons if applies]


def write_common(m: Model, arch: str, layers: int, width: int, vocab: int, inner: int) -> None:
    m.arch = arch
    m.set_u32(f"{arch}.context_length", m.trained_length or UNKNOWN_CONTEXT)
    m.set_u32(f"{arch}.embedding_length", width)
    m.set_u32(f"{arch}.block_count", layers)
    m.set_u32(f"{arch}.vocab_size", vocab)
    m.set_u32(f"{arch}.feed_forward_length", inner)
    m.set_u32(f"{arch}.attention.head_count", 0)               # required; 0: no attention
    size_fact(m, layers, width, vocab, inner)


@dataclass(frozen=True)
class HybridAttention:
    """The attention layers of a hybrid: heads of q, heads of k and v, the length of all."""

    heads: int
    kv: int
    length: int

    @staticmethod
    def read(m: Model, src: str) -> "HybridAttention":
        """From the tensors of one layer."""
        heads = m.count("num_attention_heads")
        length = m.shape(src + "q_proj.weight", 2)[0] // heads
        kv = m.shape(src + "k_proj.weight", 2)[0] // max(length, 1)
        for key, n in (("num_key_value_heads", kv), ("head_dim", length)):
            if m.get(key, n) != n:
                raise ModelError(f"config.json: {key} is {shown(m.get(key))}; the tensors of "
                                 f"{src}q_proj and k_proj have {n}")
        return HybridAttention(heads, kv, length)

    def write_layer(self, m: Model, dst: str, src: str, width: int, q: float = 1.0, k: float = 1.0,
                    v: float = 1.0, out: float = 1.0, output: str = "o_proj.weight",
                    n_rot: int = 0) -> None:
        """q, k, v, out: multipliers that become part of the weights. n_rot: so many entries of a
        head, which RoPE turns, are ordered for its pairs of neighbors."""
        n, n_kv = self.heads * self.length, self.kv * self.length
        m.rows(dst, src, [
            ("attn_q.weight",      "q_proj.weight", (n, width),
             neighbors(self.heads, n_rot) if n_rot else scaled(q)),
            ("attn_k.weight",      "k_proj.weight", (n_kv, width),
             neighbors(self.kv, n_rot) if n_rot else scaled(k)),
            ("attn_v.weight",      "v_proj.weight", (n_kv, width), scaled(v)),
            ("attn_output.weight", output,          (width, n),    scaled(out)),
        ])

    def write_keys(self, m: Model, arch: str, attends: list[bool] | None = None) -> None:
        """attends: which layers have attention; None: all."""
        m.set_u32(f"{arch}.attention.head_count", self.heads)
        if attends is None:
            m.set_u32(f"{arch}.attention.head_count_kv", self.kv)
        else:
            m.set_array(f"{arch}.attention.head_count_kv", "i32", [self.kv * x for x in attends])
        m.set_u32(f"{arch}.attention.key_length", self.length)
        m.set_u32(f"{arch}.attention.value_length", self.length)


def read_kinds(m: Model, key: str, names: dict[str, str], layers: int) -> list[str]:
    """A list of config.json that names the kind of every layer, translated."""
    kinds = m.get(key)
    if (not isinstance(kinds, list) or len(kinds) != layers
            or not all(isinstance(kind, str) and kind in names for kind in kinds)):
        raise ModelError(f"config.json: {key} is {shown(kinds)}; expected one of "
                         f"{', '.join(names)} for each of {layers} layers")
    return [names[kind] for kind in kinds]


def refuse_one_kind(m: Model, kinds: list[str]) -> None:
    for kind in ("recurrent", "attention"):
        if kind not in kinds:
            raise ModelError(f"{m.checkpoint.name}: no layer is {kind}; expected at least one")


def explain(m: Model, arch: str, reasons: list[str]) -> None:
    """Notes why a model that resembles one of llama.cpp's is written as lrnn."""
    if reasons:
        m.notes.append(f"written as lrnn, not as llama.cpp's {arch}: {', '.join(reasons)}")
