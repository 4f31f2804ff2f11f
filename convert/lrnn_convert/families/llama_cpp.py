"""llama.cpp's own architectures, written if llama.cpp computes the model exactly, so that it can
load the file."""

from ..model import Model
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


def explain(m: Model, arch: str, reasons: list[str]) -> None:
    """Notes why a model that resembles one of llama.cpp's is written as lrnn."""
    if reasons:
        m.notes.append(f"written as lrnn, not as llama.cpp's {arch}: {', '.join(reasons)}")
