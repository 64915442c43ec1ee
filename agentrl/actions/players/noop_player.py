"""A scripted player that does nothing, in every environment: the no-op baseline."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.actions.dialect import Dialect
from agentrl.actions.translator import Translator

NOOP = "noop"
"""The player's name."""


class NoopPlayer:
    """Does nothing: makes the environment's own action for that, or else replies without an action.

    Whatever such a player earns is not earned by playing.

    Args:
        translator: the environment's translator; filled in automatically. Its optional
            `noop_reply()` writes the action that does nothing.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self.dialect: Dialect | None = None
        """How actions are written; not used, since the translator has the same dialect."""

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        """Return the reply that does nothing; empty if the environment has no such action."""
        noop_reply = getattr(self._translator, "noop_reply", None)
        return (noop_reply() if noop_reply is not None else None) or ""
