"""Scripted players of Snake: they know the truth and answer as a model would."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentrl.envs.minigames.players import Skilled
from agentrl.envs.minigames.snake.phone import GAME
from agentrl.envs.minigames.snake.rules import MOVES, Cell, ahead, on_board
from agentrl.envs.phone_game.players import RandomPlayer


class Expert(Skilled):
    """Goes the shortest way to the food, where there is a way out after it."""

    game = GAME

    def best(self, info: Mapping[str, Any]) -> str:
        """Towards the food if the tail can be reached from there, else after the tail."""
        body: list[Cell] = [tuple(cell) for cell in info["body"]]
        food: Cell = tuple(info["food"])
        way = _way(body, food)
        if way and _has_way_out(_gone(body, way)):
            return way[0]
        careful = [name for name in info["moves"] if _is_free(body, ahead(body[0], name), food)]
        out = [name for name in careful if _has_way_out(_gone(body, [name], food))]
        # Nothing is lost by a long way: the body goes on meanwhile.
        far = sorted(out or careful, key=lambda name: -_room(body, ahead(body[0], name)))
        return far[0] if far else str(info["moves"][0])


class Mediocre(Expert):
    """Makes any call in half of its turns."""

    usual_skill = 0.5


class Random(RandomPlayer):
    """Makes any call, and touches anywhere now and then."""

    game = GAME


def _way(body: Sequence[Cell], goal: Cell) -> list[str]:
    """The shortest way from the head to a cell; empty where there is none.

    Only what of the body is still there when the head arrives is in the way.
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
    """The snake at the end of a way; with no food named, it eats at the last step."""
    now = list(body)
    for number, name in enumerate(way, 1):
        head = ahead(now[0], name)
        eats = head == food if food is not None else number == len(way)
        now = [head, *(now if eats else now[:-1])]
    return now


def _has_way_out(body: Sequence[Cell]) -> bool:
    """Whether the head can follow the tail."""
    return bool(_way(body, body[-1]))


def _is_free(body: Sequence[Cell], cell: Cell, food: Cell) -> bool:
    return on_board(cell) and cell not in (body if cell == food else body[:-1])


def _room(body: Sequence[Cell], start: Cell) -> int:
    """How many cells can be reached from here without moving the body."""
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
