"""lrnn in Python: the C API of lrnn.h through ctypes, with numpy arrays. Nothing is compiled.

    import lrnn

    with lrnn.Model("model.gguf") as model, lrnn.Session(model) as session:
        generation = lrnn.Generation(session, max_tokens=40, temperature=0.8, seed=1)
        for text in generation.run("The old man"):
            print(text, end="", flush=True)

A failed call raises `lrnn.Error` with the message of the library. Objects are freed by `close`, at
the end of a `with` block, or when they are no longer used, in any order: a session keeps its model
in memory. Threads may share all objects; calls with one session wait for each other.

The library is searched in this order: the path in the environment variable LRNN_LIBRARY, the
installation or the build that this file belongs to, the folders of the dynamic loader.
"""

import collections
import ctypes
import ctypes.util
import operator
import os
import sys
import threading
import weakref
from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["CACHE_F16", "CACHE_F32", "CACHE_Q8_0", "CancelledError", "Chat", "Decoder",
           "DeviceError", "Error", "FileError", "Generation", "Grammar", "InputError",
           "InternalError", "MemoryShortError", "Model", "ModelError", "NotFiniteError",
           "NotFoundError", "STATE_BF16", "STATE_F16", "STATE_F32", "STATE_Q8_0", "Sampler",
           "Session", "SystemCallError", "ggml_version", "version"]

Text = str | bytes | bytearray | memoryview
FilePath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

# Before 1.0, a minor version may change the API.
API_VERSION = "0.3"


class Error(Exception):
    """One sentence: what was found, where, and what was expected. Every kind of error has a class
    of its own below."""


class InputError(Error, ValueError):
    """A parameter, token or text that the function does not accept."""


class ModelError(Error):
    """A model file that is missing, damaged or not supported."""


class FileError(Error):
    """Another file that is damaged or does not fit."""


class NotFoundError(Error, FileNotFoundError):
    """A file or a name that does not exist."""


class MemoryShortError(Error, MemoryError):
    """Out of memory on this machine or on a device."""


class SystemCallError(Error, OSError):
    """The operating system refused: disk, permission, network."""


class DeviceError(Error):
    """A GPU or an RPC server failed."""


class CancelledError(Error):
    """A callback of the caller asked to stop."""


class NotFiniteError(Error, ArithmeticError):
    """Weights, states or logits with infinities or NaN."""


class InternalError(Error):
    """A defect of the library."""


# in the order of enum lrnn_error_kind
_ERRORS = (Error, InputError, ModelError, FileError, NotFoundError, MemoryShortError,
           SystemCallError, DeviceError, CancelledError, NotFiniteError, InternalError)


# ---- Declarations of lrnn.h. A test compares them with the header. -------------------------------

_progress = CFUNCTYPE(c_bool, c_float, c_void_p)
_log = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_trace = CFUNCTYPE(c_bool, c_void_p, c_void_p)


class _Error(ctypes.Structure):
    c_name = "lrnn_error"
    _fields_ = [
        ("kind", c_int),
        ("text", ctypes.c_char * 1020),
    ]

    def exception(self):
        return _ERRORS[self.kind](self.text.decode(errors="replace"))


class _ModelParams(ctypes.Structure):
    c_name = "lrnn_model_params"
    _fields_ = [
        ("progress", _progress),
        ("progress_user", c_void_p),
        ("log", _log),
        ("log_user", c_void_p),
        ("n_gpu_layers", c_int32),
        ("devices", c_char_p),
        ("tensor_split", c_char_p),
        ("no_huge_pages", c_bool),
    ]


class _ModelInfo(ctypes.Structure):
    c_name = "lrnn_model_info"
    _fields_ = [
        ("architecture", c_char_p),
        ("family", c_char_p),
        ("eigenvalues", c_char_p),
        ("range_source", c_char_p),
        ("name", c_char_p),
        ("source", c_char_p),
        ("n_vocab", c_int64),
        ("layers", c_char_p),
        ("n_layer", c_int64),
        ("n_layer_attention", c_int64),
        ("n_layer_recurrent", c_int64),
        ("n_embd", c_int64),
        ("n_householder", c_int64),
        ("n_head", c_int64),
        ("d_k", c_int64),
        ("d_v", c_int64),
        ("trained_length", c_int64),
        ("weight_bytes", c_int64),
        ("state_bytes", c_int64),
        ("cache_bytes", c_int64),
        ("identity", c_uint64),
        ("cheap_exact_cuts", c_bool),
        ("has_draft_block", c_bool),
        ("has_tokenizer", c_bool),
        ("bos", c_int32),
        ("eos", c_int32),
        ("add_bos", c_bool),
        ("add_eos", c_bool),
    ]


