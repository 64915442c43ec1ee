"""Players that use the engines of other processes."""

import pytest

from agentrl.errors import EngineError
from agentrl.event_loop import own_deadline
from agentrl.policies.engines.engine import Sampling
from agentrl.rollout.workers.borrowed_engines import BorrowedEngines
from agentrl.types import Prompt


async def test_waiting_for_the_replacement_of_engines_does_not_count_against_the_episode() -> None:
    engines = BorrowedEngines([], deadline_s=60, start_deadline_s=0.4)
    with pytest.raises(EngineError, match="all engines have died, and none has been replaced"):
        async with own_deadline(0.1):
            await engines.generate(Prompt(token_ids=(1,)), Sampling())
