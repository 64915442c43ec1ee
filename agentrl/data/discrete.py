"""The words of an environment with a few named actions: `<action>left</action>`."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from agentrl.data.tags import action_in
from agentrl.errors import ActionError, ConfigError
from agentrl.plugins import did_you_mean
from agentrl.types import Message, Observation


class DiscreteTranslator:
    """Shows a picture or text, and reads one of the named actions.

    Args:
        names: of the actions 0, 1, ... of a `Discrete` space.
        instructions: how to play; the names are added.

    Raises:
        ConfigError: no names, or one twice.
    """

    def __init__(self, names: Sequence[str], instructions: str = "") -> None:
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"env.translator.names={list(names)}: must be names, each once")
        self._names = tuple(str(name) for name in names)
        self._instructions = instructions

    def instructions(self) -> str:
        """The words given, and the names of the actions; empty where no words were given."""
        if not self._instructions:
            return ""
        choices = ", ".join(f"<action>{name}</action>" for name in self._names)
        return f"{self._instructions} Answer with one of {choices}."

    def check(self, actions: gymnasium.Space[Any]) -> None:
        """See whether every action has a name.

        Raises:
            ConfigError: there are more or fewer, or they cannot be named.
        """
        count = int(actions.n) if isinstance(actions, gymnasium.spaces.Discrete) else None
        if count != len(self._names):
            raise ConfigError(
                f"env.translator.names={list(self._names)}: the environment's actions are {actions}"
            )

    def to_observation(self, observation: Any, info: Mapping[str, Any]) -> Observation:
        """uint8[H, W, 3] is shown as a picture, what has no three dimensions as text.

        Raises:
            ConfigError: an array of three dimensions is no picture; guessing would show another.
        """
        if not isinstance(observation, np.ndarray) or observation.ndim != 3:
            return Observation(text=str(observation))
        if observation.dtype != np.uint8 or observation.shape[2] != 3:
            raise ConfigError(
                f"the environment shows {observation.dtype}{list(observation.shape)}; a picture is "
                "uint8[H, W, 3]. Convert it in a wrapper or a translator of your own."
            )
        return Observation(images=(observation,))

    def to_message(self, observation: Observation) -> Message:
        """The pictures, then the text."""
        # Words of the environment that look like a picture's place are none.
        words = observation.text.replace("<image>", "<image >")
        text = "<image>" * len(observation.images) + words
        return Message(role="user", text=text, images=observation.images)

    def to_action(self, reply: str) -> int:
        """The number of the action that the reply names.

        Raises:
            ActionError: it names none, several, or one that does not exist.
        """
        name = action_in(reply).strip()
        if name not in self._names:
            hint = did_you_mean(name, self._names)
            raise ActionError(f"no action {name[:40]!r}{hint}; there are {', '.join(self._names)}")
        return self._names.index(name)

    def no_action(self) -> None:
        """A reply that is no action leaves the environment as it is."""
        return
