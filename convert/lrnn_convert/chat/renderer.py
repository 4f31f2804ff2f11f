"""Renders a chat template as transformers does. sandbox.py runs this file as a process of its own,
with limits: templates are untrusted input.

Arguments: the limits, and the folders of modules. Standard input has one JSON object per line:
first the template and the special tokens, then conversations. Standard output has the answers,
{"text": …} or {"error": …}.
"""

import json
import resource
import signal
import sys
from contextlib import suppress


def set_limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(ValueError, OSError):    # macOS has no limit of the address space
        resource.setrlimit(kind, (limit, hard))


if __name__ == "__main__":
    LIMITS = json.loads(sys.argv[1])
    # Ctrl-C is for the parent. When that ends, standard input does too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_limit(resource.RLIMIT_CORE, 0)
    set_limit(resource.RLIMIT_CPU, LIMITS["seconds"])
    set_limit(resource.RLIMIT_AS, LIMITS["addresses"])
    sys.path += json.loads(sys.argv[2])

from jinja2 import TemplateError, nodes  # noqa: E402
from jinja2.ext import Extension, loopcontrols  # noqa: E402
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402


class Generation(Extension):
    """{% generation %} … {% endgeneration %} of transformers marks answers and changes nothing."""

    tags = {"generation"}

    def parse(self, parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def refuse(message: str) -> None:
    raise TemplateError(message)


def environment() -> ImmutableSandboxedEnvironment:
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    env.globals["raise_exception"] = refuse
    return env


def one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:200]


def reason(e: Exception) -> str:
    text = one_line(str(e)) or type(e).__name__
    if isinstance(e, MemoryError):
        return f"it needs more than {LIMITS['bytes'] // 10**6} MB of memory"
    if "'NoneType' object" in text:
        return f"it needs tools or documents ({text})"
    if "'strftime_now'" in text:
        return "it inserts today's date"
    return text


def render(template, variables: dict) -> str:
    parts, size = [], 0
    for part in template.generate(**variables):
        parts.append(part)
        size += len(part)
        if size > LIMITS["characters"]:
            raise ValueError(f"its output has more than {LIMITS['characters']} characters")
    return "".join(parts)


def answer(value: dict) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    first = json.loads(sys.stdin.readline())
    try:
        template = environment().from_string(first["source"])
        answer({"text": ""})
    except MemoryError as e:
        answer({"error": reason(e)})
    except Exception as e:                 # of Jinja, or of Python's compiler
        answer({"error": f"it is not valid Jinja: {one_line(str(e)) or type(e).__name__}"})
    for line in sys.stdin:
        variables = {"tools": None, "documents": None, "add_generation_prompt": True,
                     **first["tokens"], **json.loads(line)}
        try:
            answer({"text": render(template, variables)})
        except Exception as e:             # anything that a template can cause
            answer({"error": reason(e)})


if __name__ == "__main__":
    main()
