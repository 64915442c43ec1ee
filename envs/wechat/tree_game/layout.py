"""The layout of the tree game, shared by drawing, touches and players.

The whole screen, including the phone's status bar, is a grid of four columns and nine equal rows.
Scaled to a multiple of 4x9 patches, each number and each arrow of the popup covers whole patches of
the vision model.

Popup, from the top: title and capsule; the headings old (left) and new (right); five attributes,
each with its name, old value, new value, and an arrow with the difference; the change of power; the
two buttons. Main screen: title and capsule; the power; six slots in two rows; the tree; the axe.
"""

from agentrl.envs.android.phone_game.boxes import Box, Grid

COLUMNS, ROWS = 4, 9
_GRID = Grid(columns=COLUMNS, rows=ROWS)

TITLE = _GRID.cell(0, 0, 3, margin=0.01)
BOARD = _GRID.cell(0, 1, COLUMNS)
SLOTS = tuple(
    Grid(columns=3, rows=ROWS).cell(column, row, margin=0.015)
    for row in (2, 3)
    for column in (0, 1, 2)
)
TREE = _GRID.cell(0, 4, COLUMNS, 4, margin=0.0)
_FOOT = 0.75
"""Usable share of the lowest row's height; the rest is for the phone's navigation gestures."""
AXE = _GRID.cell(1, 8, 2, _FOOT, margin=0.01)

OLD = _GRID.cell(1, 1, margin=0.01)
NEW = _GRID.cell(2, 1, margin=0.01)
POPUP = _GRID.cell(0, 1, COLUMNS, 7, margin=0.01)
CELLS = tuple(
    tuple(_GRID.cell(column, row, margin=0.01) for column in range(COLUMNS)) for row in range(2, 7)
)
"""A row of boxes for each attribute: name, old value, new value, difference."""
TOTAL = _GRID.cell(0, 7, COLUMNS, margin=0.01)
DECOMPOSE = _GRID.cell(0, 8, 2, _FOOT, margin=0.02)
REPLACE = _GRID.cell(2, 8, 2, _FOOT, margin=0.02)


def part(box: Box, left: float, right: float) -> Box:
    """Return the part of a box between two shares of its width."""
    return Box(box.across(left), box.top, box.across(right), box.bottom)
