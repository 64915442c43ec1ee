"""What our parsers accept, the vendors' own parsers read in the same way; what they refuse, we do.

Their readings were recorded by `record_vendor_parsers.py`.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.actions.dialect import Screen, open_dialect
from agentrl.actions.screen_actions import (
    Done,
    DoubleTap,
    Key,
    LongPress,
    OpenApp,
    ScreenAction,
    Swipe,
    Tap,
    Type,
    Wait,
)
from agentrl.errors import ActionError

RECORDED = json.loads((Path(__file__).parent / "data/vendor_parsers.json").read_text("utf-8"))
OPENED = {
    name: open_dialect(name)
    for name in ("ui-tars", "ui-tars-1.5", "autoglm", "mai-ui", "androidworld-json")
}
WAYS = {"up": (0, 1), "down": (0, -1), "left": (1, 0), "right": (-1, 0)}
"""The finger's way for a scroll that shows more on that side."""


def ours(dialect: str, size: tuple[int, int], reply: str) -> ScreenAction | None:
    opened = OPENED[dialect]
    try:
        return opened.parse(reply, Screen(size=size, seen=opened.served_size(size)))
    except ActionError:
        return None


def tars_meaning(vendor: Any) -> Any:
    """The vendor's reading as an action, positions in [0, 1]."""
    ((name, inputs),) = vendor

    def at(box: str) -> tuple[float, float]:
        x1, y1, x2, y2 = ast.literal_eval(inputs[box])
        return (x1 + x2) / 2, (y1 + y2) / 2

    if name in ("click", "long_press"):
        return {"click": Tap, "long_press": LongPress}[name](*at("start_box"))
    if name == "drag":
        return Swipe(*at("start_box"), *at("end_box"))
    if name == "scroll":
        return at("start_box"), WAYS[inputs["direction"]]
    if name in ("press_home", "press_back"):
        return Key(name.removeprefix("press_").upper())
    if name == "open_app":
        return OpenApp(inputs.get("app_name", ""))
    text = inputs.get("content", "")
    return Type(text) if name == "type" else Done(message=text)


def glm_meaning(vendor: Any) -> Any:
    if vendor["_metadata"] == "finish":
        return Done(message=vendor["message"])

    def at(key: str) -> list[float]:
        return [number / 1000 for number in vendor[key]]

    name = vendor["action"]
    points = {"Tap": Tap, "Long Press": LongPress, "Double Tap": DoubleTap}
    if name in points:
        return points[name](*at("element"))
    if name == "Swipe":
        return Swipe(*at("start"), *at("end"))
    if name == "Wait":
        return Wait(float(vendor["duration"].removesuffix(" seconds")))
    if name in ("Type", "Launch"):
        return {"Type": Type, "Launch": OpenApp}[name](vendor["text" if name == "Type" else "app"])
    return Key(name.upper())


def same(action: ScreenAction, meaning: Any) -> bool:
    if isinstance(meaning, tuple):  # a scroll, whose length is not said
        assert isinstance(action, Swipe)
        (x, y), (across, down) = meaning
        moved = (action.x2 - action.x1) * across + (action.y2 - action.y1) * down
        return (action.x1, action.y1) == pytest.approx((x, y)) and moved > 0
    if type(action) is not type(meaning):
        return False
    mine, theirs = (
        [getattr(one, name) for name in type(one).__dataclass_fields__] for one in (action, meaning)
    )
    return mine == pytest.approx(theirs) if isinstance(mine[0], float) else mine == theirs


@pytest.mark.parametrize("dialect", ["ui-tars", "ui-tars-1.5", "autoglm"])
def test_our_parser_reads_what_the_vendors_reads_and_nothing_more(dialect: str) -> None:
    meaning_of = glm_meaning if dialect == "autoglm" else tars_meaning
    accepted = 0
    cases = [case for case in RECORDED["cases"] if case[0] == dialect]
    for _, size, reply, vendor in cases:
        action = ours(dialect, tuple(size), reply)
        if action is None:
            continue
        accepted += 1
        assert vendor is not None, f"{reply!r} is refused by its vendor, and read as {action}"
        assert same(action, meaning_of(vendor)), f"{reply!r}: {vendor} is read as {action}"
    assert len(cases) > 180
    # All sound replies that the dialect has; open_app, drag and point are not in the first version.
    assert accepted >= {"ui-tars": 40, "ui-tars-1.5": 105, "autoglm": 105}[dialect]


@pytest.mark.parametrize(("size", "resized"), RECORDED["resized"])
def test_screens_are_resized_as_by_the_vendor(size: list[int], resized: list[int]) -> None:
    assert list(open_dialect("ui-tars-1.5").served_size((size[0], size[1]))) == resized


@pytest.mark.parametrize(
    ("dialect", "reply", "finger"),
    [
        ("ui-tars-1.5", "Action: scroll(point='<point>400 600</point>', direction='down')", "up"),
        (
            "mai-ui",
            '<tool_call>{"name": "mobile_use", "arguments": {"action": "swipe", "direction": '
            '"down"}}</tool_call>',
            "down",
        ),
        ("androidworld-json", 'Action: {"action_type": "scroll", "direction": "down"}', "up"),
        ("androidworld-json", 'Action: {"action_type": "swipe", "direction": "down"}', "down"),
        ("androidworld-json", 'Action: {"action_type": "scroll", "direction": "left"}', "right"),
        ("androidworld-json", 'Action: {"action_type": "swipe", "direction": "left"}', "right"),
    ],
)
def test_a_direction_is_that_of_the_finger_or_of_the_content(
    dialect: str, reply: str, finger: str
) -> None:
    action = ours(dialect, (1080, 2400), reply)
    assert isinstance(action, Swipe)
    across, down = action.x2 - action.x1, action.y2 - action.y1
    way = ("right" if across > 0 else "left") if abs(across) > abs(down) else None
    assert (way or ("down" if down > 0 else "up")) == finger
