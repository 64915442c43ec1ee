"""The format of a model's own chat template, found by rendering placeholder messages.

A template is code, so its format is found by experiment: the template renders conversations of
placeholder words, and the text around each placeholder is the format. The layout of each kind of
message (such as text, image, text) is cached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Self

from agentrl.data.chat_messages import ToolCall
from agentrl.errors import ConfigError
from agentrl.policies.chat import template_rendering
from agentrl.policies.chat.chat_format import ChatFormat, ChatModel, Piece

_SYSTEM, _FIRST, _REPLY = "qSYSTEMq", "qFIRSTq", "qREPLYq"
_LEFT, _RIGHT = " \t\n", "\n\t "
"""White space around each mark, to detect whether the template strips it."""
# Separator between system message and first message if the template has no system message.
_BETWEEN = "\n\n"


@dataclass(slots=True, kw_only=True, frozen=True)
class _Slot:
    """A slot in a layout for part of a message, or for the system message."""

    part: int | None
    """Index of the part; None for the system message."""
    strips_left: bool = False
    """Whether the template strips white space before the text."""
    strips_right: bool = False
    as_json: bool = False
    """Whether the template writes the text as JSON, in quotes."""


_Layout = tuple[Piece | _Slot, ...]


class TemplateFormat(ChatFormat):
    """The format of a model's own chat template."""

    def __init__(self, model: ChatModel, template: str) -> None:
        self._model, self._template = model, template
        self._variables = {**template_rendering.template_variables(model.path), **model.options}
        self._layouts: dict[tuple[str, str, tuple[bool, ...]], _Layout] = {}
        self._takes_parts = bool(model.image_text) and template_rendering.takes_parts(
            template, self._variables
        )
        opening = self._render([("user", _FIRST)])
        if opening.count(_FIRST) != 1:
            raise self._unusable("a message does not appear in the prompt exactly once")
        self._has_system = self._writes_system()
        header, after = self._history(opening)
        self._past_header = model.split(header)
        self._next_header = model.split(opening.partition(_FIRST)[2])
        pieces = model.split(after.partition(_FIRST)[0])
        if not pieces or not isinstance(pieces[0], int):
            raise self._unusable(f"a reply is followed by {pieces[:1]}, not by a special token")
        self.end_id = pieces[0]
        # Text between two special tokens ends the reply's turn; other text begins the next turn.
        ends_turn = len(pieces) > 2 and isinstance(pieces[1], str)
        self._closing = pieces[1:2] if ends_turn else ()
        without = self._render([("user", _FIRST)], reply=False)
        added = opening.removeprefix(without) if opening.startswith(without) else ""
        self._opening = model.split(added)
        # Text that is only in the next reply's header, such as an opened thought, is part of the
        # reply.
        _, _, generation = opening.partition(_FIRST)
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(header, generation, strict=False))
        opened = generation[len(list(shared)) :]
        if opened.count("<think>") > opened.count("</think>"):
            self.reply_prefix = opened
        own = (*model.split(opening.partition(_FIRST)[0]), *model.split(header), *pieces)
        names = {id: name for name, id in model.token_ids.items()}
        self.protected = frozenset(names[piece] for piece in own if isinstance(piece, int))

    @classmethod
    def open(cls, model: ChatModel) -> Self:
        """Open the format of the chat template in the model's folder."""
        template = template_rendering.chat_template(model.path)
        if not template:
            raise ConfigError(f"model.path={model.path}: the model has no chat template")
        return cls(model, template)

    def first(self, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Fill in the first message, preceded by any system message that the template rejects."""
        if system and not self._has_system:
            texts = [system, _BETWEEN, *([parts[0]] if parts and isinstance(parts[0], str) else ())]
            parts = ["".join(map(str, texts)), *parts[len(texts) - 2 :]]
            system = ""
        return self._fill("system" if system else "first", system, role, parts)

    def following(self, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        """Fill in a message that follows a reply."""
        return self._fill("following", "", role, parts)

    def before_past_reply(self, prompt: Sequence[Piece]) -> tuple[Piece, ...]:
        """Return the prompt with the header that the template writes for past replies."""
        return (*prompt[: len(prompt) - len(self._next_header)], *self._past_header)

    def past_reply(self, text: str) -> str:
        """Return the reply as the template writes it before a later message."""
        found = self._written_reply(text)
        return text if found is None else found

    def results(self, results: Sequence[str]) -> tuple[Piece, ...]:
        """Fill in tool results that follow a reply."""
        return self._fill("results", "", "tool", results)

    def with_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the system message as the template writes it, including the definitions."""
        plain = self._render([("system", _SYSTEM), ("user", _FIRST)])
        before, _, after = plain.partition(_SYSTEM)
        messages = [*([("system", _SYSTEM)] if system else []), ("user", _FIRST)]
        text = self._render(messages, tools=tools)
        found = text.removeprefix(before).removesuffix(after)
        if len(found) != len(text) - len(before) - len(after) or found in ("", _SYSTEM):
            raise ConfigError(
                f"the chat template of {self._model.path} does not put tools into the system "
                "message; put their definitions there yourself"
            )
        return found.replace(_SYSTEM, system)

    def with_tool_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Return the reply as the template writes it in the middle of a conversation."""
        functions = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
        reply = {"tool_calls": [{"type": "function", "function": one} for one in functions]}
        spoken = _REPLY if text else ""
        found = self._written_reply(spoken, reply)
        if found in (None, spoken):
            raise ConfigError(
                f"the chat template of {self._model.path} does not support tool calls; put them "
                "into the reply's text, or set model.chat=chatml, which puts them in <tool_call> "
                "tags"
            )
        return found.replace(_REPLY, text, 1)

    def _written_reply(
        self, text: str, more: Mapping[str, Any] = MappingProxyType({})
    ) -> str | None:
        """Render a reply between two messages and cut it out.

        Returns:
            The reply's text; None if the reply changes the text around it.
        """
        plain, written = (
            self._render([("user", _FIRST), ("assistant", said), ("user", "qSECONDq")], more=fields)
            for said, fields in ((_REPLY, {}), (text, {1: more}))
        )
        before, _, after = plain.partition(_REPLY)
        is_same = written.startswith(before) and written.endswith(after)
        if not is_same or len(written) < len(before) + len(after):
            return None
        return written[len(before) : len(written) - len(after)]

    def opening(self) -> tuple[Piece, ...]:
        """Return the pieces that begin a reply."""
        return self._opening

    def closing(self) -> tuple[Piece, ...]:
        return self._closing

    def _fill(self, kind: str, system: str, role: str, parts: Sequence[Piece]) -> tuple[Piece, ...]:
        parts = parts or [""]
        key = (kind, role, tuple(isinstance(part, str) for part in parts))
        if key not in self._layouts:
            self._layouts[key] = self._layout(*key)
        found: list[Piece] = []
        for piece in self._layouts[key]:
            if not isinstance(piece, _Slot):
                found.append(piece)
                continue
            own = system if piece.part is None else parts[piece.part]
            if isinstance(own, str):
                own = own.lstrip() if piece.strips_left else own
                own = own.rstrip() if piece.strips_right else own
                own = _in_json(own) if piece.as_json else own
            found.append(own)
        return tuple(found)

    def _layout(self, kind: str, role: str, are_texts: tuple[bool, ...]) -> _Layout:
        """Find the layout of one kind of message."""
        marks = [f"qPART{index}q" if is_text else None for index, is_text in enumerate(are_texts)]
        content = [None if mark is None else f"{_LEFT}{mark}{_RIGHT}" for mark in marks]
        messages: list[tuple[str, Any]] = [(role, content)]
        if kind == "system":
            messages.insert(0, ("system", f"{_LEFT}{_SYSTEM}{_RIGHT}"))
        if kind == "results":
            messages = [(role, part) for part in content]
        if kind in ("following", "results"):
            messages = [("user", _FIRST), ("assistant", _REPLY), *messages]
        text = self._render(messages)
        slots = {mark: index for index, mark in enumerate(marks) if mark is not None}
        images = [index for index, mark in enumerate(marks) if mark is None]
        found = self._slots(text, slots, images, has_system=kind == "system")
        if kind not in ("following", "results"):
            return found
        # The reply is followed by its end token, which is a separate piece, and the end of its
        # turn.
        start = next(i for i, p in enumerate(found) if isinstance(p, str) and _REPLY in p)
        return found[start + 2 + len(self._closing) :]

    def _slots(
        self, text: str, slots: dict[str, int], images: Sequence[int], *, has_system: bool
    ) -> _Layout:
        """Split a rendered conversation into pieces, with slots for its marks and images."""
        names = {**slots, **({_SYSTEM: None} if has_system else {})}
        pattern = "|".join(map(re.escape, [*names, *([self._model.image_text] if images else [])]))
        remaining, layout, end = list(images), list[Piece | _Slot](), 0
        seen = []
        for match in re.finditer(pattern, text):
            before, mark = text[end : match.start()], match.group()
            end = match.end()
            if mark not in names:
                layout += self._model.split(before)
                if not remaining:
                    raise self._unusable(f"{mark} appears more often than there are images")
                layout.append(_Slot(part=remaining.pop(0)))
                continue
            seen.append(mark)
            # If the white space is gone, the template has stripped it, and `_fill` will as well.
            left, right = before.endswith(_LEFT), text.startswith(_RIGHT, end)
            if before.endswith(_in_json(_LEFT)) and text.startswith(_in_json(_RIGHT), end):
                before = before.removesuffix(_in_json(_LEFT))
                layout += self._model.split(before)
                layout.append(_Slot(part=names[mark], as_json=True))
                end += len(_in_json(_RIGHT))
                continue
            if ("\t" in before[-len(_LEFT) :] and not left) or (
                "\t" in text[end : end + len(_RIGHT)] and not right
            ):
                raise self._unusable("it changes white space within a message")
            layout += self._model.split(before.removesuffix(_LEFT) if left else before)
            layout.append(_Slot(part=names[mark], strips_left=not left, strips_right=not right))
            end += len(_RIGHT) if right else 0
        if remaining or sorted(seen) != sorted(names):
            raise self._unusable(
                f"of {len(names)} text parts and {len(images)} images, it renders {len(seen)} and "
                f"{len(images) - len(remaining)} (an image as {self._model.image_text!r})"
            )
        return (*layout, *self._model.split(text[end:]))

    def _render(
        self,
        messages: Sequence[tuple[str, Any]],
        *,
        reply: bool = True,
        more: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Render messages. Content is a string, or a list of strings, with None for images.

        Args:
            messages: pairs of role and content.
            reply: whether to add the header of a reply.
            more: additional fields of messages, by message index.
            tools: definitions of functions.
        """
        filled = [
            {"role": role, "content": self._content(content), **more.get(index, {})}
            for index, (role, content) in enumerate(messages)
        ]
        try:
            return template_rendering.render(
                self._template, filled, self._variables, reply=reply, tools=tools
            )
        except ConfigError as error:
            raise self._unusable(str(error)) from error

    def _content(self, content: Any) -> Any:
        """Convert content to a list of parts, or to a string if the template rejects parts."""
        # Keep an empty string, because templates test whether there is text before a tool call.
        if content == "":
            return ""
        parts = content if isinstance(content, list) else [content]
        if not self._takes_parts:
            return "".join(self._model.image_text if part is None else part for part in parts)
        return [
            {"type": "image"} if part is None else {"type": "text", "text": part} for part in parts
        ]

    def _writes_system(self) -> bool:
        """Return whether the template supports a system message."""
        try:
            text = self._render([("system", _SYSTEM), ("user", _FIRST)])
        except ConfigError:
            return False
        return text.count(_SYSTEM) == 1 and text.find(_SYSTEM) < text.find(_FIRST)

    def _history(self, opening: str) -> tuple[str, str]:
        """Check that all turns of a conversation have the first turn's format.

        Returns:
            The text between the first message and its reply, and the text after the reply.
        """
        turns = [("user", _FIRST), ("assistant", _REPLY), ("user", _FIRST)]
        start, header, after = self._turns(turns)
        if start != opening.partition(_FIRST)[0]:
            raise self._unusable("the start of a conversation depends on later messages")
        if not after.endswith(opening.partition(_FIRST)[2]):
            raise self._unusable("the header of a reply depends on earlier turns")
        if self._turns([*turns, ("assistant", "qSECONDq"), ("user", _FIRST)])[1] != header:
            raise self._unusable("the header of a past reply depends on later messages")
        if self._turns([("user", "qZEROq"), ("assistant", "qNOUGHTq"), *turns])[2] != after:
            raise self._unusable("a later turn differs from the second one")
        if self._has_system and self._turns([("system", _SYSTEM), *turns])[2] != after:
            raise self._unusable("a later turn depends on the system message")
        return header, after

    def _turns(self, messages: Sequence[tuple[str, str]]) -> tuple[str, str, str]:
        """Return the text before the message's mark, between it and the reply, and after that."""
        text = self._render(messages)
        start, found, rest = text.partition(_FIRST)
        header, replied, after = rest.partition(_REPLY)
        if not found or not replied or _FIRST not in after:
            raise self._unusable("a message or a reply is missing in a longer conversation")
        return start, header, after

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(
            f"model.chat: the chat template of {self._model.path} cannot be split into turns: "
            f"{why}. Use a format of your own (model.chat=module:Class) or model.chat=chatml"
        )


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
