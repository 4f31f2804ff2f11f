"""Renders a chat template as transformers does, with limits: templates are untrusted input."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

MAX_OUTPUT = 1 << 20                       # characters
MAX_SECONDS = 10

Message = dict[str, str]


class RenderError(Exception):
    """The template cannot render a conversation, or refuses it."""


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} of transformers marks answers and changes nothing."""

    tags = {"generation"}

    def parse(self, parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    # {{ "x" * 10 ** 10 }} would need all memory
    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context, operator: str, left: Any, right: Any) -> Any:
        if not all(isinstance(x, (int, float)) and abs(x) < 1 << 20 for x in (left, right)):
            raise SecurityError(f"{operator} of large numbers or of text")
        return super().call_binop(context, operator, left, right)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _reason(e: Exception) -> str:
    text = str(e) or type(e).__name__
    if "'NoneType' object" in text:
        return f"it needs tools or documents ({text})"
    if "'strftime_now'" in text:
        return "it inserts today's date"
    return text[:200]


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number, frame) -> None:
        raise RenderError(f"it runs for more than {MAX_SECONDS} seconds")
    # of computing: a busy machine must not refuse a good template
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Template:
    """A Jinja template and the special tokens that it may insert (bos_token, eos_token …)."""

    def __init__(self, source: str, tokens: dict[str, str]) -> None:
        env = _Environment(trim_blocks=True, lstrip_blocks=True,
                           extensions=[_Generation, loopcontrols])
        env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False,
                                                                  indent=indent)
        env.globals["raise_exception"] = _refuse
        self.source = source
        self.tokens = tokens
        try:
            with _time_limit():
                self.template = env.from_string(source)
        except (TemplateError, RecursionError) as e:
            raise RenderError(f"it is not valid Jinja: {e}") from None

    def render(self, messages: list[Message], **settings: Any) -> str:
        """The text of a conversation, with the prompt for the next answer."""
        parts, size = [], 0
        try:
            with _time_limit():
                for part in self.template.generate(
                        messages=[dict(m) for m in messages], tools=None, documents=None,
                        add_generation_prompt=True, **self.tokens, **settings):
                    parts.append(part)
                    size += len(part)
                    if size > MAX_OUTPUT:
                        raise RenderError("its output has more than a million characters")
        except (TemplateError, TypeError, ValueError, KeyError, IndexError, AttributeError,
                ArithmeticError, RecursionError, MemoryError) as e:
            raise RenderError(_reason(e)) from None
        return "".join(parts)
