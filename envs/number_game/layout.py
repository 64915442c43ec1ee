"""Where everything of the number game lies: one place for drawing, touch and players.

The whole screen, with the phone's status bar, is a grid of three columns and five equal rows:
score board; lamps; instruction and feedback; cards; button. A picture of it scaled to a multiple
of 3x5 patches therefore shows each lamp and each card to a vision model in patches of its own. Four
cards divide their row into four columns. What the level `moved` makes of the grid: `places`.
"""

from agentrl.envs.phone_game.box import Box, Grid

COLUMNS, ROWS = 3, 5


def cell(
    column: float, row: float, columns: float = 1.0, margin: float = 0.02, of: int = COLUMNS
) -> Box:
    """The box of some neighbouring cells of the screen's grid.

    Args:
        column: its left column, from 0.
        row: its row, from 0.
        columns: how many columns wide.
        margin: what stays free on each side, as `agentrl.envs.phone_game.box.Grid.cell` takes it.
        of: how many columns this row is divided into.
    """
    return Grid(columns=of, rows=ROWS).cell(column, row, columns, margin=margin)


BOARD = cell(0, 0, COLUMNS)
LAMPS = tuple(cell(column, 1, margin=0.03) for column in range(COLUMNS))
WORDS = cell(0, 2, COLUMNS)
CARDS = tuple(cell(column, 3) for column in range(COLUMNS))
FOUR_CARDS = tuple(cell(column, 3, of=4) for column in range(4))
BUTTON = cell(0, 4, COLUMNS, margin=0.04)
