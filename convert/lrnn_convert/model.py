"""The model to be written: metadata, tensors with their sources, and notes for the user.

A family takes the keys and tensors that it knows out of the checkpoint. Any other key or tensor is
an error that names it, so nothing is dropped silently.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checkpoint import Checkpoint
from .errors import DataError, ModelError, shown
from .family import Family
from .readers.tensor import FLOAT_DTYPES, Tensor, row_pieces
from .transforms import SAME, Shape, Transform

# keys of transformers and of training that do not change what the network computes
IGNORED_KEYS = frozenset("""
    architectures model_type transformers_version torch_dtype dtype _name_or_path auto_map use_cache
    initializer_range attn_mode fuse_norm fuse_swiglu fuse_cross_entropy fuse_linear_cross_entropy
    use_l2warp bos_token_id eos_token_id pad_token_id max_position_embeddings hidden_ratio
    tie_word_embeddings vocab_size hidden_size num_hidden_layers intermediate_size
    return_dict output_hidden_states output_attentions torchscript use_bfloat16 pruned_heads
    chunk_size_feed_forward is_encoder_decoder is_decoder cross_attention_hidden_size
    add_cross_attention tie_encoder_decoder finetuning_task id2label label2id tokenizer_class prefix
    sep_token_id decoder_start_token_id task_specific_params problem_type
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
    return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens tf_legacy_loss
    attention_dropout hidden_dropout resid_pdrop embd_pdrop pretraining_tp
""".split())


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_number(value: Any) -> bool:
    """A number that a float can hold."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and abs(value) < float(1 << 127))              # false for NaN


