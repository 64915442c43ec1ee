"""Sokoban as a Gymnasium environment."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl.envs.picture_colors import check_colors, in_colors
from agentrl.envs.sokoban.board import CHARACTERS, MOVES, Board
from agentrl.envs.sokoban.drawing import draw
from agentrl.envs.sokoban.level_sources import open_source
from agentrl.envs.sokoban.solver import is_deadlocked
from agentrl.errors import ConfigError
from agentrl.types import Image

OBSERVATIONS = ("text", "image", "both")
DEADLOCKS = ("off", "report", "end")
STEP, BOX_ON, BOX_OFF, SOLVED = -0.1, 1.0, -1.0, 10.0
"""The usual rewards, as in gym-sokoban."""

_Observation = str | Image | dict[str, Any]
_Info = dict[str, Any]


class Sokoban(gymnasium.Env[_Observation, Any]):
    """Push every box onto a target. Moving against a box pushes it; two boxes block each other.

    Observation: the board as text (rows of `# .$@*+`, joined by line breaks), as an image
    uint8[H, W, 3], or both, `{"text": ..., "image": ...}`. Actions: `Discrete(4)`, up, down, left,
    right; a blocked move still takes a step. Reward: -0.1 per step, +1 for a box that moves onto a
    target, -1 for one that leaves it, +10 when all are on targets, which ends the episode.

    `info` holds `board` (text), `seed`, `level` (index in the level files), `moves`, `pushes`,
    `on_target`, `boxes`, `optimal` (moves of a shortest solution, None if unknown), `changed`
    (whether the last action moved anything), `success`, `deadlock` (None if not checked),
    `state_key` (seed and board), and `metrics`: `success`, `on_target` (share of the boxes),
    `efficiency` (optimal moves divided by moves made, 0 without success), and `deadlock`.

    Args:
        size: size of generated levels including walls: `5` has 3 by 3 cells inside. One number,
            or `[height, width]`; None for 7.
        boxes: number of boxes (and of targets) in generated levels; None for 1.
        min_moves: minimum length of a shortest solution of generated levels; None for 1.
        max_moves: maximum length of a shortest solution of generated levels; None for no limit.
        split: `all` levels, or only `train` or `eval` levels.
        held_out: the share of levels that belong to `eval`.
        held_out_by: the unit that is held out: a `room` (walls and targets, including rotations and
            mirror images), so that no board of one split occurs in the other; or, if there are only
            a few rooms, a `level` including boxes and player.
        levels: a file or folder of levels in Boxoban's format; None generates levels. Seeds
            cycle through the levels, which determine size, boxes and solution lengths.
        observation: `text`, `image` or `both`.
        cell: side of a cell in pixels.
        colors: of the images, `normal` or `inverted`.
        max_steps: the episode is truncated after this many steps.
        deadlock: `report`: say in `info` whether the board is certainly lost. `end`: also end the
            episode and charge for the remaining steps, so that losing early is no better than
            losing late. `off`: do not check.
        solver_states: search limit for the shortest solution of a level from a file, in states; 0
            for no search. Generated levels are always solved.
        render_mode: None, `rgb_array` or `ansi`.

    Raises:
        ConfigError: an invalid argument, missing levels, or an argument for generated levels
            together with `levels`.
    """

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 8}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        boxes: int | None = None,
        min_moves: int | None = None,
        max_moves: int | None = None,
        split: str = "all",
        held_out: float = 0.2,
        held_out_by: str = "room",
        levels: str | None = None,
        observation: str = "text",
        cell: int = 28,
        colors: str = "normal",
        max_steps: int = 120,
        deadlock: str = "report",
        solver_states: int = 20_000,
        render_mode: str | None = None,
    ) -> None:
        _check("observation", observation, OBSERVATIONS)
        check_colors(colors)
        _check("deadlock", deadlock, DEADLOCKS)
        _check("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        for name, value, least in (("cell", cell, 4), ("max_steps", max_steps, 1)):
            if value < least:
                raise ConfigError(f"{name} is {value}; it must be at least {least}.")
        self._source = open_source(
            size=size,
            boxes=boxes,
            min_moves=min_moves,
            max_moves=max_moves,
            split=split,
            held_out=held_out,
            held_out_by=held_out_by,
            levels=levels,
            states=solver_states,
        )
        self.observation = observation
        self.cell, self.colors, self.max_steps = cell, colors, max_steps
        self.deadlock = deadlock
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(MOVES))
        self.observation_space = _space(observation, *self._source.size, cell)
        self._seed = 0

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> None:
        """Check that the levels exist, before any episode runs.

        Raises:
            ConfigError: like the constructor.
        """
        cls(**kwargs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, _Info]:
        """Start the level of this seed, by default of a random seed."""
        super().reset(seed=seed)
        self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._level = self._source.draw(self._seed)
        self._board: Board = self._level.board
        self._moves = self._pushes = 0
        self._changed, self._lost = True, self._is_lost()
        self._text, self._on_target = self._board.text(), self._board.on_target
        return self._seen(), self._info()

    def step(self, action: int) -> tuple[_Observation, float, bool, bool, _Info]:
        """Move the player, pushing a box if it is in the way."""
        if not isinstance(action, int | np.integer) or not 0 <= action < len(MOVES):
            raise ValueError(
                f"{action!r} is not an action; use 0 (up), 1 (down), 2 (left) or 3 (right)"
            )
        before, after = self._board, self._board.move(int(action))
        self._board, self._changed = after, after is not before
        self._moves += 1
        reward = STEP
        if after.boxes != before.boxes:
            self._pushes += 1
            self._lost = self._is_lost()
            gained = after.on_target - self._on_target
            self._on_target += gained
            reward += BOX_ON * (gained > 0) + BOX_OFF * (gained < 0)
        solved = after.solved
        reward += SOLVED * solved
        ended = bool(self._lost) and self.deadlock == "end"
        if ended:
            reward += STEP * max(0, self.max_steps - self._moves)
        over = solved or ended
        if self._changed:
            self._text = after.text()
        truncated = not over and self._moves >= self.max_steps
        return self._seen(), reward, over, truncated, self._info()

    def render(self) -> Image | str | None:
        """Return the board as an image or as text, depending on `render_mode`."""
        if self.render_mode == "rgb_array":
            return self._picture()
        return self._text if self.render_mode == "ansi" else None

    def _is_lost(self) -> bool | None:
        return None if self.deadlock == "off" else is_deadlocked(self._board)

    def _seen(self) -> _Observation:
        if self.observation == "text":
            return self._text
        picture = self._picture()
        return picture if self.observation == "image" else {"text": self._text, "image": picture}

    def _picture(self) -> Image:
        return in_colors(draw(self._board, self.cell), self.colors)

    def _info(self) -> _Info:
        success, optimal = self._board.solved, self._level.optimal
        done, boxes = self._on_target, self._board.num_boxes
        metrics = {
            "success": float(success),
            "on_target": done / boxes,
            "deadlock": float(bool(self._lost)),
        }
        if optimal is not None:
            metrics["efficiency"] = optimal / self._moves if success else 0.0
        return {
            "board": self._text,
            "seed": self._seed,
            "level": self._level.number,
            "moves": self._moves,
            "pushes": self._pushes,
            "on_target": done,
            "boxes": boxes,
            "optimal": optimal,
            "changed": self._changed,
            "success": success,
            "deadlock": self._lost,
            "state_key": f"{self._seed}\n{self._text}",
            "metrics": metrics,
        }


def _check(name: str, value: str | None, known: Sequence[str | None]) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(map(str, known))}.")


def _space(observation: str, height: int, width: int, cell: int) -> "spaces.Space[Any]":
    """Return the observation space, sized for the largest level."""
    text = spaces.Text(height * (width + 1) - 1, charset=f"{CHARACTERS}\n")
    image = spaces.Box(0, 255, (height * cell, width * cell, 3), np.uint8)
    both = spaces.Dict({"text": text, "image": image})
    return {"text": text, "image": image, "both": both}[observation]
