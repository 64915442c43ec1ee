"""Tic-tac-toe against the page, which moves at random more often than not."""

from functools import cache

from agentrl.actions.screen_actions import Action
from agentrl.envs.web_app.miniwob_expert.page import Page

Board = tuple[int, ...]
"""Nine squares by rows: 1 is the player's, -1 the opponent's, 0 free."""
_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_RANDOM = 0.55
"""How often the opponent moves at random; otherwise it wins or blocks where it can."""


def tic_tac_toe(page: Page) -> Action:
    """Make the move that wins most often, as a draw is lost."""
    squares = [page.get(name=f"ttt-{i}") for i in range(9)]
    board = tuple(
        1 if "mark-x" in one["classes"] else -1 if "mark-o" in one["classes"] else 0
        for one in squares
    )
    return page.tap(squares[max(_free(board), key=lambda move: _after(board, move))])


def _free(board: Board) -> list[int]:
    return [i for i, owner in enumerate(board) if not owner]


def _placed(board: Board, square: int, owner: int) -> Board:
    return (*board[:square], owner, *board[square + 1 :])


def _has_won(board: Board, owner: int) -> bool:
    return any(all(board[i] == owner for i in line) for line in _LINES)


@cache
def _after(board: Board, move: int) -> float:
    """Return the probability of winning after a move of the player."""
    board = _placed(board, move, 1)
    if _has_won(board, 1):
        return 1.0
    free = _free(board)
    if not free:
        return 0.0
    outcomes = {square: _before(_placed(board, square, -1)) for square in free}
    mean = sum(outcomes.values()) / len(outcomes)
    for owner in (-1, 1):
        if urgent := [i for i in free if _has_won(_placed(board, i, owner), owner)]:
            return _RANDOM * mean + (1 - _RANDOM) * outcomes[urgent[0]]
    return mean


def _before(board: Board) -> float:
    """Return the probability of winning before the player's move."""
    free = _free(board)
    if _has_won(board, -1) or not free:
        return 0.0
    return max(_after(board, move) for move in free)
