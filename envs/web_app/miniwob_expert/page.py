"""A page of MiniWoB++ as its scripted player reads it, and the actions on its elements."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.actions.screen_actions import Action, Key, Swipe, Tap, Type, Wait

Element = Mapping[str, Any]
"""An element of a page; see `MiniWoB`."""
_MAX_SCROLL = 0.12
"""How far one swipe scrolls, in heights of the screen: less than the lowest list."""
PAUSE = Wait(0.5)
"""What a player does while the page has yet to show something, such as suggestions."""
_SUBMITS = ("Submit", "Search", "Go!", "Login", "OK")


@dataclass(slots=True, frozen=True, kw_only=True)
class Page:
    """What a page says: the task and its elements, in the document's order."""

    instruction: str
    elements: Sequence[Element]
    is_stuck: bool = False
    """Whether to touch a field again that seems to be ready."""

    def all(
        self, *tags: str, text: str | None = None, of: str | None = None, name: str | None = None
    ) -> list[Element]:
        """Return the elements with one of some tags, a text, a class (`of`) and an id (`name`)."""
        return [
            one
            for one in self.elements
            if (not tags or one["tag"] in tags)
            and (text is None or one["text"] == text)
            and (of is None or of in one["classes"])
            and (name is None or one["id"] == name)
        ]

    def find(
        self, *tags: str, text: str | None = None, of: str | None = None, name: str | None = None
    ) -> Element | None:
        """Return the first of `all`, or None."""
        return next(iter(self.all(*tags, text=text, of=of, name=name)), None)

    def get(
        self, *tags: str, text: str | None = None, of: str | None = None, name: str | None = None
    ) -> Element:
        """Return the first of `all`, which must exist."""
        found = self.find(*tags, text=text, of=of, name=name)
        assert found is not None, f"no {tags} {text} {of} {name} for {self.instruction!r}"
        return found

    @property
    def quoted(self) -> list[str]:
        """The parts of the instruction between quotation marks."""
        return [part.strip() for part in re.findall(r'"([^"]*)"', self.instruction) if part.strip()]

    def match(self, pattern: str) -> tuple[str, ...]:
        """Return the groups of a pattern that the instruction matches somewhere."""
        found = re.search(pattern, self.instruction)
        assert found is not None, f"{self.instruction!r} does not match {pattern}"
        return found.groups()

    @property
    def pixel(self) -> tuple[float, float]:
        """Width and height of a pixel of the page, in widths and heights of the screen."""
        frame = self.get(name="wrap")
        return frame["width"] / 160, frame["height"] / 210

    def submit(self) -> Action:
        """Tap the button that hands in the answer."""
        return self.tap([one for one in self.elements if one["text"] in _SUBMITS][-1])

    def tap(self, element: Element) -> Action:
        """Tap an element, or scroll its list towards it."""
        view = element["view"]
        if element["touchable"] or view is None:
            return Tap(element["x"], element["y"])
        middle = (view[0] + view[1]) / 2
        way = max(-_MAX_SCROLL, min(middle - element["y"], _MAX_SCROLL))
        x = min(max(element["x"], 0.2), 0.8)
        return Swipe(x, middle - way / 2, x, middle + way / 2)

    def fill(self, field: Element, text: str) -> Action | None:
        """Write a text into a field, step by step; return None once it is there."""
        if field["value"] == text:
            return None
        # After a choice among suggestions, Chrome may focus a field without moving the caret there.
        if self.is_stuck or not field["focused"]:
            return self.tap(field)
        return Key("DEL") if field["value"] else Type(text)
