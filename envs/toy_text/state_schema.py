"""The field of FrozenLake's state estimates."""

from collections.abc import Mapping, Sequence
from typing import Any

_STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Rows and columns moved by each action: left, down, right, up."""


class FrozenLakeStateSchema:
    """The player's square on the map of `FrozenLakeMaps-v0`."""

    fields = {"player": "your [row, column], counted from 0"}  # noqa: RUF012 - never changed
    predicted = ("player",)

    def visible(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the square in `info`."""
        return {"player": info["player"]}

    def expected(self, info: Mapping[str, Any], actions: Sequence[int]) -> dict[str, Any]:
        """Return the square after moves that do not slip, up to a hole or the goal."""
        rows, (row, column) = info["map"].split("\n"), info["player"]
        for action in actions:
            if rows[row][column] in "HG":
                break
            down, right = _STEPS[action]
            row, column = (min(max(at, 0), len(rows) - 1) for at in (row + down, column + right))
        return {"player": [row, column]}
