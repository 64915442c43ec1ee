"""Every minigame."""

from collections.abc import Sequence

from agentrl.training.evaluation.suite import EvaluationSuite, SuiteEntry

_GAMES = ("Game2048", "Timberman", "Snake", "Flip", "FlappyBird", "SpaceFighter")


class Minigames(EvaluationSuite):
    """The six minigames, 20 episodes each."""

    def entries(self) -> Sequence[SuiteEntry]:
        """One per game."""
        return [SuiteEntry(name=name, env_id=f"{name}-v0") for name in _GAMES]
