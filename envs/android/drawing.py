"""The picture of the number game: a pure function of its state."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from agentrl.envs.android import layout, paint
from agentrl.envs.android.layout import Box
from agentrl.envs.android.rules import LAMPS, STAKE, NumberGame, Phase
from agentrl.types import Image

_PAGE = (238, 241, 246)
_PANEL = (255, 255, 255)
_EDGE = (206, 213, 224)
_INK = (28, 36, 52)
_QUIET = (122, 132, 150)
_UNLIT = (196, 202, 212)
_BLUE = (38, 99, 235)
_BACK = (88, 104, 140)
_RIGHT = (34, 160, 84)
_WRONG = (214, 56, 56)
_LIT = {"green": (22, 190, 76), "yellow": (250, 196, 20), "red": (232, 48, 44)}
_MEANING = {"green": "largest", "yellow": "middle", "red": "smallest"}


_Piece = tuple[Callable[..., None], tuple[Any, ...]]
"""How a part of the picture is drawn, and all that it shows: the key of what is kept."""


def render(game: NumberGame, width: int, height: int) -> Image:
    """Draw the app's area.

    What a part shows seldom changes from one screen to the next, and few things can be shown at
    all: each part is drawn once, and a picture is put together from them.

    Args:
        game: what to draw.
        width: in pixels.
        height: in pixels.

    Returns:
        uint8[height, width, 3]; the caller owns it.
    """
    if width > height:  # lying on its side, the parts overlap
        return draw(game, width, height)
    picture = _backdrop(width, height).copy()
    for piece in _pieces(game):
        top, left, pixels = _drawn(piece, width, height)
        picture[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return picture


def draw(game: NumberGame, width: int, height: int) -> Image:
    """The same picture as `render`'s, stroke by stroke: ten times as slow."""
    picture = _backdrop(width, height).copy()
    for stroke, shown in _pieces(game):
        stroke(picture, *shown)
    return picture


def _pieces(game: NumberGame) -> Iterator[_Piece]:
    """The parts of the picture; on an upright screen they do not overlap."""
    yield from _board(game)
    yield from _lamps(game)
    yield from _words(game)
    for card in range(len(layout.CARDS)):
        yield _card(game, card)
    yield _button(game)


@lru_cache(maxsize=512)
def _drawn(piece: _Piece, width: int, height: int) -> tuple[int, int, Image]:
    """One part on the backdrop: its top, its left, and what it changes there."""
    stroke, shown = piece
    picture = _backdrop(width, height).copy()
    stroke(picture, *shown)
    changed = picture != _backdrop(width, height)
    rows = np.flatnonzero(changed.reshape(height, -1).any(axis=1))
    if not rows.size:
        return 0, 0, picture[:0, :0].copy()
    columns = np.flatnonzero(changed[rows[0] : rows[-1] + 1].any(axis=0).any(axis=1))
    area = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].copy()
    return int(rows[0]), int(columns[0]), area


@lru_cache(maxsize=8)
def _backdrop(width: int, height: int) -> Image:
    """What never changes: title, panels, captions of the lamps."""
    picture = np.full((height, width, 3), _PAGE, dtype=np.uint8)
    board = layout.BOARD
    _panel(picture, board)
    paint.text(picture, "NUMBER GAME", 0.5, _down(board, 0.16), 0.042, _QUIET)
    for column, caption in zip(_thirds(), ("score", "round", "change"), strict=True):
        paint.text(picture, caption, column, _down(board, 0.82), 0.036, _QUIET)
    for lamp, box in zip(LAMPS, layout.LAMPS, strict=True):
        _panel(picture, box)
        paint.text(picture, _MEANING[lamp], box.centre[0], _down(box, 0.9), 0.042, _QUIET)
    picture.flags.writeable = False
    return picture


def _board(game: NumberGame) -> Iterator[_Piece]:
    change = f"{game.change:+d}" if game.change else "-"
    values = (str(game.score), f"{game.index + 1}/{len(game.rounds)}", change)
    inks = (_INK, _INK, {0: _QUIET, STAKE: _RIGHT}.get(game.change, _WRONG))
    for column, value, ink in zip(_thirds(), values, inks, strict=True):
        yield paint.text, (value, column, _down(layout.BOARD, 0.52), 0.085, ink)


