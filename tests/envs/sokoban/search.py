"""A plain implementation of Sokoban, the reference for the fast code."""

from collections import deque

from agentrl.envs.sokoban.board import MOVES

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def move(text: str, name: str) -> str:
    """Return the board after a move, computed cell by cell."""
    rows = [list(row) for row in text.split("\n")]
    [(y, x)] = [(y, x) for y, row in enumerate(rows) for x, c in enumerate(row) if c in "@+"]
    dy, dx = STEPS[name]
    ahead = rows[y + dy][x + dx]
    if ahead == "#":
        return text
    if ahead in "$*":
        behind = rows[y + 2 * dy][x + 2 * dx]
        if behind not in " .":
            return text
        rows[y + 2 * dy][x + 2 * dx] = "*" if behind == "." else "$"
    rows[y + dy][x + dx] = "+" if ahead in ".*+" else "@"
    rows[y][x] = "." if rows[y][x] == "+" else " "
    return "\n".join("".join(row) for row in rows)


def shortest(text: str) -> int | None:
    """Return the length of a shortest solution by exhaustive search; None if there is none."""
    seen, queue = {text}, deque([(text, 0)])
    while queue:
        board, moves = queue.popleft()
        if "$" not in board:
            return moves
        for name in MOVES:
            after = move(board, name)
            if after not in seen:
                seen.add(after)
                queue.append((after, moves + 1))
    return None
