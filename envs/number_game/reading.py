"""The number game's screen read by sight alone: what it shows, without a word from the game.

A fact that does not show on a screen is left out: no lamp where it is out, no numbers on cards that
lie face down. What shows and cannot be read is UNREAD. Neither seed nor tip is read.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.devices.vision import UNREAD, Glyphs, check_frame, nearest, share_of
from agentrl.devices.vision import Box as Area
from agentrl.envs.number_game import layout, palette
from agentrl.envs.number_game.levels import Level
from agentrl.envs.number_game.places import STILL, Places
from agentrl.envs.number_game.rounds import LAMPS, Round
from agentrl.envs.number_game.rules import STAKE, START_SCORE, Phase
from agentrl.envs.phone_game import paint
from agentrl.envs.phone_game.box import Box, to_screen
from agentrl.types import Image

MOST_TICKS = 40
"""The longest clock whose single touches can be told apart on its bar."""
_DRAWN_AT = 720
"""Width of the screen for which signs are drawn; other sizes are scaled."""
_FACES = {"plain": palette.PANEL, "back": palette.BACK, "right": palette.RIGHT} | {
    "wrong": palette.WRONG
}
_BUTTONS = {"open": palette.BLUE, "locked": palette.UNLIT, "again": palette.RIGHT} | {
    "page": palette.PAGE,
    "panel": palette.PANEL,
}
_BULBS = {**palette.LIT, "out": palette.UNLIT}
_Facts = dict[str, Any]


def read_screen(frame: Image, level: Level) -> _Facts:
    """The public facts that a screen of the number game shows, named as in its published state.

    Args:
        frame: the whole screen, upright, uint8[H, W, 3] of any size, compressed or not.
        level: of the game, which is a setting and no secret.

    Returns:
        `score`, `change`, `round`, `rounds`, `right`, `wrong`, `phase`, `done`, `lamp`, `numbers`,
        `answer`, `picked`, `places`, and `time_left` where a clock runs.

    Raises:
        ValueError: it is no frame.
    """
    check_frame(frame)
    facts = _board(frame)
    where, face = _find_places(frame, level)
    faces = [nearest(frame, _FACES, _strip(card)) for card in where.cards] if where else []
    phase = _phase(face, faces)
    facts |= {"phase": phase, "done": UNREAD if phase == UNREAD else phase == Phase.FINAL}
    facts |= _picks(facts)
    facts["places"] = where.taps() if where else UNREAD
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


def _find_places(frame: Image, level: Level) -> tuple[Places | None, str | None]:
    """Where everything lies, and the colour of the button's face."""
    if frame.shape[1] > frame.shape[0]:
        return None, None
    if not level.moved:
        where = STILL[level.cards]
        face = _button(frame, where.button)
        return (None if face is None else where), face
    boxes = {(r, c): layout.cell(c, r, 2, margin=0.04) for r in (2, 3, 4) for c in (0, 1)}
    faces = {at: _button(frame, box) for at, box in boxes.items()}
    found = [at for at, face in faces.items() if face is not None]
    if len(found) != 1:
        return None, None
    row, column = found[0]
    cells = [
        (r, c) for r in (2, 3, 4) for c in range(3) if r != row or c not in (column, column + 1)
    ]
    cards = [(r, c) for r, c in cells if _is_card(frame, layout.cell(c, r), level)]
    words = {2, 3, 4} - {row} - {r for r, _ in cards}
    if len(cards) != level.cards or len(words) != 1:
        return None, None
    where = Places(
        words=layout.cell(0, words.pop(), layout.COLUMNS),
        cards=tuple(layout.cell(c, r) for r, c in cards),
        button=boxes[row, column],
    )
    return where, faces[row, column]


def _button(frame: Image, box: Box) -> str | None:
    """The colour of a button's face; None where there is none.

    Above its label it has one colour from end to end: a card of that colour beside half a button
    has a gap between.
    """
    strip = Box(box.left + 0.03, box.down(0.1), box.right - 0.03, box.down(0.3))
    face = nearest(frame, _BUTTONS, _area(strip), share=0.93)
    return face if face in ("open", "locked", "again") else None


def _is_card(frame: Image, box: Box, level: Level) -> bool:
    return nearest(frame, _FACES, _strip(box)) == "back" or _number_on(frame, box, level) != UNREAD


def _phase(button: str | None, faces: list[str | None]) -> str:
    if button is None or None in faces:
        return UNREAD
    if button == "open":
        turned = [face != "back" for face in faces]
        return Phase.REVEAL if all(turned) else UNREAD if any(turned) else Phase.LAMP
    return Phase.PICK if button == "locked" else Phase.FINAL


