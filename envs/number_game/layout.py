"""The layout of the number game, shared by drawing, touches and players.

The whole screen, including the phone's status bar, is a grid of three columns and five equal rows:
score board; lamps; instruction and feedback; cards; button. Scaled to a multiple of 3x5 patches,
each lamp and each card covers whole patches of the vision model. Four cards divide their row into
four columns. See `places` for the layout of levels with `moved`.
"""

from agentrl.envs.phone_game.box import Box, Grid

COLUMNS, ROWS = 3, 5


def cell(
    column: float, row: float, columns: float = 1.0, margin: float = 0.02, of: int = COLUMNS
) -> Box:
    """The box of one or several adjacent cells of the screen's grid.

    Args:
        column: its left column, from 0.
        row: its row, from 0.
        columns: width in columns.
        margin: free space on each side; see `agentrl.envs.phone_game.box.Grid.cell`.
        of: number of columns that this row is divided into.
    """
    return Grid(columns=of, rows=ROWS).cell(column, row, columns, margin=margin)


BOARD = cell(0, 0, COLUMNS)
LAMPS = tuple(cell(column, 1, margin=0.03) for column in range(COLUMNS))
WORDS = cell(0, 2, COLUMNS)
CARDS = tuple(cell(column, 3) for column in range(COLUMNS))
FOUR_CARDS = tuple(cell(column, 3, of=4) for column in range(4))
BUTTON = cell(0, 4, COLUMNS, margin=0.04)