class _SessionParams(ctypes.Structure):
    c_name = "lrnn_session_params"
    _fields_ = [
        ("n_threads", c_int32),
        ("n_seqs", c_int32),
        ("n_rewind", c_int32),
        ("n_batch", c_int32),
        ("n_cache", c_int32),
        ("cache_type", c_int),
        ("state_type", c_int),
        ("exact_cuts", c_bool),
        ("draft_block", c_bool),
        ("trace_kinds", c_uint),
        ("trace", _trace),
        ("trace_user", c_void_p),
    ]


class _Input(ctypes.Structure):
    c_name = "lrnn_input"
    _fields_ = [
        ("seq", c_int32),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int64),
        ("n_logits", c_int64),
    ]


class _SamplerParams(ctypes.Structure):
    c_name = "lrnn_sampler_params"
    _fields_ = [
        ("temperature", c_float),
        ("top_k", c_int32),
        ("drop_p", c_float),
        ("min_p", c_float),
        ("repeat_penalty", c_float),
        ("repeat_last", c_int32),
        ("seed", c_uint64),
    ]


class _Message(ctypes.Structure):
    c_name = "lrnn_message"
    _fields_ = [
        ("role", c_char_p),
        ("content", c_char_p),
        ("size", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("n_tokens", c_int64),
    ]


class _GenerationParams(ctypes.Structure):
    c_name = "lrnn_generation_params"
    _fields_ = [
        ("sampler", _SamplerParams),
        ("max_tokens", c_int64),
        ("stops", POINTER(c_char_p)),
        ("n_stops", c_int32),
        ("n_draft", c_int32),
        ("n_draft_mtp", c_int32),
        ("chat", c_void_p),
        ("grammar", c_void_p),
        ("ignore_eos", c_bool),
        ("keep", c_bool),
    ]


class _Generated(ctypes.Structure):
    c_name = "lrnn_generated"
    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("log_probs", POINTER(c_float)),
        ("n_tokens", c_int64),
        ("text", POINTER(ctypes.c_char)),
        ("size", c_size_t),
    ]


_STRUCTS = [_Error, _ModelParams, _ModelInfo, _SessionParams, _Input, _SamplerParams, _Message,
            _GenerationParams, _Generated]

CACHE_F16, CACHE_F32, CACHE_Q8_0 = range(3)
STATE_F32, STATE_BF16, STATE_F16, STATE_Q8_0 = range(4)

_TOKENIZE_ADD_BOS = 1 << 0
_TOKENIZE_ADD_EOS = 1 << 1
_TOKENIZE_PARSE_SPECIAL = 1 << 2

_object = c_void_p                         # a pointer to a struct that only the library knows
_bytes = POINTER(ctypes.c_char)            # char * that is not NUL-terminated
_size = POINTER(c_size_t)

