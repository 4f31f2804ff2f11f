"""llama.cpp's own architectures, written where llama.cpp computes the model exactly, so that the file loads there unchanged."""

from ..model import Model

UNKNOWN_CONTEXT = 1048576                  # what llama.cpp's converter writes for recurrent models


def write_common(m: Model, arch: str, layers: int, width: int, vocab: int, inner: int) -> None:
    m.arch = arch
    m.set_u32(f"{arch}.context_length", m.trained_length or UNKNOWN_CONTEXT)
    m.set_u32(f"{arch}.embedding_length", width)
    m.set_u32(f"{arch}.block_count", layers)
    m.set_u32(f"{arch}.vocab_size", vocab)
    m.set_u32(f"{arch}.feed_forward_length", inner)
    m.set_u32(f"{arch}.attention.head_count", 0)               # required there; 0 marks a model without attention
    m.fact("size", f"{layers} layers, width {width}, vocabulary {vocab}" + (f", feed-forward {inner}" if inner else ""))


def explain(m: Model, arch: str, reasons: list[str]) -> None:
    """Say why a model that looks like one of llama.cpp's is not written as one."""
    if reasons:
        m.notes.append(f"written as lrnn, not as llama.cpp's {arch}: {', '.join(reasons)}")
