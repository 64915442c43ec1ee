"""Fast deadlock detection: no false positives, but some deadlocks are missed.

It finds two kinds. A box on a dead cell, such as a corner, can never reach a target. Boxes that
block each other, or are against walls, such that none can ever move again are frozen: if one of
them is not on a target, the board is lost.
"""

from agentrl.envs.sokoban.board import Board


def is_deadlocked(board: Board) -> bool:
    """Whether the board certainly has no solution; False means that it may have one."""
    return bool(board.boxes & board.room.dead or frozen(board) & ~board.room.targets)


def frozen(board: Board) -> int:
    """The boxes that can never move again, as a set of cells.

    Starts with all boxes frozen, and repeatedly releases every box that could move if the others
    are frozen. To move along a row or a column, a box needs a cell ahead and a cell behind it for
    the player that are neither walls nor frozen boxes, and the cell ahead must not be dead.
    """
    room = board.room
    width, dead = room.width, room.dead
    outside = ~room.floor & (1 << room.height * width) - 1
    # Boxes that would land on a dead cell in both directions, along a row and along a column.
    ruined = [dead << step & dead >> step for step in (1, width)]
    left = board.boxes
    while True:
        blocks = outside | left
        held = left
        for step, lost in zip((1, width), ruined, strict=True):
            held &= blocks << step | blocks >> step | lost
        if held == left:
            return left
        left = held
