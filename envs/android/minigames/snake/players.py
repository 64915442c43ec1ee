"""Scripted players of Snake: they see the true state and reply in a model's format."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentrl.envs.android.minigames.snake.env import GAME
from agentrl.envs.android.minigames.snake.rules import MOVES, Cell, ahead, on_board
from agentrl.envs.android.phone_game.players import RandomGamePlayer, SkilledPlayer


class SnakeExpert(SkilledPlayer):
    """Takes the shortest path to the food if there is a way out afterwards."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Move towards the food if the tail can be reached from there, else follow the tail."""
        body: list[Cell] = [tuple(cell) for cell in info["body"]]
        food: Cell = tuple(info["food"])
        way = _way(body, food)
        if way and _has_way_out(_gone(body, way)):
            return way[0]
        careful = [name for name in info["moves"] if _is_free(body, ahead(body[0], name), food)]
        out = [name for name in careful if _has_way_out(_gone(body, [name], food))]
        # A detour costs nothing, because the body moves out of the way in the meantime.
        far = sorted(out or careful, key=lambda name: -_room(body, ahead(body[0], name)))
        return far[0] if far else str(info["moves"][0])


class SnakeMediocre(SnakeExpert):
    """Makes a random call in half of its turns."""

    default_skill = 0.5


class SnakeRandom(RandomGamePlayer):
    """Makes random calls, and sometimes touches anywhere."""

    game = GAME


def _way(body: Sequence[Cell], goal: Cell) -> list[str]:
    """Return the moves of the shortest path from the head to a cell; empty if there is none.

    A segment of the body blocks a cell only if it is still there when the head arrives.
    """
    left = {cell: len(body) - 1 - part for part, cell in enumerate(body)}
    waiting: deque[tuple[Cell, list[str]]] = deque([(body[0], [])])
    known = {body[0]}
    while waiting:
        cell, way = waiting.popleft()
        for name in MOVES:
            next = ahead(cell, name)
            if next in known or not on_board(next) or left.get(next, 0) > len(way):
                continue
            if next == goal:
                return [*way, name]
            known.add(next)
            waiting.append((next, [*way, name]))
    return []


def _gone(body: Sequence[Cell], way: Sequence[str], food: Cell | None = None) -> list[Cell]:
    """Return the snake at the end of a path; without `food`, the last step eats."""
    now = list(body)
    for number, name in enumerate(way, 1):
        head = ahead(now[0], name)
        eats = head == food if food is not None else number == len(way)
        now = [head, *(now if eats else now[:-1])]
    return now


def _has_way_out(body: Sequence[Cell]) -> bool:
    """Return whether the head can follow the tail."""
    return bool(_way(body, body[-1]))


def _is_free(body: Sequence[Cell], cell: Cell, food: Cell) -> bool:
    return on_board(cell) and cell not in (body if cell == food else body[:-1])


def _room(body: Sequence[Cell], start: Cell) -> int:
    """Return the number of cells reachable from `start` if the body does not move."""
    return len(_reached(start, set(body)))


def _reached(start: Cell, walls: Collection[Cell]) -> set[Cell]:
    known, waiting = {start}, [start]
    while waiting:
        cell = waiting.pop()
        for name in MOVES:
            next = ahead(cell, name)
            if on_board(next) and next not in walls and next not in known:
                known.add(next)
                waiting.append(next)
    return known