# function: result, arguments
_FUNCTIONS = {
    "lrnn_version": (c_char_p, []),
    "lrnn_ggml_version": (c_char_p, []),
    "lrnn_model_load": (_object, [c_char_p, POINTER(_ModelParams), POINTER(_Error)]),
    "lrnn_model_free": (None, [_object]),
    "lrnn_model_get_info": (_ModelInfo, [_object]),
    "lrnn_session_new": (_object, [_object, POINTER(_SessionParams), POINTER(_Error)]),
    "lrnn_session_free": (None, [_object]),
    "lrnn_eval": (c_bool, [_object, POINTER(_Input), c_int32, POINTER(_Error)]),
    "lrnn_logits": (POINTER(c_float), [_object, c_int64]),
    "lrnn_seq_length": (c_int64, [_object, c_int32]),
    "lrnn_seq_rewindable": (c_int64, [_object, c_int32]),
    "lrnn_seq_reset": (c_bool, [_object, c_int32, POINTER(_Error)]),
    "lrnn_seq_fork": (c_bool, [_object, c_int32, c_int32, POINTER(_Error)]),
    "lrnn_seq_rewind": (c_bool, [_object, c_int32, c_int64, POINTER(_Error)]),
    "lrnn_seq_save": (c_bool, [_object, c_int32, _object, c_char_p, POINTER(_Error)]),
    "lrnn_seq_load": (c_bool, [_object, c_int32, _object, c_char_p, POINTER(_Error)]),
    "lrnn_seq_state_norm": (c_double, [_object, c_int32, POINTER(c_int32)]),
    "lrnn_tokenize": (c_bool, [_object, c_char_p, c_size_t, c_uint, POINTER(POINTER(c_int32)),
                               POINTER(c_int64), POINTER(_Error)]),
    "lrnn_token_bytes": (_bytes, [_object, c_int32, _size]),
    "lrnn_token_is_special": (c_bool, [_object, c_int32]),
    "lrnn_decoder_new": (_object, [_object, c_bool, POINTER(_Error)]),
    "lrnn_decoder_free": (None, [_object]),
    "lrnn_decoder_push": (_bytes, [_object, c_int32, _size]),
    "lrnn_decoder_end": (_bytes, [_object, _size]),
    "lrnn_chat_new": (_object, [_object, c_char_p, POINTER(_Error)]),
    "lrnn_chat_free": (None, [_object]),
    "lrnn_chat_tokenize": (c_bool, [_object, POINTER(_Message), c_int64, c_bool,
                                    POINTER(POINTER(c_int32)), POINTER(c_int64), POINTER(c_int64),
                                    POINTER(_Error)]),
    "lrnn_chat_is_end": (c_bool, [_object, c_int32]),
    "lrnn_sampler_set": (c_bool, [POINTER(_SamplerParams), c_char_p, c_double, POINTER(_Error)]),
    "lrnn_sampler_new": (_object, [POINTER(_SamplerParams), POINTER(_Error)]),
    "lrnn_sampler_free": (None, [_object]),
    "lrnn_sampler_sample": (c_int32, [_object, POINTER(c_float), c_int64, POINTER(c_float),
                                      POINTER(_Error)]),
    "lrnn_sampler_accept": (None, [_object, c_int32]),
    "lrnn_grammars_new": (_object, [_object, POINTER(_Error)]),
    "lrnn_grammars_free": (None, [_object]),
    "lrnn_grammar_new": (_object, [_object, c_int, c_char_p, c_size_t, POINTER(_Error)]),
    "lrnn_grammar_free": (None, [_object]),
    "lrnn_finish_name": (c_char_p, [c_int]),
    "lrnn_generation_new": (_object, [_object, c_int32, POINTER(_GenerationParams),
                                      POINTER(_Error)]),
    "lrnn_generation_free": (None, [_object]),
    "lrnn_generation_prompt": (c_bool, [_object, POINTER(c_int32), c_int64, POINTER(_Error)]),
    "lrnn_generation_step": (c_bool, [POINTER(_object), c_int32, POINTER(_Error)]),
    "lrnn_generation_finish": (c_int, [_object]),
    "lrnn_generation_get": (_Generated, [_object]),
    "lrnn_generation_end": (None, [_object]),
}


# ---- The library ---------------------------------------------------------------------------------

def _candidates():
    """Paths of the library, the best first."""
    if "LRNN_LIBRARY" in os.environ:
        yield os.environ["LRNN_LIBRARY"]
        return
    name = "liblrnn.dylib" if sys.platform == "darwin" else "liblrnn.so"
    here = Path(__file__).resolve().parent
    if here.parts[-2:] == ("examples", "python"):
        yield here.parents[1] / "build" / "lib" / name
    elif here.name == "lrnn":              # the package of a wheel
        yield here / "lib" / name
    else:                                  # PREFIX/share/lrnn/python
        for pattern in (f"lib*/{name}", f"lib/*/{name}"):
            yield from here.parents[2].glob(pattern)
    yield ctypes.util.find_library("lrnn") or name


def _open_library():
    tried = []
    for path in map(str, _candidates()):
        if "/" in path and not os.path.exists(path):
            tried.append(f"{path} does not exist")
            continue
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as e:
            tried.append(str(e))
    else:
        raise Error(f"liblrnn was not found: {'; '.join(tried)}. Build lrnn with shared libraries, "
                    "or set LRNN_LIBRARY to the path of the library")
    for function, (result, arguments) in _FUNCTIONS.items():
        try:
            f = getattr(library, function)
        except AttributeError:
            raise Error(f"{path} has no function {function}; expected lrnn {API_VERSION}") from None
        f.restype, f.argtypes = result, arguments
    found = library.lrnn_version().decode()
    if found.split(".")[:2] != API_VERSION.split("."):
        raise Error(f"{path} is lrnn {found}; lrnn.py is for version {API_VERSION}")
    return library


_lib = _open_library()
_free = ctypes.CDLL(None).free
_free.restype, _free.argtypes = None, [c_void_p]


def version() -> str:
    """The version of the library, such as "0.3.0"."""
    return _lib.lrnn_version().decode()


def ggml_version() -> str:
    """The version of its ggml."""
    return _lib.lrnn_ggml_version().decode()


# ---- Arguments -----------------------------------------------------------------------------------

def _checked(function, *arguments):
    """Calls a function that takes a struct lrnn_error. Raises it on failure."""
    err = _Error()
    result = function(*arguments, ctypes.byref(err))
    if not result:
        raise err.exception()
    return result


