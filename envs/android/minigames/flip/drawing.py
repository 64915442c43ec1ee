"""Draws Flip: cards below a score board; each face has its own shape and color."""

from collections.abc import Iterator
from math import cos, pi, sin

from agentrl.envs.android.minigames import drawing_parts as parts
from agentrl.envs.android.minigames.flip.rules import Flip, grid
from agentrl.envs.android.phone_game import paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece, draw_cached
from agentrl.envs.android.phone_game.paint import Color
from agentrl.types import Image

_BACK: Color = (88, 104, 140)
_SQUARE = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
_TRIANGLE = ((0.5, 0.0), (1.0, 1.0), (0.0, 1.0))
_DIAMOND = ((0.5, 0.0), (1.0, 0.5), (0.5, 1.0), (0.0, 0.5))
_CROSS = (
    (0.35, 0.0), (0.65, 0.0), (0.65, 0.35), (1.0, 0.35), (1.0, 0.65), (0.65, 0.65),
    (0.65, 1.0), (0.35, 1.0), (0.35, 0.65), (0.0, 0.65), (0.0, 0.35), (0.35, 0.35),
)  # fmt: skip
_STAR = tuple(
    (0.5 + r * sin(n * pi / 5), 0.5 - r * cos(n * pi / 5)) for n, r in enumerate((0.55, 0.22) * 5)
)
_DISC = tuple((0.5 + 0.5 * sin(n * pi / 18), 0.5 - 0.5 * cos(n * pi / 18)) for n in range(36))
_PICTURES = (
    (_DISC, parts.RED),
    (_SQUARE, parts.BLUE),
    (_TRIANGLE, parts.GREEN),
    (_DIAMOND, parts.ORANGE),
    (_CROSS, parts.PURPLE),
    (_STAR, parts.YELLOW),
    (_TRIANGLE[::-1] and tuple((x, 1 - y) for x, y in _TRIANGLE), parts.INK),
    (_SQUARE, (80, 200, 210)),
)


def render(game: Flip, width: int, height: int) -> Image:
    """Draw the app's area, uint8[height, width, 3]."""
    return draw_cached((_ground, (game.pairs,)), _pieces(game), width, height)


def _rows(pairs: int) -> int:
    """Return the number of rows of the score board."""
    return 1 if grid(pairs).columns == 3 else 2


def _ground(picture: Image, pairs: int) -> None:
    parts.page(picture, grid(pairs), "FLIP", ("score", "turns left", "game"), _rows(pairs))


def _pieces(game: Flip) -> Iterator[Piece]:
    left = str(game.limit - game.turned)
    shown = (str(game.score), left, parts.outcome(game.won, game.lost))
    yield parts.values, (grid(game.pairs), shown, _rows(game.pairs))
    for card, (box, face) in enumerate(zip(game.boxes, game.faces, strict=True)):
        yield _card, (box, face, card in game.found)


def _card(picture: Image, box: Box, face: int | None, found: bool) -> None:
    if face is None:
        paint.rounded(picture, box, _BACK, 0.03)
        paint.text(picture, "?", *box.center, 0.11, parts.EDGE, 0.002)
        return
    paint.rounded(picture, box, parts.GREEN if found else parts.EDGE, 0.03)
    paint.rounded(picture, parts.inset(box, 0.014), parts.PANEL, 0.02)
    shape, color = _PICTURES[face]
    x, y = box.center
    half = (box.right - box.left) * 0.28
    tall = half * picture.shape[1] / picture.shape[0]
    parts.polygon(picture, Box(x - half, y - tall, x + half, y + tall), shape, color)
