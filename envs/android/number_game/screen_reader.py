"""Read the number game's state from the screen alone, for `truth="sight"`.

Facts that the screen does not show are left out: the lamp while it is out, the numbers of cards
that lie face down. A fact that is shown but illegible is UNREAD. Seed and tip are not read.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.devices.vision import UNREAD, Glyphs, check_frame, color_fraction, dominant_color
from agentrl.devices.vision import Box as Area
from agentrl.envs.android.number_game import layout, palette
from agentrl.envs.android.number_game.game_state import STAKE, START_SCORE, NumberGamePhase
from agentrl.envs.android.number_game.layout import FIXED_LAYOUTS, RoundLayout
from agentrl.envs.android.number_game.levels import LAMPS, NumberGameLevel, Round
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box, to_screen
from agentrl.envs.picture_colors import in_colors
from agentrl.types import Image

MOST_TICKS = 40
"""The longest clock whose single touches can be distinguished on its bar."""
_DRAWN_AT = 720
"""Screen width in pixels for which the glyphs are drawn; other sizes are scaled."""
_FACES = {"plain": palette.PANEL, "back": palette.BACK, "right": palette.RIGHT} | {
    "wrong": palette.WRONG
}
_BUTTONS = {"open": palette.BLUE, "locked": palette.UNLIT, "again": palette.RIGHT} | {
    "page": palette.PAGE,
    "panel": palette.PANEL,
}
_BULBS = {**palette.LIT, "out": palette.UNLIT}
_Facts = dict[str, Any]


def read_screen(frame: Image, level: NumberGameLevel) -> _Facts:
    """Return the facts on a screen of the number game, named as in the published state.

    Args:
        frame: the whole screen in portrait orientation, uint8[H, W, 3], of any size, compressed or
            not.
        level: the game's level, which is a known setting.

    Returns:
        `score`, `change`, `round`, `rounds`, `right`, `wrong`, `phase`, `done`, `lamp`, `numbers`,
        `answer`, `picked`, `touch_targets`, and `time_left` if a clock runs.

    Raises:
        ValueError: `frame` is not an image.
    """
    check_frame(frame)
    # Inverting twice gives the normal colors.
    frame = in_colors(frame, level.colors)
    facts = _board(frame)
    where, face = _find_places(frame, level)
    faces = [dominant_color(frame, _FACES, _strip(card)) for card in where.cards] if where else []
    phase = _phase(face, faces)
    facts |= {"phase": phase, "done": UNREAD if phase == UNREAD else phase == NumberGamePhase.FINAL}
    facts |= _picks(facts)
    facts["touch_targets"] = where.taps() if where else UNREAD
    facts |= _cards(frame, level, phase, where, faces)
    facts |= _lamp(frame, level, phase)
    facts |= _outcome(facts, faces)
    return facts | _clock(frame, level, where)


def _board(frame: Image) -> _Facts:
    top, bottom = (layout.BOARD.down(share) for share in (0.3, 0.74))
    rows = [
        _text(_signs("0123456789/+-", palette.VALUES), frame, _area(Box(left, top, right, bottom)))
        for left, right in ((c / 3 + 0.03, (c + 1) / 3 - 0.03) for c in range(3))
    ]
    score, turn, change = rows
    of = re.fullmatch(r"(\d+)/(\d+)", turn)
    return {
        "score": _number(score),
        "round": int(of[1]) if of else UNREAD,
        "rounds": int(of[2]) if of else UNREAD,
        "change": 0 if change == "-" else _number(change),
    }


def _find_places(frame: Image, level: NumberGameLevel) -> tuple[RoundLayout | None, str | None]:
    """Return the layout and the color of the button's face."""
    if frame.shape[1] > frame.shape[0]:
        return None, None
    if not level.moved:
        where = FIXED_LAYOUTS[level.cards]
        face = _button(frame, where.button)
        return (None if face is None else where), face
    # Only the button is found by its color; the cards may lie in any of the remaining cells.
    boxes = {(r, c): layout.cell(c, r, 2, margin=0.04) for r in (2, 3, 4) for c in (0, 1)}
    faces = {at: _button(frame, box) for at, box in boxes.items()}
    buttons = [cell for cell, face in faces.items() if face is not None]
    if len(buttons) != 1:
        return None, None
    row, column = buttons[0]
    cells = [
        (r, c) for r in (2, 3, 4) for c in range(3) if r != row or c not in (column, column + 1)
    ]
    cards = [(r, c) for r, c in cells if _is_card(frame, layout.cell(c, r), level)]
    words = {2, 3, 4} - {row} - {r for r, _ in cards}
    if len(cards) != level.cards or len(words) != 1:
        return None, None
    where = RoundLayout(
        words=layout.cell(0, words.pop(), layout.COLUMNS),
        cards=tuple(layout.cell(c, r) for r, c in cards),
        button=boxes[row, column],
    )
    return where, faces[row, column]


def _button(frame: Image, box: Box) -> str | None:
    """Return the color of a button's face; None if there is no button.

    Above its label, a button has a uniform color from end to end; half a button next to a card of
    the same color has a gap.
    """
    strip = Box(box.left + 0.03, box.down(0.1), box.right - 0.03, box.down(0.3))
    face = dominant_color(frame, _BUTTONS, _area(strip), share=0.93)
    return face if face in ("open", "locked", "again") else None


def _is_card(frame: Image, box: Box, level: NumberGameLevel) -> bool:
    return (
        dominant_color(frame, _FACES, _strip(box)) == "back"
        or _number_on(frame, box, level) != UNREAD
    )