def _int(value, c_type, name):
    """An integer that the C type can hold; ctypes would silently cut a larger one."""
    value = operator.index(value)
    if c_type(value).value != value:
        span = 1 << 8*ctypes.sizeof(c_type)
        low, high = (0, span - 1) if c_type(-1).value > 0 else (-span//2, span//2 - 1)
        raise InputError(f"{name} is {value}; expected {low} to {high}")
    return value


_VALUE_TYPES = (c_bool, c_char_p, c_float, c_int32, c_uint64)


def _string(value, name):
    """A NUL-terminated string: a path or the value of a parameter."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise InputError(f"{name} is {value!r}; expected no NUL character")
    return encoded


def _bytes(value, name):
    """A text for C. bytes(3) would be three zeros."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{name} is {value!r}; expected str or bytes")


def _params(struct, values, **callbacks):
    """A zeroed parameter struct with some fields set."""
    types = {name: kind for name, kind in struct._fields_ if kind in _VALUE_TYPES}
    params = struct(**callbacks)
    for name, value in values.items():
        if name not in types:
            raise TypeError(f"unknown parameter {name!r}; expected one of {', '.join(types)}")
        if types[name] is c_char_p:
            value = None if value is None else _string(value, name)
        elif types[name] is c_int32 or types[name] is c_uint64:
            value = _int(value, types[name], name)
        setattr(params, name, value)
    return params


def _tokens(tokens):
    """Token ids as a contiguous int32 array."""
    array = np.asarray(tokens)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"tokens have the type {array.dtype} and {array.ndim} dimensions; expected "
                        "one dimension of integers")
    for extreme in (array.min(), array.max()) if array.size else ():
        _int(extreme, c_int32, "a token")
    return np.ascontiguousarray(array, np.int32)


def _int_array(array):
    return array.ctypes.data_as(POINTER(c_int32))


def _taken(tokens, n_tokens):
    """Tokens that the library allocated, as an array; frees them."""
    try:
        if not n_tokens:
            return np.empty(0, np.int32)
        return np.ctypeslib.as_array(tokens, (n_tokens,)).copy()
    finally:
        _free(tokens)


# ---- Objects -------------------------------------------------------------------------------------

def _release(free, pointer, needs):
    free(pointer)


class _Handle:
    """A C object. It is freed when the last reference to this handle is gone, or at exit, and
    always before the handles in `needs`, which its finalizer keeps alive."""

    def __init__(self, pointer, free, *needs):
        self.pointer = pointer
        weakref.finalize(self, _release, free, pointer, needs)


_Self = TypeVar("_Self", bound="_Object")


class _Object:
    """An object with a handle and a lock. The library allows one thread at a time."""

    _handle = None

    def __init__(self):
        self._lock = threading.RLock()

    def _open(self):
        """The handle. Callers keep it in a variable while the library uses it, so that another
        thread cannot free it."""
        handle = self._handle
        if handle is None:
            raise Error(f"the {type(self).__name__.lower()} is closed")
        return handle

    def close(self) -> None:
        """Frees the object, as soon as no other object needs it. May be called again."""
        with self._lock:
            self._handle = None

    def __enter__(self: _Self) -> _Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


ModelInfo = collections.namedtuple("ModelInfo", [name for name, _ in _ModelInfo._fields_])
ModelInfo.__doc__ = "Facts about a model; struct lrnn_model_info of lrnn.h describes the fields."


