"""Scripted players of web apps, and of easy tasks of MiniWoB++."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.players.random_player import USUAL_SCREEN, RandomPlayer
from agentrl.actions.screen_action_space import ScreenActionSpace
from agentrl.actions.screen_actions import Action, Tap
from agentrl.actions.space_formats import action_format_for
from agentrl.errors import ConfigError

Element = Mapping[str, Any]
"""An element of a page; see `MiniWoB`."""
Choice = Callable[[str, Sequence[Element]], Element]
"""Returns the element to tap, given the instruction and the visible elements."""
_ORDINALS = ("1st", "2nd", "3rd")
_SHAPES = {"rect": "rectangle", "circle": "circle", "polygon": "triangle"}


class WebAppRandom(RandomPlayer):
    """Touches and types at random.

    Args:
        actions: see `WebApp`.
        style: see `WebAppTranslator`.
        max_actions_per_reply: see `RandomPlayer`.
    """

    def __init__(
        self,
        actions: Sequence[str] | None = None,
        style: str = "tag",
        max_actions_per_reply: int = 1,
    ) -> None:
        space = ScreenActionSpace(actions)
        super().__init__(space, style=style, max_actions_per_reply=max_actions_per_reply)


class MiniWoBExpert:
    """Solves the easy tasks, from what a page's elements say.

    Args:
        style: see `WebAppTranslator`.
    """

    def __init__(self, style: str = "tag") -> None:
        self._format = action_format_for(ScreenActionSpace(), style=style)
        self.dialect: Dialect | None = None
        """How actions are written; None in the translator's own format."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the next action without reasoning.

        Raises:
            ConfigError: it does not know the task.
        """
        choose = CHOICES.get(info["task"])
        if choose is None:
            raise ConfigError(
                f"the player 'expert' does not know the task {info['task']}; it knows "
                f"{', '.join(CHOICES)}"
            )
        element = choose(info["instruction"], info["elements"])
        return self._written(Tap(element["x"], element["y"]), info)

    def _written(self, action: Action, info: Mapping[str, Any]) -> str:
        if self.dialect is None:
            return self._format.format(action)
        screen = self.dialect.screen(info.get("screen_size", USUAL_SCREEN))
        return self.dialect.spell(action, screen)


def _quoted(instruction: str) -> str:
    """Return what an instruction says between its first and its last quotation mark."""
    found = re.search(r'"(.*)"', instruction)
    assert found is not None, f"{instruction!r} quotes nothing"
    return found[1]


def _labeled(elements: Sequence[Element], text: str, *tags: str) -> Element:
    """Return the first element with a text, of one of some tags."""
    return next(one for one in elements if one["text"] == text and (not tags or one["tag"] in tags))


def _only(tag: str) -> Choice:
    return lambda _, elements: next(one for one in elements if one["tag"] == tag)


def _button(instruction: str, elements: Sequence[Element]) -> Element:
    return _labeled(elements, _quoted(instruction), "button")


def _in_sequence(_: str, elements: Sequence[Element]) -> Element:
    return next(one for one in elements if one["tag"] == "button" and not one["tapped"])


def _color(instruction: str, elements: Sequence[Element]) -> Element:
    name = instruction.removeprefix("Click on the ").removesuffix(" colored box.")
    return next(one for one in elements if one["label"] == name)


def _in_dialog(instruction: str, elements: Sequence[Element]) -> Element:
    name = _quoted(instruction)
    if name == "x":
        return next(one for one in elements if "ui-dialog-titlebar-close" in one["classes"])
    return _labeled(elements, name, "button")


def _option(instruction: str, elements: Sequence[Element]) -> Element:
    name = instruction.removeprefix("Select ").removesuffix(" and click Submit.")
    option = _labeled(elements, name, "label")
    return _labeled(elements, "Submit", "button") if option["checked"] else option


def _link(instruction: str, elements: Sequence[Element]) -> Element:
    return _labeled(elements, _quoted(instruction), "span", "a")


def _tab(instruction: str, elements: Sequence[Element]) -> Element:
    number = re.search(r"#(\d+)", instruction)
    assert number is not None, f"{instruction!r} names no tab"
    return _labeled(elements, f"Tab #{number[1]}", "a")


def _widget(instruction: str, elements: Sequence[Element]) -> Element:
    return next(one for one in elements if one["label"] == _quoted(instruction))


def _textbox(instruction: str, elements: Sequence[Element]) -> Element:
    number = next(i for i, word in enumerate(_ORDINALS) if word in instruction)
    return [one for one in elements if one["tag"] == "input"][number]


def _grid_point(instruction: str, elements: Sequence[Element]) -> Element:
    point = instruction[instruction.index("(") : instruction.index(")") + 1]
    return next(one for one in elements if one["id"] == point)


def _shape(_: str, elements: Sequence[Element]) -> Element:
    figure = next(one for one in elements if one["tag"] in ("text", *_SHAPES))
    kind = _SHAPES.get(figure["tag"]) or ("digit" if figure["text"].isdigit() else "letter")
    return next(one for one in elements if one["label"] == kind)


def _file(instruction: str, elements: Sequence[Element]) -> Element:
    names = [one for one in elements if one["tag"] == "span"]
    wanted = [one for one in names if one["text"] == _quoted(instruction)]
    folders = [one for one in names if "folder" in one["classes"] and not one["tapped"]]
    return (wanted or folders)[0]


CHOICES: Mapping[str, Choice] = {
    "click-button": _button,
    "click-button-sequence": _in_sequence,
    "click-color": _color,
    "click-dialog": _in_dialog,
    "click-dialog-2": _in_dialog,
    "click-link": _link,
    "click-option": _option,
    "click-tab": _tab,
    "click-test": _only("button"),
    "click-test-2": _only("button"),
    "click-widget": _widget,
    "focus-text": _only("input"),
    "focus-text-2": _textbox,
    "grid-coordinate": _grid_point,
    "identify-shape": _shape,
    "navigate-tree": _file,
}
