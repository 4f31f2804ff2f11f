"""The model that will be written: metadata, tensors with their sources, and what was decided on the way.

A family takes what it knows out of the checkpoint. What nobody took is refused by name, so nothing is dropped silently.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checkpoint import Checkpoint
from .errors import DataError, ModelError
from .readers.tensor import FLOAT_DTYPES, Tensor
from .transforms import SAME, How, Shape

# keys of transformers and of training that do not change what the network computes
IGNORED_KEYS = frozenset("""
    architectures model_type transformers_version torch_dtype dtype _name_or_path auto_map use_cache initializer_range
    attn_mode fuse_norm fuse_swiglu fuse_cross_entropy fuse_linear_cross_entropy use_l2warp
    bos_token_id eos_token_id pad_token_id max_position_embeddings hidden_ratio tie_word_embeddings vocab_size
    hidden_size num_hidden_layers intermediate_size
    return_dict output_hidden_states output_attentions torchscript use_bfloat16 pruned_heads chunk_size_feed_forward
    is_encoder_decoder is_decoder cross_attention_hidden_size add_cross_attention tie_encoder_decoder finetuning_task
    id2label label2id tokenizer_class prefix sep_token_id decoder_start_token_id task_specific_params problem_type
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens tf_legacy_loss
    attention_dropout hidden_dropout resid_pdrop embd_pdrop pretraining_tp