def _opened(value, kind, name):
    """The handle of an argument."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; expected a {kind.__name__}")
    return value._open()


class Model(_Object):
    """The content of a GGUF file. Sessions and threads may share it.

    `progress(done)` receives the progress of loading, from 0 to 1, and returns False to cancel.
    `log(level, message)` receives messages of the model and its sessions; level 1 is a warning.
    `params` are other fields of struct lrnn_model_params: n_gpu_layers, devices, tensor_split,
    no_huge_pages."""

    _grammars = None                       # what its grammars share, once there is one

    info: Any                              # a ModelInfo

    def __init__(self, path: FilePath, *, progress: Callable[[float], object] | None = None,
                 log: Callable[[int, str], object] | None = None,
                 **params: int | bool | str | None) -> None:
        super().__init__()
        callbacks = {}                     # must live as long as the model
        if progress is not None:
            callbacks["progress"] = _progress(lambda done, _: bool(progress(done)))
        if log is not None:
            callbacks["log"] = _log(
                lambda level, message, _: log(level, message.decode(errors="replace")))
        c_params = _params(_ModelParams, params, **callbacks)
        pointer = _checked(_lib.lrnn_model_load, _string(path, "path"), ctypes.byref(c_params))
        self._handle = _Handle(pointer, _lib.lrnn_model_free, callbacks)
        info = _lib.lrnn_model_get_info(pointer)
        values = (getattr(info, name) for name in ModelInfo._fields)
        self.info = ModelInfo(*(v.decode(errors="replace") if isinstance(v, bytes) else v
                                for v in values))

    def tokenize(self, text: Text, *, add_bos: bool = True, add_eos: bool = False,
                 parse_special: bool = False) -> Tokens:
        """The tokens of a str, or of bytes, as an int32 array. bos and eos are added if the model
        wants them. `parse_special` turns the names of special tokens into their ids."""
        data = _bytes(text, "text")
        flags = (_TOKENIZE_ADD_BOS*bool(add_bos) | _TOKENIZE_ADD_EOS*bool(add_eos)
                 | _TOKENIZE_PARSE_SPECIAL*bool(parse_special))
        handle = self._open()
        tokens, n_tokens = POINTER(c_int32)(), c_int64()
        _checked(_lib.lrnn_tokenize, handle.pointer, data, len(data), flags, ctypes.byref(tokens),
                 ctypes.byref(n_tokens))
        return _taken(tokens, n_tokens.value)

    def detokenize(self, tokens: npt.ArrayLike, *, continues: bool = False) -> str:
        """The text of tokens. With `continues` it follows earlier text and keeps a leading space.
        Bytes that are not UTF-8 become U+FFFD."""
        with Decoder(self, continues=continues) as decoder:
            return "".join([decoder.push(token) for token in _tokens(tokens)]) + decoder.end()

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token, or the name of a special one."""
        handle, size = self._open(), c_size_t()
        data = _lib.lrnn_token_bytes(handle.pointer, _int(token, c_int32, "token"),
                                     ctypes.byref(size))
        if not data:
            raise InputError(f"token {token} does not exist, or the model has no tokenizer")
        return ctypes.string_at(data, size.value)

    def is_special(self, token: int) -> bool:
        """Whether a token is not text: a control token, an unknown or an unused one."""
        handle = self._open()
        return _lib.lrnn_token_is_special(handle.pointer, self._token(token))

    def _token(self, token):
        """An id of the vocabulary. The library takes any other for an unused one."""
        token = _int(token, c_int32, "token")
        if not 0 <= token < self.info.n_vocab:
            raise InputError(f"token is {token}; expected 0 to {self.info.n_vocab - 1}")
        return token


