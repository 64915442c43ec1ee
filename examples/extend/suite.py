"""An evaluation suite of your own: frozen lakes of increasing size.

agentrl check suite suite.py:Lakes
agentrl eval frozen_lake --suite suite.py:Lakes --policy random
"""

from collections.abc import Sequence

from agentrl.training.evaluation.suite import EvaluationSuite, SuiteTask


class Lakes(EvaluationSuite):
    """Two maps, each with and without slipping."""

    def tasks(self) -> Sequence[SuiteTask]:
        """Return the tasks; each becomes a row of the report."""
        return [
            SuiteTask(
                name=f"{size}{' slippery' if slippery else ''}",
                env="FrozenLake-v1",
                kwargs={"map_name": size, "is_slippery": slippery},
                episodes=4,
                max_turns=30,
            )
            for size in ("4x4", "8x8")
            for slippery in (False, True)
        ]
