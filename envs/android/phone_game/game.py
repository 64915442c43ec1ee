"""The description of a phone game."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentrl.envs.android.phone_game.level_settings import LevelSettings
from agentrl.envs.android.phone_game.rules import GameRules
from agentrl.types import Image


@dataclass(slots=True, kw_only=True, frozen=True)
class PhoneGame:
    """One game: its package, rules, drawing, actions, prompt and rewards."""

    package: str
    activity: str = ".Main"
    rules: Callable[..., GameRules]
    """Called with the seed and the level's settings as keyword arguments."""
    draw: Callable[[Any, int, int], Image]
    """Pure function `(rules, width, height)` that returns the screen, uint8[height, width, 3]."""
    level: type[LevelSettings] = LevelSettings
    calls: Mapping[str, int]
    """Maps the form of each call, such as `chop()`, `up` or `flip(card)`, to its number of choices:
    1 without an argument, else the number of the argument's values, which start at 0. The calls'
    names are the keys of `GameRules.touch_targets`."""
    swipes: bool = False
    """Whether the game takes swipes; if not, every touch is a tap."""
    prompt: str | Callable[[Any], str]
    """The rules for the prompt, or a function of the level: the goal, and what the screen hides."""
    reward_fact: str = "score"
    """The published number whose change is the reward."""
    reward_scale: float = 1.0
    """The reward for a change of 1."""
    exit_reward: float | Callable[[Mapping[str, Any]], float] = -1.0
    """The reward for leaving, as low as the worst possible reward for the rest of the game; if that
    depends on the state, a function of the true state behind the last screen."""
    metrics: tuple[str, ...] = field(default=("score",))
    """The published numbers that are copied to `info["metrics"]`."""

    def prompt_for(self, level: LevelSettings) -> str:
        """Return the rules for the prompt at a level."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt(level)