def is_text(value: Any) -> bool:
    """A string that UTF-8 can encode; JSON can contain half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


# what an item of an array must be
ARRAY_ITEMS = {"str": is_text, "f32": is_number, "bool": lambda x: isinstance(x, bool),
               "i32": lambda x: isinstance(x, int) and -1 << 31 <= x < 1 << 31}


def all_finite(x: np.ndarray) -> bool:
    """Checks the minimum and the maximum; a NaN is both. Needs no memory, unlike isfinite(x)."""
    return x.size == 0 or bool(np.isfinite(x.min()) and np.isfinite(x.max()))


def check_finite(tensor: Tensor, x: np.ndarray) -> None:
    """x: the values of the tensor, or some of them"""
    if not all_finite(x):
        bad = sum(int(np.size(y) - np.isfinite(y).sum()) for y in tensor.pieces())
        raise DataError(f"{tensor.file}: tensor {tensor.name} has {bad} non-finite values among "
                        f"{math.prod(tensor.shape)}")


@dataclass(frozen=True)
class OutputTensor:
    """A tensor of the model file."""

    name: str
    shape: Shape
    sources: tuple[Tensor, ...]
    transform: Transform

    def pieces(self) -> Iterator[np.ndarray]:
        """The values as float32, a few rows at a time. A tensor that consists of parts of its
        sources is also read like this; others are in memory as a whole."""
        if self.transform.parts is not None:
            for i, index in self.transform.parts([t.shape for t in self.sources]):
                for x in self.sources[i].pieces(index):
                    check_finite(self.sources[i], x)
                    yield x
        else:
            y = self._load()
            for rows in row_pieces(y.shape):
                yield y[rows]

    def _load(self) -> np.ndarray:
        arrays = []
        for tensor in self.sources:
            x = tensor.load()
            check_finite(tensor, x)
            arrays.append(x)
        y = np.ascontiguousarray(self.transform.apply(arrays), dtype=np.float32)
        if y.shape != self.shape:
            raise AssertionError(f"{self.name}: made {y.shape}, promised {self.shape}")
        if not all_finite(y):
            source = self.sources[0]
            raise DataError(f"{source.file}: tensor {source.name} overflows in the conversion to "
                            f"{self.name}")
        return y


class Model:
    def __init__(self, checkpoint: Checkpoint, family: Family, known_keys: str = ""):
        self.checkpoint = checkpoint
        self.family = family
        self.arch = "lrnn"
        self.kv: dict[str, tuple[str, Any]] = {}          # key -> (type, value)
        self.outs: list[OutputTensor] = []
        self.notes: list[str] = []                        # for the user; also in lrnn.source
        self.facts: list[tuple[str, str]] = []            # lines of the summary
        self.eigenvalues = ("", "")                       # range, its source
        self.eigenvalue_key: str | None = None            # its switch in config.json
        self.trained_length: int | None = None
        self.taken: set[str] = set()
        self.known_keys = IGNORED_KEYS | frozenset(known_keys.split())

    # -- configuration

    @property
    def config(self) -> dict[str, Any]:
        return self.checkpoint.config

    def get(self, key: str, default: Any = None) -> Any:
        """A value of config.json; null means the default, as in transformers."""
        value = self.config.get(key)
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if not is_number(value):
            raise ModelError(f"config.json: {key} is {shown(value)}; expected a number")
        return value

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if np.float32(value) <= 0:         # the file has f32
            raise ModelError(f"config.json: {key} is {value!r}; expected a positive number")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if value != int(value) or value < 1:
            raise ModelError(f"config.json: {key} is {value!r}; expected a positive integer")
        return int(value)

    def truth(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"config.json: {key} is {shown(value)}; expected true or false")
        return value

    def choice(self, key: str, default: str, choices: dict[str, str]) -> str:
        """One of the values that the runtime supports, translated to the runtime's name."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in choices:
            raise ModelError(f"config.json: {key} is {shown(value)}; expected one of "
                             f"{', '.join(map(repr, choices))}")
        return choices[value]

    def flag(self, keys: tuple[str, ...], tensor: str) -> bool:
        """Whether an optional part exists. The tensors decide; the configuration must agree."""
        present = self.has(tensor)
        for key in keys:
            if self.truth(key, present) != present:
                state = "present" if present else "missing"
                raise ModelError(f"config.json: {key} is {self.config[key]!r}, but tensor {tensor} "
                                 f"is {state}")
        return present

    def refuse_unless(self, key: str, allowed: tuple, why: str) -> None:
        value = self.config.get(key)
        if value not in allowed:
            raise ModelError(f"config.json: {key} is {shown(value)}: {why}")

    def check_keys(self, ignored: frozenset[str]) -> None:
        for key, value in self.config.items():
            if value is not None and key not in self.known_keys and key not in ignored:
                raise ModelError(f"config.json: unknown key {key} = {shown(value)} for "
                                 f"{self.family.name}; it may change what the model computes "
                                 f"(if it does not: --ignore-key {key})")

    # -- metadata

    def set_u32(self, key: str, value: int) -> None:
        if not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise ModelError(f"{key} is {shown(value)}; expected 0 to {(1 << 32) - 1}")
        self.kv[key] = ("u32", value)

    def set_f32(self, key: str, value: float) -> None:
        if not is_number(value):
            raise ModelError(f"{key} is {shown(value)}; expected a number")
        self.kv[key] = ("f32", float(value))

    def set_bool(self, key: str, value: bool) -> None:
        self.kv[key] = ("bool", bool(value))

    def set_str(self, key: str, value: str) -> None:
        # names of files and options can contain bytes that are not UTF-8
        self.kv[key] = ("str", value.encode("utf-8", "replace").decode("utf-8"))

    def set_array(self, key: str, kind: str, value: list) -> None:
        for i, x in enumerate(value):
            if not ARRAY_ITEMS[kind](x):
                raise DataError(f"{key}: item {i} is {shown(x)}, which is not valid")
        self.kv[key] = (f"[{kind}]", value)

    # -- tensors

    def has(self, name: str) -> bool:
        return name in self.checkpoint.tensors

    def shape(self, name: str, rank: int | None = None) -> Shape:
        if name not in self.checkpoint.tensors:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} is missing")
        shape = self.checkpoint.tensors[name].shape
        if rank is not None and len(shape) != rank:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} has shape {list(shape)}; "
                             f"expected {rank} dimensions")
        return shape

    def take(self, name: str, shape: Shape, any_rank: bool = False) -> Tensor:
        found = self.shape(name)
        if any_rank:
            same = [d for d in found if d != 1] == [d for d in shape if d != 1]
        else:
            same = found == tuple(shape)
        if not same:
            raise ModelError(f"{self.checkpoint.name}: tensor {name} has shape {list(found)}; "
                             f"expected {list(shape)}")
        tensor = self.checkpoint.tensors[name]
        if tensor.dtype not in FLOAT_DTYPES:
            raise ModelError(f"{tensor.file}: tensor {name} has type {tensor.dtype}; "
                             f"expected one of {', '.join(FLOAT_DTYPES)}")
        self.taken.add(name)
        return tensor

    def drop(self, name: str) -> None:
        """Marks a tensor that the network never reads."""
        if self.has(name):
            self.taken.add(name)

    def put(self, name: str, source: str | list[str], shape: Shape | list[Shape],
            transform: Transform = SAME) -> None:
        """Adds tensor `name`, made from one or several sources of the given shapes."""
        sources = [source] if isinstance(source, str) else source
        shapes = shape if isinstance(shape, list) else [shape] * len(sources)
        tensors = tuple(self.take(s, x, transform.any_rank)
                        for s, x in zip(sources, shapes, strict=True))
        self.outs.append(OutputTensor(name, transform.shape([t.shape for t in tensors]), tensors,
                                      transform))

    def put_optional(self, name: str, source: str, shape: Shape) -> None:
        """Adds tensor `name` if the checkpoint has its source."""
        if self.has(source):
            self.put(name, source, shape)

    def rows(self, dst: str, src: str, table: list[tuple]) -> None:
        """Adds a table of (name, source, shape of the source, transform = SAME); dst and src are
        the prefixes of names and sources."""
        for name, source, shape, *transform in table:
            sources = [src + s for s in source] if isinstance(source, list) else src + source
            self.put(dst + name, sources, shape, *transform)

    def constant(self, name: str, shape: Shape, value: float | np.ndarray) -> None:
        """Adds a tensor that is not in the checkpoint: a neutral one, or one that follows from the
        configuration."""
        self.outs.append(OutputTensor(name, shape, (), Transform(
            lambda s: shape, lambda a: np.full(shape, value, np.float32))))

    def refuse_leftovers(self) -> None:
        left = [n for n in self.checkpoint.tensors if n not in self.taken]
        if left:
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise ModelError(f"{self.checkpoint.name}: unexpected tensor {left[0]}{more} in a "
                             f"{self.family.name} model with this config.json")

    def count_layers(self, prefix: str) -> int:
        """Number of layers prefix0., prefix1., …, which must be contiguous."""
        found = {name[len(prefix):].split(".", 1)[0]
                 for name in self.checkpoint.tensors if name.startswith(prefix)}
        n = len(found)
        if n == 0 or found != {str(i) for i in range(n)}:
            raise ModelError(f"{self.checkpoint.name}: found the layers {sorted(found)[:8]}; "
                             f"expected {prefix}0, {prefix}1, … without gaps")
        stated = self.get("num_hidden_layers", self.get("n_layer", n))
        if stated != n:
            raise ModelError(f"{self.checkpoint.name}: config.json states {shown(stated)} layers; "
                             f"the tensors have {n}")
        return n

    def fact(self, label: str, text: str) -> None:
        self.facts.append((label, text))
