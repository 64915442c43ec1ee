"""A scripted player that also writes the true state, for `env.state_estimation`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.actions.action_chunks import parse_actions
from agentrl.actions.players.player import Player, scripted_reply, takes_observation
from agentrl.actions.state_estimates import (
    OBSERVATION,
    PREDICTION,
    VISIBLE,
    StateSchema,
    write_estimate,
)
from agentrl.actions.translator import Translator


class StateEstimatingPlayer:
    """Plays like another player, and writes what it sees and what it expects before its reply.

    Args:
        player: chooses the actions.
        schema: the environment's fields.
        translator: parses the player's reply, to predict what its actions do.
        most: maximum number of actions in a reply.
    """

    def __init__(
        self, player: Player, schema: StateSchema, translator: Translator, most: int
    ) -> None:
        self._player, self._schema = player, schema
        self._translator, self._most = translator, most
        self.takes_observation = takes_observation(player)

    def reply(
        self, info: Mapping[str, Any], rng: np.random.Generator, observation: Any = None
    ) -> str:
        """Return the estimates that can be made, followed by the player's reply."""
        reply = scripted_reply(self._player, observation, info, rng)
        if (seen := info.get(VISIBLE)) is None:
            return reply
        actions = self._parsed(reply, info)
        expected = self._schema.expected(info, actions) if actions else None
        written = write_estimate(OBSERVATION, seen)
        if expected:
            written += write_estimate(PREDICTION, expected)
        return written + reply

    def _parsed(self, reply: str, info: Mapping[str, Any]) -> Sequence[Any]:
        """Return the reply's actions; a dialect needs the size of the screen."""
        translator: Any = self._translator
        if hasattr(translator, "begin_episode"):
            translator.begin_episode()
        if hasattr(translator, "see") and "screen_size" in info:
            width, height = info["screen_size"]
            translator.see([np.broadcast_to(np.uint8(0), (height, width, 3))])
        return parse_actions(translator, reply, self._most).actions
