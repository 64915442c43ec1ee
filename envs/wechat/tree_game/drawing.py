"""Draws the tree game: a pure function of its state."""

from collections.abc import Iterator

from agentrl.envs.android.phone_game import cached_drawing, paint
from agentrl.envs.android.phone_game.boxes import Box
from agentrl.envs.android.phone_game.cached_drawing import Piece
from agentrl.envs.wechat.tree_game import layout
from agentrl.envs.wechat.tree_game.equipment import ATTRIBUTES, SLOTS, Equipment
from agentrl.envs.wechat.tree_game.rules import TreeGamePhase, TreeGameRules
from agentrl.types import Image

_PAGE = (240, 245, 238)
_PANEL = (255, 255, 255)
_EDGE = (208, 216, 206)
_INK = (28, 40, 34)
_QUIET = (124, 136, 128)
_UP, _DOWN = (22, 168, 76), (224, 48, 44)
_BLUE, _AMBER, _GRAY = (38, 99, 235), (214, 130, 20), (196, 204, 198)
_TRUNK, _BARK, _CROWN = (134, 92, 58), (108, 72, 44), (96, 170, 92)
_NUMBER = 0.085
"""Font size of numbers, as a share of the width like the others."""


def draw(game: TreeGameRules, width: int, height: int) -> Image:
    """Draw the app's area without the capsule, uint8[height, width, 3], which the caller owns."""
    if game.drop is None:
        return cached_drawing.draw((_main, ()), _on_main(game), width, height)
    return cached_drawing.draw((_popup, ()), _on_popup(game, game.drop), width, height)


def _main(picture: Image) -> None:
    """Draw the constant part of the main screen."""
    picture[:] = _PAGE
    _title(picture, "TREE OF POWER")
    paint.panel(picture, layout.BOARD, _PANEL, _EDGE, 0.025)
    board = layout.BOARD
    for column, caption in ((0.3, "power"), (0.78, "chops")):
        paint.text(picture, caption, column, board.down(0.84), 0.036, _QUIET)
    for slot, box in zip(SLOTS, layout.SLOTS, strict=True):
        paint.panel(picture, box, _PANEL, _EDGE, 0.025)
        paint.text(picture, slot, box.center[0], box.down(0.24), 0.042, _QUIET)
    _draw_tree(picture)


def _on_main(game: TreeGameRules) -> Iterator[Piece]:
    board, chops = layout.BOARD, f"{game.chop}/{game.level.chops}"
    yield paint.text, (str(game.power), 0.3, board.down(0.42), _NUMBER, _INK)
    yield paint.text, (chops, 0.78, board.down(0.42), _NUMBER, _INK)
    for piece, box in zip(game.worn, layout.SLOTS, strict=True):
        yield paint.text, (str(piece.power), box.center[0], box.down(0.64), 0.07, _INK)
    if game.phase is TreeGamePhase.CHOPPING:
        yield _draw_chips, (game.swings,)
    yield from _last(game)
    yield _draw_axe, (game.phase is TreeGamePhase.READY, game.swings % 2 if game.swings else 0)


def _last(game: TreeGameRules) -> Iterator[Piece]:
    """Draw the prompt at the foot of the tree, and the effect of the last decision."""
    words = "No chop is left." if game.phase is TreeGamePhase.FINAL else "Tap the axe."
    yield paint.text, (words, 0.5, layout.TREE.down(0.93), 0.048, _INK)
    if game.last is not None:
        color = _UP if game.last > 0 else _DOWN if game.last < 0 else _QUIET
        yield paint.text, (f"{game.last:+d}", 0.54, layout.BOARD.down(0.42), 0.056, color)


def _popup(picture: Image) -> None:
    """Draw the constant part of the popup."""
    picture[:] = _PAGE
    _title(picture, "NEW PIECE")
    paint.panel(picture, layout.POPUP, _PANEL, _EDGE, 0.025)
    for box, caption in ((layout.OLD, "old"), (layout.NEW, "new")):
        paint.text(picture, caption, *box.center, 0.056, _QUIET)
    for row, attribute in zip(layout.CELLS, ATTRIBUTES, strict=True):
        paint.text(picture, attribute, *row[0].center, 0.048, _INK)
    for box, label, face in (
        (layout.DECOMPOSE, "Decompose", _AMBER),
        (layout.REPLACE, "Replace", _BLUE),
    ):
        paint.rounded(picture, box, face, 0.03)
        paint.text(picture, label, *box.center, 0.062, _PANEL)


