"""Boards that are lost: found quickly, never wrongly, not always.

Two kinds are found. A box on a dead cell, such as a corner, can never reach a target. And boxes
that block each other or stand at walls so that none of them can ever move again are frozen: if one
of them is off its target, it stays there.
"""

from agentrl.envs.sokoban.board import Board


def is_deadlocked(board: Board) -> bool:
    """Whether it is certain that the board has no solution; where it says no, that is open."""
    return bool(board.boxes & board.room.dead or frozen(board) & ~board.room.targets)


def frozen(board: Board) -> int:
    """The boxes that no solution ever moves, as a set of cells.

    All are taken for frozen, and whoever could move if the others are is released, until nobody
    is. To move along a row or a column, a box needs a cell ahead and one for the player behind it
    that are neither walls nor frozen, and a cell ahead that is not dead.
    """
    room = board.room
    width, dead = room.width, room.dead
    outside = ~room.floor & (1 << room.height * width) - 1
    # Along a row, along a column: pushed either way, the box would be on a dead cell.
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