class Session(_Object):
    """Runs a model and owns sequences 0 to n_seqs - 1.

    `params` are fields of struct lrnn_session_params: n_threads, n_seqs, n_rewind, n_batch,
    n_cache, cache_type (CACHE_F16, CACHE_F32 or CACHE_Q8_0), state_type (STATE_F32, STATE_BF16,
    STATE_F16 or STATE_Q8_0: round states after every token), exact_cuts, draft_block. The default
    of exact_cuts is that of lrnn-perplexity: True where it costs less than 10 %,
    info.cheap_exact_cuts."""

    def __init__(self, model: Model, **params: int | bool) -> None:
        super().__init__()
        needed = _opened(model, Model, "model")
        params.setdefault("exact_cuts", model.info.cheap_exact_cuts)
        c_params = _params(_SessionParams, params)
        pointer = _checked(_lib.lrnn_session_new, needed.pointer, ctypes.byref(c_params))
        self._handle = _Handle(pointer, _lib.lrnn_session_free, needed)
        self.model = model

    def _call(self, function, seq, *arguments):
        with self._lock:
            handle = self._open()
            return _checked(function, handle.pointer, _int(seq, c_int32, "seq"), *arguments)

    def eval(self, tokens: npt.ArrayLike, seq: int = 0, *,
             n_logits: int | None = 1) -> Logits:
        """Appends tokens to a sequence. Returns the logits after the last `n_logits` of them, None:
        after all, as a float32 array [n_logits, n_vocab]."""
        return self.eval_batch({seq: tokens}, n_logits=n_logits)[seq]

    def eval_batch(self, inputs: Mapping[int, npt.ArrayLike], *,
                   n_logits: int | None = 1) -> dict[int, Logits]:
        """Appends tokens to several sequences at once: inputs {seq: tokens}. Returns the logits of
        each, as `eval` does: {seq: array}."""
        arrays = {seq: _tokens(tokens) for seq, tokens in inputs.items()}
        counts = {seq: len(a) if n_logits is None else _int(n_logits, c_int64, "n_logits")
                  for seq, a in arrays.items()}
        c_inputs = (_Input*len(arrays))(*(
            _Input(_int(seq, c_int32, "seq"), _int_array(a), len(a), counts[seq])
            for seq, a in arrays.items()))
        with self._lock:
            handle = self._open()
            _checked(_lib.lrnn_eval, handle.pointer, c_inputs, len(c_inputs))
            results, row = {}, 0
            for seq, count in counts.items():
                results[seq] = np.empty((count, self.model.info.n_vocab), np.float32)
                for i in range(count):
                    results[seq][i] = self._row(handle, row + i)
                row += count
            return results

    def _row(self, handle, i):
        """A view of the library's memory, valid until the next call."""
        data = _lib.lrnn_logits(handle.pointer, i)
        if not data:
            raise Error(f"the last call computed no logits with row number {i}")
        return np.ctypeslib.as_array(data, (self.model.info.n_vocab,))

    def logits(self, i: int = 0) -> Logits:
        """Row `i` of the logits of the last call, in the order of its inputs: [n_vocab]. After
        `load`, row 0 holds the saved logits, if any."""
        with self._lock:
            return self._row(self._open(), _int(i, c_int64, "i")).copy()

    def _count(self, function, seq):
        with self._lock:
            handle = self._open()
            count = function(handle.pointer, _int(seq, c_int32, "seq"))
            if count < 0:
                raise InputError(f"sequence {seq} does not exist")
            return count

    def length(self, seq: int = 0) -> int:
        """The number of tokens in a sequence."""
        return self._count(_lib.lrnn_seq_length, seq)

    def rewindable(self, seq: int = 0) -> int:
        """How many tokens can be rewound."""
        return self._count(_lib.lrnn_seq_rewindable, seq)

    def reset(self, seq: int = 0) -> None:
        """Empties a sequence."""
        self._call(_lib.lrnn_seq_reset, seq)

    def fork(self, source: int, target: int) -> None:
        """Copies sequence `source` to `target`. The copy cannot be rewound past the fork."""
        self._call(_lib.lrnn_seq_fork, source, _int(target, c_int32, "target"))

    def rewind(self, n_tokens: int, seq: int = 0) -> None:
        """Removes the last `n_tokens` tokens of a sequence."""
        self._call(_lib.lrnn_seq_rewind, seq, _int(n_tokens, c_int64, "n_tokens"))

    def save(self, path: FilePath, seq: int = 0, *,
             sampler: "Sampler | None" = None) -> None:
        """Writes a sequence to a state file, with its last logits if the last call computed them,
        and with the sampler if there is one."""
        self._state_file(_lib.lrnn_seq_save, path, seq, sampler)

    def load(self, path: FilePath, seq: int = 0, *,
             sampler: "Sampler | None" = None) -> None:
        """Restores a sequence from a state file, and the sampler if both are present."""
        self._state_file(_lib.lrnn_seq_load, path, seq, sampler)

    def _state_file(self, function, path, seq, sampler):
        path = _string(path, "path")
        if sampler is None:
            self._call(function, seq, None, path)
        else:
            with sampler._lock:
                handle = _opened(sampler, Sampler, "sampler")
                self._call(function, seq, handle.pointer, path)

    def state_norm(self, seq: int = 0) -> tuple[float, int]:
        """The largest Frobenius norm of a state matrix, and the first layer that has it: (norm,
        layer). Layer -1: the sequence has no state."""
        with self._lock:
            handle, layer = self._open(), c_int32()
            self.length(seq)               # an error if there is no such sequence
            norm = _lib.lrnn_seq_state_norm(handle.pointer, seq, ctypes.byref(layer))
            return norm, layer.value


class Decoder(_Object):
    """Converts tokens to text as they arrive. No piece ends inside a UTF-8 character."""

    def __init__(self, model: Model, *, continues: bool = False) -> None:
        super().__init__()
        needed = _opened(model, Model, "model")
        pointer = _checked(_lib.lrnn_decoder_new, needed.pointer, bool(continues))
        self._handle = _Handle(pointer, _lib.lrnn_decoder_free, needed)
        self._token = model._token

    def _text(self, function, *arguments):
        with self._lock:
            handle, size = self._open(), c_size_t()
            data = function(handle.pointer, *arguments, ctypes.byref(size))
            return ctypes.string_at(data, size.value).decode(errors="replace") if data else ""

    def push(self, token: int) -> str:
        """Adds a token. Returns the text that it completes."""
        return self._text(_lib.lrnn_decoder_push, self._token(token))

    def end(self) -> str:
        """The rest: U+FFFD for an incomplete character."""
        return self._text(_lib.lrnn_decoder_end)


