"""Mixtures of experts, in llama.cpp's layout: one tensor for the same matrix of all experts."""

from ..errors import ModelError
from ..model import Model
from ..transforms import FLAT, STACK, expert_rows


def read_counts(m: Model, experts: str, used: str) -> tuple[int, int]:
    """The number of experts X, and how many of them a token uses."""
    X, k = m.count(experts), m.count(used)
    if k > X:
        raise ModelError(f"config.json: {used} is {k}; expected at most {experts}, {X}")
    return X, k


def _stacked(m: Model, name: str, src: str, part: str, X: int, shape: tuple[int, int]) -> None:
    m.put(name, [f"{src}{e}.{part}.weight" for e in range(X)], shape, STACK)


def expert_width(m: Model, src: str) -> int:
    """F, from the tensors of a layer: one matrix per expert, or one tensor for all."""
    fused = src + "down_proj"
    return m.shape(fused, 3)[2] if m.has(fused) else m.shape(src + "0.down_proj.weight", 2)[1]


def write_experts(m: Model, dst: str, src: str, X: int, D: int, F: int, gated: bool,
                  names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> None:
    """From `src`E.{gate,up,down}_proj.weight, or from `src`gate_up_proj and `src`down_proj."""
    if m.has(src + "gate_up_proj"):
        m.rows(dst, src, [
            ("ffn_gate_exps.weight", "gate_up_proj", (X, 2 * F, D), expert_rows(0, F)),
            ("ffn_up_exps.weight",   "gate_up_proj", (X, 2 * F, D), expert_rows(F, 2 * F)),
            ("ffn_down_exps.weight", "down_proj",    (X, D, F)),
        ])
        return
    if gated:
        _stacked(m, dst + "ffn_gate_exps.weight", src, names[0], X, (F, D))
    _stacked(m, dst + "ffn_up_exps.weight", src, names[1], X, (F, D))
    _stacked(m, dst + "ffn_down_exps.weight", src, names[2], X, (D, F))


def write_shared(m: Model, dst: str, src: str, D: int, F: int, gated: bool) -> None:
    """The expert that all tokens use."""
    if gated:
        m.put(dst + "ffn_gate_shexp.weight", src + "gate_proj.weight", (F, D))
    m.put(dst + "ffn_up_shexp.weight", src + "up_proj.weight", (F, D))
    m.put(dst + "ffn_down_shexp.weight", src + "down_proj.weight", (D, F))


def write_shared_gate(m: Model, dst: str, source: str, D: int) -> None:
    m.put(dst + "ffn_gate_inp_shexp.weight", source, (1, D), FLAT)


def write_expert_keys(m: Model, arch: str, X: int, k: int, F: int, shared: int) -> None:
    m.set_u32(f"{arch}.expert_count", X)
    m.set_u32(f"{arch}.expert_used_count", k)
    m.set_u32(f"{arch}.expert_feed_forward_length", F)
    m.set_u32(f"{arch}.expert_shared_feed_forward_length", shared)
    m.fact("experts", f"{k} of {X}, width {F}" + (f", shared {shared}" if shared else ""))


def write_group_keys(m: Model, arch: str, X: int, k: int, groups: str = "n_group",
                     defaults: tuple[int, int] = (1, 1)) -> None:
    """Experts in groups, of which only the best are used."""
    n, used = m.count(groups, defaults[0]), m.count("topk_group", defaults[1])
    if X % n or used > n or used < n and (X // n < 2 or X // n * used < k):
        raise ModelError(f"config.json: {groups} is {n} and topk_group {used}; expected groups of "
                         f"at least 2 of {X} experts, and {k} in those that are used")
    if n > 1:
        m.set_u32(f"{arch}.expert_group_count", n)
        m.set_u32(f"{arch}.expert_group_used_count", used)
