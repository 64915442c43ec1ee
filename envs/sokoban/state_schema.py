"""The fields of Sokoban's state estimates."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.board_parser import parse
from agentrl.envs.sokoban.room import bits


class SokobanStateSchema:
    """Cells of the player and of the boxes, counted from 0 including walls."""

    fields = {  # noqa: RUF012 - never changed
        "player": "your [row, column], counted from 0 including walls",
        "boxes": "the [row, column] of each box, row by row",
    }
    predicted = ("player", "boxes")

    def visible(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the cells on the board in `info`."""
        return _cells(parse(info["board"]))

    def expected(self, info: Mapping[str, Any], actions: Sequence[int]) -> dict[str, Any]:
        """Return the cells after moves, which stop at the solution."""
        board = parse(info["board"])
        for move in actions:
            if board.solved:
                break
            board = board.move(move)
        return _cells(board)


def _cells(board: Board) -> dict[str, Any]:
    width = board.room.width
    return {
        "player": [*divmod(board.player, width)],
        "boxes": [[*divmod(cell, width)] for cell in sorted(bits(board.boxes))],
    }