def _lamps(game: NumberGame) -> Iterator[_Piece]:
    dark = game.memory and game.phase is not Phase.LAMP
    for lamp, box in zip(LAMPS, layout.LAMPS, strict=True):
        lit = lamp == game.round.lamp and not dark
        yield _draw_lamp, (box, _LIT[lamp] if lit else _UNLIT)


def _draw_lamp(picture: Image, box: Box, colour: paint.Colour) -> None:
    bulb = Box(box.left, box.top, box.right, _down(box, 0.84))
    paint.disc(picture, bulb, _EDGE, 0.118)
    paint.disc(picture, bulb, colour, 0.11)


def _words(game: NumberGame) -> Iterator[_Piece]:
    instruction, feedback, ink = _sentences(game)
    yield paint.text, (instruction, 0.5, _down(layout.WORDS, 0.3), 0.048, _INK)
    yield paint.text, (feedback, 0.5, _down(layout.WORDS, 0.68), 0.048, ink)


def _sentences(game: NumberGame) -> tuple[str, str, paint.Colour]:
    """The instruction, the feedback and its colour."""
    if game.phase is Phase.LAMP:
        return "Remember the lamp.", "Then turn the cards.", _QUIET
    instruction = "Pick the card that the lamp asks for."
    if game.phase is Phase.FINAL:
        instruction = f"Final score {game.score}: {game.right} right, {game.wrong} wrong"
    elif game.memory:
        instruction = "Pick the card that the lamp asked for."
    if game.picked is None:
        return instruction, "", _QUIET
    answer = game.round.numbers[game.round.answer]
    if game.change > 0:
        return instruction, f"Right! It was {answer}.", _RIGHT
    return instruction, f"Wrong. It was {answer}.", _WRONG


def _card(game: NumberGame, card: int) -> _Piece:
    box = layout.CARDS[card]
    if game.phase is Phase.LAMP:
        return _draw_card, (box, _BACK, "?", 0.16, _PAGE)
    face, ink = _PANEL, _INK
    if game.picked is not None:
        if card == game.round.answer:
            face, ink = _RIGHT, _PANEL
        elif card == game.picked:
            face, ink = _WRONG, _PANEL
        else:
            face, ink = _PAGE, _QUIET
    return _draw_card, (box, face, str(game.round.numbers[card]), 0.27, ink, 0.005)


def _draw_card(
    picture: Image,
    box: Box,
    face: paint.Colour,
    sign: str,
    size: float,
    ink: paint.Colour,
    bold: float = 0.0,
) -> None:
    _panel(picture, box, face)
    paint.text(picture, sign, *box.centre, size, ink, bold)


def _button(game: NumberGame) -> _Piece:
    return _draw_button, {
        Phase.LAMP: ("Turn the cards", _BLUE),
        Phase.PICK: ("Next round", _UNLIT),
        Phase.REVEAL: ("Next round", _BLUE),
        Phase.FINAL: ("Play again", _RIGHT),
    }[game.phase]


def _draw_button(picture: Image, label: str, face: paint.Colour) -> None:
    paint.rounded(picture, layout.BUTTON, face, 0.03)
    paint.text(picture, label, *layout.BUTTON.centre, 0.062, _PANEL)


def _panel(picture: Image, box: Box, face: paint.Colour = _PANEL) -> None:
    """A box with a thin edge."""
    paint.rounded(picture, box, _EDGE, 0.03)
    inner = Box(box.left + 0.005, box.top + 0.003, box.right - 0.005, box.bottom - 0.003)
    paint.rounded(picture, inner, face, 0.026)


def _down(box: Box, share: float) -> float:
    """A height within a box, from 0 at its top to 1 at its bottom."""
    return box.top + share * (box.bottom - box.top)


def _thirds() -> tuple[float, float, float]:
    """The middles of the three columns."""
    return (1 / 6, 1 / 2, 5 / 6)
