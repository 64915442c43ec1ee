"""The number game at levels of increasing difficulty."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.training.evaluation.suite import EvaluationSuite, SuiteEntry

_LEVELS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "two digits": {"digits": 2},
    "four cards": {"cards": 4},
    "moved": {"moved": True},
    "distractor": {"distractor": True},
    "memory": {"memory": True},
    "all of it": {"digits": 2, "cards": 4, "moved": True, "distractor": True, "memory": True},
}
_MAX_TURNS = 40
"""Ten rounds with memory take 30 turns."""


class NumberGameLevels(EvaluationSuite):
    """Seven levels of the number game, 20 episodes each."""

    def entries(self) -> Sequence[SuiteEntry]:
        """One per level."""
        return [
            SuiteEntry(name=name, env_id="NumberGame-v0", kwargs=kwargs, max_turns=_MAX_TURNS)
            for name, kwargs in _LEVELS.items()
        ]
