"""Compiles a Jinja chat template to a ChatFormat.

The template is not parsed. It renders conversations of marker words; what stands between the
markers are the literals of the format, and a few more conversations show its conditions. The result
is then compared with the template on a battery of conversations, so a template that does anything
else is refused, never approximated.
"""

from itertools import product

from .format import THINK, ChatFormat
from .sandbox import Message, RenderError, Template

SYSTEM, USER, ANSWER, NEXT = "Qsystemq", "Quserq", "Qanswerq", "Qnextq"
NAMES = {SYSTEM: "system", USER: "first user", ANSWER: "assistant", NEXT: "last user"}


class CompileError(Exception):
    """Why a template cannot be compiled."""


def conversation(*texts: str, system: str | None = None) -> list[Message]:
    """User and assistant in turn, after a system message unless it is None."""
    first = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return first + [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]


def _split(text: str, markers: list[str]) -> list[str]:
    """The literals around the markers, each of which must occur once, in order."""
    for marker in markers:
        if text.count(marker) != 1:
            does = "repeats" if marker in text else "drops or changes"
            raise CompileError(f"it {does} the {NAMES[marker]} message")
    literals = []
    for marker in markers:
        before, found, text = text.partition(marker)
        if not found:
            raise CompileError(f"it moves the {NAMES[marker]} message")
        literals.append(before)
    return literals + [text]


def _render(t: Template, messages: list[Message], **settings) -> str:
    try:
        return t.render(messages, **settings)
    except RenderError as e:
        raise CompileError(str(e)) from None


def _trimmed(t: Template, f: ChatFormat, role: str, texts: list[str], at: int) -> bool:
    """Whether the template removes white space around the message `at` (−1: system)."""
    padded = f" \n\t {USER} \n "
    system = padded if at < 0 else None
    messages = conversation(*(padded if i == at else x for i, x in enumerate(texts)), system=system)
    text = _render(t, messages)
    for trim in ((), (role,)):
        f.trim = trim
        if f.render(messages) == text:
            return bool(trim)
    raise CompileError(f"it changes the text of {role} messages")


def _probe_system(t: Template, f: ChatFormat, rest: list[str]) -> None:
    try:
        text = t.render(conversation(USER, ANSWER, NEXT, system=SYSTEM))
    except RenderError:
        f.no_system = "refuses"
        return
    if SYSTEM not in text:
        f.no_system = "drops"
        return
    literals = _split(text, [SYSTEM, USER, ANSWER, NEXT])
    if literals[2:] != rest:
        raise CompileError("a system message changes the text between later messages")
    f.begin_system, f.system_user = literals[:2]
    empty = conversation(USER, ANSWER, NEXT, system="")
    f.omit_empty_system = (_render(t, empty) != f.begin_system + f.system_user
                           + _render(t, conversation(USER, ANSWER, NEXT))[len(f.begin_user):])


def _probe_thinking(t: Template, f: ChatFormat) -> None:
    f.thinking = any(mark in t.source for mark in ("<think>", "</think>", "enable_thinking"))
    for after in (None, "", "\n", " "):
        f.drop_thinking = after
        tests = (f"{THINK[0]}\nplan\n{THINK[1]}{gap}{ANSWER}" for gap in ("\n\n", " \n", ""))
        if all(f.render(c) == _render(t, c)
               for c in (conversation(USER, x, NEXT) for x in tests)):
            return
    raise CompileError("it changes the thinking section of earlier answers")


def extract(t: Template) -> ChatFormat:
    """The format that a template seems to have."""
    begin, *rest = _split(_render(t, conversation(USER, ANSWER, NEXT)), [USER, ANSWER, NEXT])
    f = ChatFormat(begin, *rest)
    quiet = _render(t, conversation(USER, ANSWER, NEXT), enable_thinking=False)
    literals = _split(quiet, [USER, ANSWER, NEXT])
    if literals[:-1] != [begin, *rest[:-1]]:
        raise CompileError("enable_thinking changes more than the prompt for the answer")
    if literals[-1] != rest[-1]:
        f.user_generation_no_thinking = literals[-1]
    _probe_system(t, f, rest)
    trim = []
    probes = [("user", [USER], 0), ("assistant", [NEXT, USER, ANSWER], 1)]
    if f.begin_system is not None:
        probes.insert(0, ("system", [NEXT], -1))
    for role, texts, at in probes:
        if _trimmed(t, f, role, texts, at):
            trim.append(role)
    f.trim = tuple(trim)
    _probe_thinking(t, f)
    return f


def battery(special: list[str]) -> list[list[Message]]:
    """Conversations of one to six questions."""
    texts = [
        "Hello", "  two\n\nlines \n", "Übung, 日本語, עברית, 👩‍🚀", "x" * 64,
        "{{ 7 * 7 }} {% if x %} {# no #}", "", "\u00a0odd\u2003spaces\u3000",
        "C:\\new\\table \"q\"",
        *(f"a {name} b" for name in special), " ".join(special),
    ]
    answers = [
        "Yes.", " indented\n", "1. a\n2. b\n", f"{THINK[0]}\nplan\n{THINK[1]}\n\nDone.",
        f"plan\n{THINK[1]}\n\n Done.", f"{THINK[0]}\n\n{THINK[1]}\n\n{THINK[0]}b{THINK[1]}c",
        f"{THINK[0]} not closed", "<tool_call>", "日本",
    ]
    systems = (None, "", "Be brief.", " \nBe brief.\n ", *(f"{name} x" for name in special[:2]))
    all_texts = [conversation(text, system=s) for text, s in product(texts, systems)]
    for turns, s in product(range(2, 7), systems):
        for shift in range(len(answers)):
            mixed = []
            for i in range(turns):
                mixed.append(texts[(turns + shift + 3 * i) % len(texts)])
                mixed.append(answers[(shift + i) % len(answers)])
            all_texts.append(conversation(*mixed[:-1], system=s))
    return all_texts


def compile_template(t: Template, special: list[str]) -> ChatFormat:
    """special: the names of the tokenizer's special tokens."""
    f = extract(t)
    found = sorted((name for name in special if any(name in x for x in f.literals())),
                   key=special.index)
    f.special = tuple(found)
    for messages in battery(found):
        if f.begin_system is None and messages[0]["role"] == "system":
            continue
        for thinking in (True, False):
            settings = {} if thinking else {"enable_thinking": False}
            if f.render(messages, thinking) != _render(t, messages, **settings):
                shown = [(m["role"], m["content"][:40]) for m in messages]
                raise CompileError(f"it treats some messages in a way that the format cannot "
                                   f"express, for example in {shown}")
    return f