class Chat(_Object):
    """Turns conversations into tokens, with the chat format of the model's file, or with another:
    the name of a built-in one, such as "chatml", or a file of `lrnn-convert chat-format`."""

    def __init__(self, model: Model, format: FilePath | None = None) -> None:
        super().__init__()
        needed = _opened(model, Model, "model")
        name = None if format is None else _string(format, "format")
        pointer = _checked(_lib.lrnn_chat_new, needed.pointer, name)
        self._handle = _Handle(pointer, _lib.lrnn_chat_free, needed)

    def tokenize(self, messages: Iterable[Mapping[str, Any]], *,
                 no_thinking: bool = False) -> Tokens:
        """The tokens of a conversation that ends with a user message; the answer follows them.
        Messages have the form {"role": "user", "content": "..."}. With "tokens", the generated
        tokens of an answer, a longer conversation begins with the tokens of a shorter one."""
        kept = [(_string(m["role"], "role"), _bytes(m["content"], "content"),
                 _tokens(m.get("tokens", ()))) for m in messages]
        c_messages = (_Message*len(kept))(*(
            _Message(role, text, len(text), _int_array(a) if len(a) else None, len(a))
            for role, text, a in kept))
        tokens, n_tokens = POINTER(c_int32)(), c_int64()
        handle = self._open()
        _checked(_lib.lrnn_chat_tokenize, handle.pointer, c_messages, len(kept), bool(no_thinking),
                 ctypes.byref(tokens), ctypes.byref(n_tokens), None)
        return _taken(tokens, n_tokens.value)

    def is_end(self, token: int) -> bool:
        """Whether a token ends an answer."""
        handle = self._open()
        return _lib.lrnn_chat_is_end(handle.pointer, _int(token, c_int32, "token"))


class Grammar(_Object):
    """Which texts a generation may produce, given by one of: `regex`, an expression that matches
    the whole text; `json_schema`, a JSON schema as a dictionary or a text; `gbnf`, a grammar in the
    format of llama.cpp; `json=True`, any JSON object. Generations may share it."""

    def __init__(self, model: Model, *, gbnf: Text | None = None, regex: Text | None = None,
                 json_schema: Mapping[str, Any] | str | bytes | None = None,
                 json: bool = False) -> None:
        super().__init__()
        needed = _opened(model, Model, "model")
        if json_schema is not None and not isinstance(json_schema, (str, bytes)):
            json_schema = dumps(json_schema)
        given = [(kind, text) for kind, text in enumerate((gbnf, regex, json_schema)) if text
                 is not None] + ([(3, "")] if json else [])
        if len(given) != 1:
            raise TypeError("expected one of gbnf, regex, json_schema and json")
        kind, text = given[0][0], _bytes(given[0][1], "grammar")
        with model._lock:                  # the model keeps what its grammars share
            if model._grammars is None:
                model._grammars = _Handle(_checked(_lib.lrnn_grammars_new, needed.pointer),
                                          _lib.lrnn_grammars_free)
        pointer = _checked(_lib.lrnn_grammar_new, model._grammars.pointer, kind, text, len(text))
        self._handle = _Handle(pointer, _lib.lrnn_grammar_free)


def _sampler_params(seed, options):
    """A struct lrnn_sampler_params with options as users spell them: those of lrnn_sampler_set."""
    params = _SamplerParams(seed=_int(seed, c_uint64, "seed"))
    for name, value in options.items():
        _checked(_lib.lrnn_sampler_set, ctypes.byref(params), name.encode(), c_double(value))
    return params


class Sampler(_Object):
    """Chooses tokens. The options are temperature, top_k, top_p (0: only the most likely token),
    min_p, repeat_penalty, repeat_last and seed. Without any, it takes the most likely token."""

    def __init__(self, *, seed: int = 0, **options: float) -> None:
        super().__init__()
        params = _sampler_params(seed, options)
        pointer = _checked(_lib.lrnn_sampler_new, ctypes.byref(params))
        self._handle = _Handle(pointer, _lib.lrnn_sampler_free)

    def sample(self, logits: npt.ArrayLike) -> tuple[int, float]:
        """A token chosen from logits [n_vocab], and its log-probability before any of the
        parameters applied: (token, log_prob)."""
        logits = np.ascontiguousarray(logits, np.float32)
        if logits.ndim != 1 or not logits.size:
            raise TypeError(f"logits have the shape {list(logits.shape)}; expected [n_vocab]")
        err, log_prob = _Error(), c_float()
        with self._lock:
            handle = self._open()
            token = _lib.lrnn_sampler_sample(
                handle.pointer, logits.ctypes.data_as(POINTER(c_float)), len(logits),
                ctypes.byref(log_prob), ctypes.byref(err))
        if token < 0:
            raise err.exception()
        return token, log_prob.value

    def accept(self, token: int) -> None:
        """Adds a token, such as one of the prompt, to the history of the repeat penalty."""
        with self._lock:
            handle = self._open()
            _lib.lrnn_sampler_accept(handle.pointer, _int(token, c_int32, "token"))


