"""Scripted players that read the observation, as their environments' info lacks the state."""

TAXI_STOPS = ((0, 0), (0, 4), (4, 0), (4, 3))
TAXI_WALLS = {(r, c) for r, c in ((0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2))}
"""Squares with a wall to their right."""


def _act(name):
    return f"<action>{name}</action>"


def _first_step(start, goal, moves, size, is_open):
    """Return the first move of a shortest path, by breadth-first search."""
    paths = [(start, None)]
    seen = {start}
    for square, first in paths:
        if square == goal:
            return first
        for name, (down, right) in moves.items():
            to = square[0] + down, square[1] + right
            inside = 0 <= to[0] < size[0] and 0 <= to[1] < size[1]
            if inside and to not in seen and is_open(square, to):
                seen.add(to)
                paths.append((to, first or name))
    raise AssertionError(f"no way from {start} to {goal}")


class FrozenLakePlayer:
    """Walks around the holes of the 4x4 map."""

    moves = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}  # noqa: RUF012
    rows = ("SFFF", "FHFH", "FFFH", "HFFG")

    def reply(self, info, rng, observation):
        here = divmod(int(observation), 4)
        safe = lambda _, to: self.rows[to[0]][to[1]] != "H"  # noqa: E731
        return _act(_first_step(here, (3, 3), self.moves, (4, 4), safe))


class TaxiPlayer:
    """Transports the passenger on the shortest path."""

    moves = {"south": (1, 0), "north": (-1, 0), "east": (0, 1), "west": (0, -1)}  # noqa: RUF012

    def reply(self, info, rng, observation):
        rest, goal = divmod(int(observation), 4)
        rest, at = divmod(rest, 5)
        here = divmod(rest, 5)
        target = TAXI_STOPS[goal if at == 4 else at]
        if here == target:
            return _act("dropoff" if at == 4 else "pickup")
        return _act(_first_step(here, target, self.moves, (5, 5), self._is_open))

    def _is_open(self, square, to):
        return square[0] != to[0] or (square[0], min(square[1], to[1])) not in TAXI_WALLS


class MiniGridPlayer:
    """Goes to the green square in its view, in which its own position is column 3, row 6."""

    GOAL, WALL = 8, 2

    def reply(self, info, rng, observation):
        objects = observation["image"][:, :, 0]  # by column and row
        goals = [(x, y) for x in range(7) for y in range(7) if objects[x, y] == self.GOAL]
        if not goals:
            return _act("left")
        (x, y), *_ = goals
        if y < 6 and objects[3, 5] != self.WALL:
            return _act("forward")
        return _act("left" if x < 3 else "right")