""".split())


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def all_finite(x: np.ndarray) -> bool:
    """Smallest and largest tell: a NaN is both. Unlike isfinite(x) this takes no memory."""
    return x.size == 0 or bool(np.isfinite(x.min()) and np.isfinite(x.max()))


@dataclass(frozen=True)
class Out:
    """A tensor of the file."""

    name: str
    shape: Shape
    sources: tuple[Tensor, ...]
    how: How

    def load(self) -> np.ndarray:
        arrays = []
        for tensor in self.sources:
            x = tensor.load()
            if not all_finite(x):
                bad = int(np.size(x) - np.isfinite(x).sum())
                raise DataError(f"{tensor.file}: tensor {tensor.name} has {bad} of {x.size} values that are not finite numbers")
            arrays.append(x)
        y = np.ascontiguousarray(self.how.apply(arrays), dtype=np.float32)
        if y.shape != self.shape:
            raise AssertionError(f"{self.name}: made {y.shape}, promised {self.shape}")
        if not all_finite(y):
            raise DataError(f"{self.sources[0].file}: tensor {self.sources[0].name} overflows when it is made into {self.name}")
        return y


class Model:
    def __init__(self, checkpoint: Checkpoint, family: str, known_keys: str = ""):
        self.checkpoint = checkpoint
        self.family = family
        self.arch = "lrnn"
        self.kv: dict[str, tuple[str, Any]] = {}          # key -> (type, value)
        self.outs: list[Out] = []
        self.notes: list[str] = []                        # decisions that a user should read
        self.facts: list[tuple[str, str]] = []            # lines of the summary
        self.eigenvalues = ("", "")                       # range, where it was read
        self.trained_length: int | None = None
        self.taken: set[str] = set()
        self.known_keys = IGNORED_KEYS | frozenset(known_keys.split())

    # -- configuration

    @property
    def config(self) -> dict[str, Any]:
        return self.checkpoint.config

    def get(self, key: str, default: Any = None) -> Any:
        """An option; null means the default, as in transformers."""
        value = self.config.get(key)
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if not is_number(value):
            raise ModelError(f"config.json: {key} is {value!r}, expected a number")
        return value

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if value <= 0:
            raise ModelError(f"config.json: {key} is {value!r}, expected a positive number")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value) or value < 1:
            raise ModelError(f"config.json: {key} is {value!r}, expected a positive integer")
        return int(value)

    def choice(self, key: str, default: str, choices: dict[str, str]) -> str:
        """An option that must be one of those the runtime computes; gives the runtime's word for it."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in choices:
            raise ModelError(f"config.json: {key} is {value!r}, supported: {', '.join(map(repr, choices))}")
        return choices[value]

    def flag(self, keys: tuple[str, ...], tensor: str) -> bool:
        """Whether a part exists. The tensors decide; a configuration that says otherwise is refused."""
        present = self.has(tensor)
        for key in keys:
            if self.config.get(key) is not None and bool(self.config[key]) != present:
                state = "present" if present else "missing"
                raise ModelError(f"config.json: {key} is {self.config[key]!r}, but tensor {tensor} is {state}")
        return present

    def refuse_unless(self, key: str, allowed: tuple, why: str) -> None:
        value = self.config.get(key)
        if value not in allowed:
            raise ModelError(f"config.json: {key} is {value!r}: {why}")

    def check_keys(self, ignored: frozenset[str]) -> None:
        for key, value in self.config.items():
            if value is not None and key not in self.known_keys and key not in ignored:
                raise ModelError(f"config.json: {key} = {value!r} is not known for {self.family}, and it may change what the model "
                                 f"computes (--ignore-key {key} if it does not)")

    # -- metadata

    def set_u32(self, key: str, value: int) -> None:
        self.kv[key] = ("u32", int(value))

    def set_f32(self, key: str, value: float) -> None:
        self.kv[key] = ("f32", float(value))

    def set_bool(self, key: str, value: bool) -> None:
        self.kv[key] = ("bool", bool(value))

    def set_str(self, key: str, value: str) -> None:
        self.kv[key] = ("str", value)

    def set_array(self, key: str, kind: str, value: list) -> None:
        self.kv[key] = (f"[{kind}]", value)

    # -- tensors

    def has(self, name: str) -> bool:
        return name in self.checkpoint.tensors

    def shape(self, name: str, rank: int | None = None) -> Shape:
        if name not in self.checkpoint.tensors:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} is missing")
        shape = self.checkpoint.tensors[name].shape
        if rank is not None and len(shape) != rank:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} has shape {list(shape)}, expected {rank} dimensions")
        return shape

    def take(self, name: str, shape: Shape, vector: bool = False) -> Tensor:
        found = self.shape(name)
        same = [d for d in found if d != 1] == [d for d in shape if d != 1] if vector else found == tuple(shape)
        if not same:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} has shape {list(found)}, expected {list(shape)}")
        tensor = self.checkpoint.tensors[name]
        if tensor.dtype not in FLOAT_DTYPES:
            raise ModelError(f"{tensor.file}: tensor {name} has type {tensor.dtype}, expected F32, F16, BF16 or F64")
        self.taken.add(name)
        return tensor

    def drop(self, name: str) -> None:
        """A tensor that the network never reads."""
        if self.has(name):
            self.taken.add(name)

    def put(self, name: str, source: str | list[str], shape: Shape | list[Shape], how: How = SAME) -> None:
        """Write `name`, made by `how` from the source or sources, which have the shape or shapes given."""
        sources = [source] if isinstance(source, str) else source
        shapes = shape if isinstance(shape, list) else [shape] * len(sources)
        tensors = tuple(self.take(s, x, how.vector) for s, x in zip(sources, shapes, strict=True))
        self.outs.append(Out(name, how.shape([t.shape for t in tensors]), tensors, how))

    def put_if_there(self, name: str, source: str, shape: Shape) -> None:
        """The same for a tensor whose presence is its own switch."""
        if self.has(source):
            self.put(name, source, shape)

    def rows(self, dst: str, src: str, table: list[tuple]) -> None:
        """A table of (name, source, source's shape, transformation = SAME) under the prefixes dst and src."""
        for name, source, shape, *how in table:
            sources = [src + s for s in source] if isinstance(source, list) else src + source
            self.put(dst + name, sources, shape, *how)

    def constant(self, name: str, shape: Shape, value: float | np.ndarray) -> None:
        """A tensor that is not in the checkpoint: one that would do nothing, or follows from its configuration."""
        self.outs.append(Out(name, shape, (), How(lambda s: shape, lambda a: np.full(shape, value, np.float32))))

    def refuse_leftovers(self) -> None:
        left = [n for n in self.checkpoint.tensors if n not in self.taken]
        if left:
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise ModelError(f"{self.checkpoint.name}: tensor {left[0]} is not part of a {self.family} model as its config.json "
                             f"describes it{more}")

    def count_layers(self, prefix: str) -> int:
        """Layers in the checkpoint: prefix0., prefix1., … without holes."""
        found = {name[len(prefix):].split(".", 1)[0] for name in self.checkpoint.tensors if name.startswith(prefix)}
        n = len(found)
        if n == 0 or found != {str(i) for i in range(n)}:
            raise ModelError(f"{self.checkpoint.name}: layers {prefix}0 … are expected without holes, found {sorted(found)[:8]}")
        stated = self.get("num_hidden_layers", self.get("n_layer", n))
        if stated != n:
            raise ModelError(f"{self.checkpoint.name}: config.json says {stated} layers, the tensors have {n}")
        return n

    def fact(self, label: str, text: str) -> None:
        self.facts.append((label, text))