class Generated(NamedTuple):
    """What a step added: lists of tokens and their log-probabilities, and the text."""

    tokens: list[int]
    log_probs: list[float]
    text: str


class Generation(_Object):
    """Continues a sequence with a prompt and generated text.

    `max_tokens` is the limit, 0: none, -1: only the prompt is read; the text ends before any of the
    strings in `stop`. `n_draft` tokens are guessed from earlier text and checked in one call; the
    session needs a larger n_rewind. `n_draft_mtp` are the same from the draft block of the model;
    the session needs draft_block, too. The tokens that end an answer of `chat` end the text too.
    The text after a prompt is one that `grammar`, a Grammar, accepts. With `keep`, the sequence
    gets the last token, so that it can be saved or continued. The other options are those of
    `Sampler`."""

    def __init__(self, session: Session, seq: int = 0, *, max_tokens: int = 0,
                 stop: str | Sequence[str] = (), n_draft: int = 0, n_draft_mtp: int = 0,
                 chat: Chat | None = None, grammar: Grammar | None = None, ignore_eos: bool = False,
                 keep: bool = False, seed: int = 0, **options: float) -> None:
        super().__init__()
        needs = [_opened(session, Session, "session"),
                 _opened(chat, Chat, "chat") if chat is not None else None,
                 _opened(grammar, Grammar, "grammar") if grammar is not None else None]
        texts = [_string(text, "stop") for text in ([stop] if isinstance(stop, str) else stop)]
        stops = (c_char_p*len(texts))(*texts)
        params = _GenerationParams(
            sampler=_sampler_params(seed, options), stops=stops, n_stops=len(texts),
            max_tokens=_int(max_tokens, c_int64, "max_tokens"),
            n_draft=_int(n_draft, c_int32, "n_draft"),
            n_draft_mtp=_int(n_draft_mtp, c_int32, "n_draft_mtp"),
            chat=needs[1].pointer if chat is not None else None,
            grammar=needs[2].pointer if grammar is not None else None, ignore_eos=bool(ignore_eos),
            keep=bool(keep))
        pointer = _checked(_lib.lrnn_generation_new, needs[0].pointer, _int(seq, c_int32, "seq"),
                           ctypes.byref(params))
        self._handle = _Handle(pointer, _lib.lrnn_generation_free, *needs, stops)
        self.session, self.seq = session, seq
        self._lock = session._lock         # the library allows one thread at a time per session

    def prompt(self, prompt: str | bytes | npt.ArrayLike, *,
               parse_special: bool = False) -> None:
        """Begins with a text, or with token ids. An empty prompt continues the sequence, or begins
        with bos, or eos if the model has no bos. The names of special tokens are text, unless
        `parse_special` is set."""
        with self._lock:
            handle = self._open()
            if isinstance(prompt, (str, bytes)):
                prompt = self.session.model.tokenize(
                    prompt, add_bos=self.session.length(self.seq) == 0, parse_special=parse_special)
            tokens = _tokens(prompt)
            _checked(_lib.lrnn_generation_prompt, handle.pointer, _int_array(tokens), len(tokens))

    def step(self, *others: "Generation") -> Generated:
        """Makes one call of the model, also for other generations of the session. Returns what it
        added to this one."""
        with self._lock:
            handles = [g._open() for g in (self, *others)]
            pointers = (_object*len(handles))(*(h.pointer for h in handles))
            _checked(_lib.lrnn_generation_step, pointers, len(handles))
            return self.last()

    def last(self) -> Generated:
        """What the last step added."""
        with self._lock:
            handle = self._open()
            new = _lib.lrnn_generation_get(handle.pointer)
            return Generated(new.tokens[:new.n_tokens], new.log_probs[:new.n_tokens],
                             ctypes.string_at(new.text, new.size).decode(errors="replace"))

    @property
    def finish(self) -> str | None:
        """Why the text ended: "length", "eos", "stop", "grammar", "cache", "caller" or "error";
        None: it has not."""
        with self._lock:
            finish = _lib.lrnn_generation_finish(self._open().pointer)
            return _lib.lrnn_finish_name(finish).decode() if finish else None

    def end(self) -> str:
        """Ends the text here. Returns what was held back; with `keep`, a step must follow."""
        with self._lock:
            _lib.lrnn_generation_end(self._open().pointer)
            return self.last().text

    def run(self, prompt: str | bytes | npt.ArrayLike, *,
            parse_special: bool = False) -> Iterator[str]:
        """Yields the text after a prompt, piece by piece."""
        self.prompt(prompt, parse_special=parse_special)
        while self.finish is None:
            yield self.step().text


__version__: str = version()