def _on_popup(game: TreeGameRules, drop: Equipment) -> Iterator[Piece]:
    worn = game.worn[drop.slot]
    yield paint.text, (SLOTS[drop.slot], 0.14, layout.OLD.center[1], 0.056, _INK)
    rows = zip(layout.CELLS, worn.values, drop.values, game.differences, game.arrows, strict=True)
    for (_, left, right, beside), old, new, difference, arrow in rows:
        yield paint.text, (str(old), *left.center, _NUMBER, _QUIET)
        yield paint.text, (str(new), *right.center, _NUMBER, _INK)
        yield _draw_change, (beside, abs(difference), arrow, 0.07)
    if game.level.total == "shown":
        sign = (game.change > 0) - (game.change < 0)
        yield paint.text, ("power", 0.14, layout.TOTAL.center[1], 0.056, _INK)
        total = layout.part(layout.TOTAL, 0.27, 1.0)
        yield _draw_change, (total, abs(game.change), sign, 0.11)


def _draw_change(picture: Image, box: Box, size: int, arrow: int, font: float) -> None:
    """Draw an arrow (green up or red down) and the amount, or a gray `=` for no change."""
    x, y = box.center
    if not arrow:
        paint.text(picture, "=", x, y, font, _QUIET)
        return
    color = _UP if arrow > 0 else _DOWN
    tall, wide = 0.28 * (box.bottom - box.top), font * 0.5
    middle, tip = box.across(0.24), -tall if arrow > 0 else tall
    corners = ((middle - wide, y - tip), (middle + wide, y - tip), (middle, y + tip))
    paint.polygon(picture, corners, color)
    paint.text(picture, str(size), box.across(0.66), y, font, color, 0.003)


def _draw_tree(picture: Image) -> None:
    tree = layout.TREE
    trunk = Box(0.42, tree.down(0.5), 0.58, tree.down(0.86))
    paint.rounded(picture, trunk, _TRUNK, 0.02)
    paint.rounded(picture, Box(0.44, trunk.top, 0.47, trunk.bottom), _BARK, 0.01)
    for x, y, size in ((0.34, 0.42, 0.16), (0.66, 0.42, 0.16), (0.5, 0.34, 0.19)):
        crown = Box(x - size, tree.down(y) - 0.05, x + size, tree.down(y) + 0.05)
        paint.disc(picture, crown, _CROWN, size)


def _draw_chips(picture: Image, swings: int) -> None:
    """Draw chips of wood that fly from the trunk."""
    y = layout.TREE.down(0.74)
    for chip in range(3):
        far = 0.05 + 0.03 * ((swings + chip) % 4)
        x, up = 0.42 - far, y - 0.01 * (chip + 1)
        paint.rounded(picture, Box(x, up, x + 0.03, up + 0.012), _BARK, 0.004)


def _draw_axe(picture: Image, is_ready: bool, tilt: int) -> None:
    """Draw the axe button, gray while chopping is not possible."""
    box = layout.AXE
    paint.rounded(picture, box, _BLUE if is_ready else _GRAY, 0.04)
    x, right = box.across(0.5), box.across(0.5) + 0.04 * tilt
    top, bottom, left = box.down(0.18), box.down(0.82), right - 0.07
    haft = ((right - 0.01, top), (right + 0.01, top), (x + 0.01, bottom), (x - 0.01, bottom))
    paint.polygon(picture, haft, _PANEL)
    blade = (left, box.down(0.14)), (left, box.down(0.6)), (right, box.down(0.48))
    paint.polygon(picture, ((right, box.down(0.24)), *blade), _PANEL)


def _title(picture: Image, words: str) -> None:
    box = layout.TITLE
    paint.text(picture, words, box.across(0.5), box.down(0.5), 0.048, _QUIET)
