"""The compiled chat format: literal text between the messages of a conversation, and the few
conditions of real templates. convert/FORMAT.md describes its JSON form."""

import json
from dataclasses import dataclass

from .sandbox import Message

VERSION = 1
THINK = ("<think>", "</think>")            # around the thinking section of an answer


@dataclass
class ChatFormat:
    begin_user: str                        # before the first message, if it is the user's
    user_assistant: str                    # between a question and its answer, …
    assistant_user: str
    user_generation: str                   # after the last question
    begin_system: str | None = None        # None: the format has no system messages
    system_user: str | None = None
    user_generation_no_thinking: str | None = None   # None: the format cannot suppress thinking
    trim: tuple[str, ...] = ()             # roles whose messages lose white space at both ends
    omit_empty_system: bool = False        # an empty system message counts as none
    thinking: bool = False                 # answers may have a thinking section
    # Earlier answers lose everything up to the last </think>, and then leading "\n" or " " (any
    # white space) or "" (nothing); None: they keep their thinking section.
    drop_thinking: str | None = None
    special: tuple[str, ...] = ()          # names of the special tokens in the literals
    stop: tuple[str, ...] = ()             # names of further tokens that end an answer
    no_system: str = ""                    # what the template does with system messages; not stored

    def literals(self) -> list[str]:
        parts = (self.begin_system, self.system_user, self.begin_user, self.user_assistant,
                 self.assistant_user, self.user_generation, self.user_generation_no_thinking)
        return [p for p in parts if p is not None]

    def content(self, message: Message) -> str:
        text = message["content"]
        if message["role"] in self.trim:
            text = text.strip()
        if message["role"] == "assistant" and self.drop_thinking is not None and THINK[1] in text:
            text = text.split(THINK[1])[-1]
            if self.drop_thinking:
                text = text.lstrip("\n" if self.drop_thinking == "\n" else None)
        return text

    def render(self, messages: list[Message], thinking: bool = True) -> str:
        """The text of a conversation that ends with a user message."""
        before = "begin"
        out = []
        for m in messages:
            text = self.content(m)
            if m["role"] == "system" and self.omit_empty_system and not text:
                continue
            out += [getattr(self, f"{before}_{m['role']}"), text]
            before = m["role"]
        quiet = self.user_generation_no_thinking
        out.append(self.user_generation if thinking or quiet is None else quiet)
        return "".join(out)

    def to_json(self) -> str:
        names = ("begin_system", "system_user", "begin_user", "user_assistant", "assistant_user",
                 "user_generation", "user_generation_no_thinking")
        d = {"version": VERSION}
        d |= {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.trim:
            d["trim"] = list(self.trim)
        if self.omit_empty_system:
            d["omit_empty_system"] = True
        if self.thinking:
            d["thinking"] = list(THINK)
        if self.drop_thinking is not None:
            d["drop_thinking"] = self.drop_thinking
        if self.special:
            d["special"] = list(self.special)
        if self.stop:
            d["stop"] = list(self.stop)
        return json.dumps(d, ensure_ascii=False, indent=1)
