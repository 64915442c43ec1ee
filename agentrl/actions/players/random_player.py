"""A scripted player that plays random actions of any action space."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentrl.actions.action_chunks import join_actions
from agentrl.actions.dialect import Dialect, Size
from agentrl.actions.screen_action_converter import ScreenActionConverter
from agentrl.actions.space_formats import action_format_for

# Screen size of environments whose info has no `screen_size`.
USUAL_SCREEN: Size = (720, 1280)


class RandomPlayer:
    """Plays uniformly random actions, among those allowed by `info["action_mask"]` if present.

    Args:
        action_space: the environment's action space; filled in automatically.
        names: see `SpaceTranslator`.
        parameters: names of an action's components.
        style: `tag` or `tool`.
        max_actions_per_reply: a reply has from 1 to this many actions, all equally likely; only one
            with an `action_mask`, which is known only for the next action. Filled in automatically.
    """

    def __init__(
        self,
        action_space: "gymnasium.Space[Any]",
        names: Any = None,
        parameters: Sequence[str] | None = None,
        style: str = "tag",
        max_actions_per_reply: int = 1,
    ) -> None:
        self._most = max_actions_per_reply
        self._space = action_space
        self._action_format = action_format_for(action_space, names, parameters, style)
        self.dialect: Dialect | None = None
        """How actions are written; None in the translator's own format."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return random actions without reasoning."""
        # Without chunks, draw nothing else, so that a seed gives the same actions as ever.
        most = 1 if info.get("action_mask") is not None else self._most
        count = 1 if most == 1 else int(rng.integers(1, most + 1))
        return join_actions(self._action(info, rng) for _ in range(count))

    def _action(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        if isinstance(self._space, gymnasium.spaces.Discrete):
            mask: Any = info.get("action_mask")
            has_choice = mask is not None and np.any(mask)
            allowed = np.flatnonzero(mask) if has_choice else int(self._space.n)
            return self._action_format.format(int(self._space.start) + int(rng.choice(allowed)))
        # Copy the space, because sampling has state and episodes run concurrently.
        space = copy.deepcopy(self._space)
        space.seed(int(rng.integers(2**31)))
        if self.dialect is None:
            return self._action_format.format(space.sample())
        width, height = info.get("screen_size", USUAL_SCREEN)
        screen = self.dialect.screen((width, height))
        return self.dialect.spell(ScreenActionConverter(space).from_space(space.sample()), screen)