def _picks(facts: Mapping[str, Any]) -> _Facts:
    """How many were right and wrong: the score is their difference, the round their sum."""
    unread: _Facts = {"right": UNREAD, "wrong": UNREAD}
    if UNREAD in (facts["score"], facts["round"], facts["phase"]):
        return unread
    over = facts["phase"] in (Phase.REVEAL, Phase.FINAL)
    picks, ahead = facts["round"] - 1 + over, (facts["score"] - START_SCORE) / STAKE
    right = (picks + ahead) / 2
    if not right.is_integer() or not 0 <= right <= picks:
        return unread
    return {"right": int(right), "wrong": int(picks - right)}


def _cards(
    frame: Image, level: Level, phase: str, where: Places | None, faces: list[str | None]
) -> _Facts:
    if phase == Phase.LAMP:
        return {}
    if where is None or "back" in faces:
        return {"numbers": UNREAD}
    numbers = [_number_on(frame, box, level) for box in where.cards]
    return {"numbers": UNREAD if UNREAD in numbers else numbers}


def _number_on(frame: Image, box: Box, level: Level) -> int | str:
    size, bold = palette.FONTS[box.right - box.left < 0.25, level.digits]
    number = _number(_text(_signs("0123456789", size, bold), frame, _area(_within(box, 0.06))))
    return number if number in level.numbers else UNREAD


def _lamp(frame: Image, level: Level, phase: str) -> _Facts:
    seen = []
    for lamp, box in zip(LAMPS, layout.LAMPS, strict=True):
        x, y = Box(box.left, box.top, box.right, box.down(0.84)).centre
        middle = _area(Box(x - 0.05, y - 0.02, x + 0.05, y + 0.02))
        seen.append((lamp, nearest(frame, _BULBS, middle, share=0.8)))
    lit = [lamp for lamp, colour in seen if colour == lamp]
    if sum(colour == "out" for _, colour in seen) + len(lit) < len(seen) or len(lit) > 1:
        return {"lamp": UNREAD}
    if lit:
        return {"lamp": lit[0]}
    return {} if level.memory and phase != Phase.LAMP else {"lamp": UNREAD}


def _outcome(facts: Mapping[str, Any], faces: list[str | None]) -> _Facts:
    """Which card is the right one, as soon as that can be known, and which was picked."""
    phase, numbers, lamp = facts["phase"], facts.get("numbers"), facts.get("lamp")
    if phase in (Phase.REVEAL, Phase.FINAL):
        if faces.count("right") != 1 or faces.count("wrong") > 1 or facts["change"] == UNREAD:
            return {"answer": UNREAD, "picked": UNREAD}
        answer = faces.index("right")
        wrong = faces.index("wrong") if "wrong" in faces else None
        return {"answer": answer, "picked": answer if facts["change"] > 0 else wrong}
    found: _Facts = {"picked": UNREAD if phase == UNREAD else None}
    if UNREAD in (lamp, phase) or isinstance(numbers, str):
        return {**found, "answer": UNREAD}
    if lamp is not None and numbers is not None:
        found["answer"] = answer_to(lamp, numbers)
    return found


def answer_to(lamp: str, numbers: list[int]) -> int:
    """Which card a lamp asks for, counted from 0."""
    return Round(lamp=lamp, numbers=tuple(numbers)).answer


def _clock(frame: Image, level: Level, where: Places | None) -> _Facts:
    if not level.timed or level.timed > MOST_TICKS:
        return {}
    if where is None:
        return {"time_left": UNREAD}
    track = Box(0.175, where.words.down(0.04), 0.935, where.words.down(0.08))
    left, rest = (share_of(frame, c, _area(track)) for c in (palette.BLUE, palette.EDGE))
    return {"time_left": round(left * level.timed) if left + rest > 0.8 else UNREAD}


def _text(signs: Glyphs, frame: Image, area: Area) -> str:
    """What stands there; empty where not all of it can be read."""
    row = signs.read(frame, area)
    return row.text if row.covered > 0.9 else ""


@lru_cache(maxsize=16)
def _signs(signs: str, size: float, bold: float = 0.0) -> Glyphs:
    inks = {s: paint.ink_of(s, round(size * _DRAWN_AT), round(bold * _DRAWN_AT)) for s in signs}
    return Glyphs({s: ink[..., 0].astype(np.uint8) for s, ink in inks.items()}, _DRAWN_AT)


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else UNREAD


def _area(box: Box) -> Area:
    """A box of the app's area as one of the whole screen."""
    return box.left, to_screen(box.top), box.right, to_screen(box.bottom)


def _strip(card: Box) -> Area:
    """The part of a card above its number."""
    return _area(Box(card.left + 0.04, card.down(0.06), card.right - 0.04, card.down(0.16)))


def _within(box: Box, share: float) -> Box:
    """The inner part of a box, so much of it left out on each side."""
    wide, high = share * (box.right - box.left), share * (box.bottom - box.top)
    return Box(box.left + wide, box.top + high, box.right - wide, box.bottom - high)
