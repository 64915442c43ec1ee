"""Find the shortest solution of a board, in moves, and detect deadlocks.

A* over pushes: a state is the positions of the boxes and of the player after the last push; an edge
is the shortest walk to a box plus the push, and its cost is the number of moves. The heuristic is
the minimum number of pushes, with a distinct target per box, if boxes did not block each other.

Deadlock detection is fast and has no false positives, but misses some deadlocks.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

from agentrl.envs.sokoban.board import Board
from agentrl.envs.sokoban.room import Room, bits, moved

_FAR = 1 << 20
"""More pushes than any solution has."""
_MATCHED = 6
"""Maximum number of boxes for which the heuristic gives each its own target."""


class SearchLimitReached(Exception):
    """The search reached its limit of states without an answer."""


class SearchState(NamedTuple):
    """A state of the search."""

    boxes: int
    player: int


class Push(NamedTuple):
    """A walk to a box, and the push."""

    walk: int
    """Moves before the push."""
    stand: int
    """The player's cell before the push; the box is on the next cell in the push's direction."""
    direction: int
    """Index into `MOVES`."""


def solve(board: Board, limit: int = 100_000) -> tuple[int, ...] | None:
    """Return a shortest solution as indices into `MOVES`; None if the board has none.

    Raises:
        SearchLimitReached: `limit` states were expanded without an answer.
    """
    room, start = board.room, SearchState(board.boxes, board.player)
    estimate = _estimate(room)
    costs: dict[SearchState, int] = {start: 0}
    came: dict[SearchState, tuple[SearchState, Push]] = {}
    # The queue holds negated costs: of two equally promising states, take the deeper one first.
    queue = [(estimate(board.boxes), 0, start)]
    expanded = 0
    while queue:
        _, negative, state = heappop(queue)
        if -negative > costs[state]:
            continue  # a shorter path was found since
        if state.boxes == room.targets:
            return _moves(room, state, came)
        expanded += 1
        if expanded > limit:
            raise SearchLimitReached(f"no answer after {limit} states")
        for push in pushes(room, state):
            after, cost = pushed(room, state, push), push.walk + 1 - negative
            if cost < costs.get(after, _FAR) and (rest := estimate(after.boxes)) < _FAR:
                costs[after], came[after] = cost, (state, push)
                heappush(queue, (cost + rest, -cost, after))
    return None


def pushes(room: Room, state: SearchState) -> Iterator[Push]:
    """Return all pushes that avoid dead cells, each with the shortest walk to it."""
    boxes, width = state.boxes, room.width
    free = room.floor & ~boxes
    safe = free & ~room.dead
    # Cells with a box one step ahead and a safe cell two steps ahead.
    stands = [free & moved(boxes, -step) & moved(safe, -2 * step) for step in room.steps]
    wanted = stands[0] | stands[1] | stands[2] | stands[3]
    # Cells are bits, so that one step of the walk in all directions is four shifts.
    reached = edge = 1 << state.player
    walk = 0
    while edge and wanted:
        if edge & wanted:
            wanted &= ~edge
            for direction, stand in enumerate(stands):
                for cell in bits(edge & stand):
                    yield Push(walk, cell, direction)
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free & ~reached
        reached |= edge
        walk += 1


def pushed(room: Room, state: SearchState, push: Push) -> SearchState:
    """Return the state after a push."""
    box = push.stand + room.steps[push.direction]
    return SearchState(state.boxes ^ (1 << box | 1 << box + room.steps[push.direction]), box)


def _estimate(room: Room) -> Callable[[int], int]:
    """Return the heuristic: maps boxes to the minimum pushes; at least `_FAR` if unsolvable."""
    rows = {
        cell: [pushes.get(cell, _FAR) for pushes in room.distances] for cell in bits(room.floor)
    }
    count = len(room.distances)
    if count > _MATCHED:
        return cache(lambda boxes: sum(min(rows[box]) for box in bits(boxes)))
    choices = _choices(count)

    @cache
    def matched(boxes: int) -> int:
        # Cost of the cheapest assignment of the boxes so far, indexed by the set of targets used.
        best = [0, *[_FAR] * ((1 << count) - 1)]
        for box, turn in zip(bits(boxes), choices, strict=True):
            row = rows[box]
            for old, target, new in turn:
                cost = best[old] + row[target]
                if cost < best[new]:
                    best[new] = cost
        return best[-1]

    return matched


def _choices(count: int) -> list[list[tuple[int, int, int]]]:
    """Return each box's choices: (targets taken before, target it takes, targets taken after)."""
    return [
        [
            (taken, target, taken | 1 << target)
            for taken in range(1 << count)
            for target in range(count)
            if taken.bit_count() == turn and not taken >> target & 1
        ]
        for turn in range(count)
    ]


def _moves(
    room: Room, last: SearchState, came: Mapping[SearchState, tuple[SearchState, Push]]
) -> tuple[int, ...]:
    """Return the moves that lead to a state, including walks."""
    moves: list[int] = []
    while last in came:
        last, push = came[last]
        moves += [push.direction, *reversed(_walk(room, last, push.stand))]
    return tuple(reversed(moves))


def _walk(room: Room, state: SearchState, end: int) -> list[int]:
    """Return the moves of a shortest walk between the boxes."""
    came: dict[int, tuple[int, int]] = {}
    queue = [state.player]
    for cell in queue:  # grows during the loop
        for direction, step in enumerate(room.steps):
            to = cell + step
            if to not in came and to != state.player and (room.floor & ~state.boxes) >> to & 1:
                came[to] = cell, direction
                queue.append(to)
    moves: list[int] = []
    while end != state.player:
        end, direction = came[end]
        moves.append(direction)
    return moves[::-1]


def is_deadlocked(board: Board) -> bool:
    """Return whether the board certainly has no solution; False means that it may have one.

    Two kinds of deadlocks are found. A box on a dead cell, such as a corner, can never reach a
    target. Boxes that are blocked by each other or by walls and can never move again are frozen: if
    any of them is off target, the board is lost.
    """
    return bool(board.boxes & board.room.dead or frozen(board) & ~board.room.targets)


def frozen(board: Board) -> int:
    """Return the boxes that can never move again, as a set of cells.

    Start with all boxes frozen, and repeatedly release every box that could move if the others
    stay frozen. To move along a row or a column, a box needs a cell ahead and a cell behind it for
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