def _phase(button: str | None, faces: list[str | None]) -> str:
    if button is None or None in faces:
        return UNREAD
    if button == "open":
        turned = [face != "back" for face in faces]
        if all(turned):
            return NumberGamePhase.REVEAL
        return UNREAD if any(turned) else NumberGamePhase.LAMP
    return NumberGamePhase.PICK if button == "locked" else NumberGamePhase.FINAL


def _picks(facts: Mapping[str, Any]) -> _Facts:
    """Return the numbers of right and wrong picks: score and round give difference and sum."""
    unread: _Facts = {"right": UNREAD, "wrong": UNREAD}
    if UNREAD in (facts["score"], facts["round"], facts["phase"]):
        return unread
    # Each pick changes the score by one stake, up or down.
    over = facts["phase"] in (NumberGamePhase.REVEAL, NumberGamePhase.FINAL)
    picks, ahead = facts["round"] - 1 + over, (facts["score"] - START_SCORE) / STAKE
    right = (picks + ahead) / 2
    if not right.is_integer() or not 0 <= right <= picks:
        return unread
    return {"right": int(right), "wrong": int(picks - right)}


def _cards(
    frame: Image,
    level: NumberGameLevel,
    phase: str,
    where: RoundLayout | None,
    faces: list[str | None],
) -> _Facts:
    if phase == NumberGamePhase.LAMP:
        return {}
    if where is None or "back" in faces:
        return {"numbers": UNREAD}
    numbers = [_number_on(frame, box, level) for box in where.cards]
    return {"numbers": UNREAD if UNREAD in numbers else numbers}


def _number_on(frame: Image, box: Box, level: NumberGameLevel) -> int | str:
    size, bold = palette.FONTS[box.right - box.left < 0.25, level.digits]
    number = _number(_text(_signs("0123456789", size, bold), frame, _area(_within(box, 0.06))))
    return number if number in level.numbers else UNREAD


def _lamp(frame: Image, level: NumberGameLevel, phase: str) -> _Facts:
    seen = []
    for lamp, box in zip(LAMPS, layout.LAMPS, strict=True):
        x, y = Box(box.left, box.top, box.right, box.down(0.84)).center
        middle = _area(Box(x - 0.05, y - 0.02, x + 0.05, y + 0.02))
        seen.append((lamp, dominant_color(frame, _BULBS, middle, share=0.8)))
    lit = [lamp for lamp, color in seen if color == lamp]
    if sum(color == "out" for _, color in seen) + len(lit) < len(seen) or len(lit) > 1:
        return {"lamp": UNREAD}
    if lit:
        return {"lamp": lit[0]}
    return {} if level.memory and phase != NumberGamePhase.LAMP else {"lamp": UNREAD}


def _outcome(facts: Mapping[str, Any], faces: list[str | None]) -> _Facts:
    """Return the right card, if the screen already determines it, and the picked card."""
    phase, numbers, lamp = facts["phase"], facts.get("numbers"), facts.get("lamp")
    if phase in (NumberGamePhase.REVEAL, NumberGamePhase.FINAL):
        if faces.count("right") != 1 or faces.count("wrong") > 1 or facts["change"] == UNREAD:
            return {"answer": UNREAD, "picked": UNREAD}
        answer = faces.index("right")
        wrong = faces.index("wrong") if "wrong" in faces else None
        return {"answer": answer, "picked": answer if facts["change"] > 0 else wrong}
    outcome: _Facts = {"picked": UNREAD if phase == UNREAD else None}
    if UNREAD in (lamp, phase) or isinstance(numbers, str):
        return {**outcome, "answer": UNREAD}
    if lamp is not None and numbers is not None:
        outcome["answer"] = answer_to(lamp, numbers)
    return outcome


def answer_to(lamp: str, numbers: list[int]) -> int:
    """Return the index of the card that a lamp asks for."""
    return Round(lamp=lamp, numbers=tuple(numbers)).answer


def _clock(frame: Image, level: NumberGameLevel, where: RoundLayout | None) -> _Facts:
    if not level.timed or level.timed > MOST_TICKS:
        return {}
    if where is None:
        return {"time_left": UNREAD}
    track = Box(0.175, where.words.down(0.04), 0.935, where.words.down(0.08))
    left, rest = (color_fraction(frame, c, _area(track)) for c in (palette.BLUE, palette.EDGE))
    return {"time_left": round(left * level.timed) if left + rest > 0.8 else UNREAD}


def _text(signs: Glyphs, frame: Image, area: Area) -> str:
    """Return the text in an area; empty if any part is illegible."""
    row = signs.read(frame, area)
    return row.text if row.covered > 0.9 else ""


@lru_cache(maxsize=16)
def _signs(signs: str, size: float, bold: float = 0.0) -> Glyphs:
    inks = {s: paint.ink_of(s, round(size * _DRAWN_AT), round(bold * _DRAWN_AT)) for s in signs}
    return Glyphs({s: ink[..., 0].astype(np.uint8) for s, ink in inks.items()}, _DRAWN_AT)


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else UNREAD


def _area(box: Box) -> Area:
    """Convert a box from the app's area to the whole screen."""
    return box.left, to_screen(box.top), box.right, to_screen(box.bottom)


def _strip(card: Box) -> Area:
    """Return the part of a card above its number."""
    return _area(Box(card.left + 0.04, card.down(0.06), card.right - 0.04, card.down(0.16)))


def _within(box: Box, share: float) -> Box:
    """Return the inner part of a box, cutting off a share on each side."""
    wide, high = share * (box.right - box.left), share * (box.bottom - box.top)
    return Box(box.left + wide, box.top + high, box.right - wide, box.bottom - high)
