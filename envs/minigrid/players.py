"""A scripted player of MiniGrid's rooms with a goal, a locked door or an object to fetch."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX

from agentrl.actions.space_formats import action_format_for

# Runs recorded before `Planner` name this player by this path, and have no `RoomState`.
from agentrl.envs.minigrid.walker import Walker as Walker

_DOOR, _KEY, _GOAL = (OBJECT_TO_IDX[name] for name in ("door", "key", "goal"))
_FETCHED = ("key", "ball", "box")
_OPEN, _LOCKED = STATE_TO_IDX["open"], STATE_TO_IDX["locked"]


class _Pose(NamedTuple):
    x: int
    y: int
    direction: int

    @property
    def ahead(self) -> tuple[int, int]:
        right, down = DIR_TO_VEC[self.direction]
        return self.x + int(right), self.y + int(down)


class Planner:
    """Takes a shortest way to what comes next: the object to fetch, the key, the door, the goal.

    It needs the wrapper `RoomState`. It plays Empty, FourRooms, DoorKey and Fetch; in rooms that
    need something else, such as moving an obstacle, it turns left when it knows no way.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: names of the actions; this and the other arguments must match the translator's.
        parameters: parameters of the components.
        style: `tag` or `tool`.
    """

    def __init__(
        self,
        action_space: gymnasium.Space[Any],
        names: Any = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
    ) -> None:
        self._action_format = action_format_for(action_space, names, parameters, style)

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the first move of a shortest way.

        Args:
            info: with `room` and `mission`, as `RoomState` adds them.
            rng: unused.

        Raises:
            KeyError: `info` has no room.
        """
        return self._action_format.format(next_move(info["room"], info["mission"]))


def next_move(room: Mapping[str, Any], mission: str) -> int:
    """Return the number of the action that `Planner` takes.

    Args:
        room: see `RoomState`.
        mission: what to do; the last two words of `get a red key` and the like name the object.
    """
    cells, carrying = room["cells"], room["carrying"]
    start = _Pose(room["position"][0], room["position"][1], room["direction"])
    color, kind = ["", "", *mission.split()][-2:]
    if kind in _FETCHED and color in COLOR_TO_IDX:
        wanted = (OBJECT_TO_IDX[kind], COLOR_TO_IDX[color])
        return _go_and(Actions.pickup, cells, start, lambda cell: tuple(cell[:2]) == wanted)
    move = _way(cells, start, lambda pose: cells[pose.x][pose.y][0] == _GOAL)
    if move is not None:
        return move
    if carrying is None and _locked(cells):
        return _go_and(Actions.pickup, cells, start, lambda cell: cell[0] == _KEY)
    return _go_and(Actions.toggle, cells, start, lambda cell: cell[0] == _DOOR and cell[2] != _OPEN)


def _locked(cells: Sequence[Sequence[Sequence[int]]]) -> bool:
    return any(cell[0] == _DOOR and cell[2] == _LOCKED for column in cells for cell in column)


def _go_and(
    action: int,
    cells: Sequence[Sequence[Sequence[int]]],
    start: _Pose,
    wanted: Callable[[Sequence[int]], bool],
) -> int:
    """Return `action` in front of a wanted cell, or the next move to stand in front of one."""

    def faces(pose: _Pose) -> bool:
        x, y = pose.ahead
        return wanted(cells[x][y])

    if faces(start):
        return action
    move = _way(cells, start, faces)
    return Actions.left if move is None else move


def _way(
    cells: Sequence[Sequence[Sequence[int]]], start: _Pose, arrived: Callable[[_Pose], bool]
) -> int | None:
    """Return the first move of a shortest way to a pose; None without a way."""
    reached, waiting = {start}, deque[tuple[_Pose, int | None]]([(start, None)])
    while waiting:
        pose, first = waiting.popleft()
        if first is not None and arrived(pose):
            return first
        x, y = pose.ahead
        following = [
            (Actions.left, pose._replace(direction=(pose.direction - 1) % 4)),
            (Actions.right, pose._replace(direction=(pose.direction + 1) % 4)),
        ]
        kind, _, state = cells[x][y]
        if kind in (OBJECT_TO_IDX["empty"], _GOAL) or (kind == _DOOR and state == _OPEN):
            following.append((Actions.forward, pose._replace(x=x, y=y)))
        for move, then in following:
            if then not in reached:
                reached.add(then)
                waiting.append((then, move if first is None else first))
    return None
