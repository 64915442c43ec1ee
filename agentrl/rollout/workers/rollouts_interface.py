"""Interfaces for playing a job's episodes, in this process or in Ray actors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from agentrl.policies.engines.engine import Sampling
from agentrl.rollout.collector import CollectionProgress
from agentrl.rollout.rollout_plan import RolloutPlan
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.types import Prompt, Reply, ScoredEpisode
from agentrl.weight_sync.publisher import SleepingEngines


class Engines(SleepingEngines, Protocol):
    """All engines of a job; engines that start or are replaced later get the current weights."""

    @property
    def count(self) -> int:
        """Number of engines of the job, including those being replaced."""

    async def start(self) -> Any:
        """Start the engines, or connect to the server, before the model first plays.

        Raises:
            ConfigError: see `Engine.start`.
            EngineError: an engine did not start.
        """

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Reply:
        """Sample one reply with any of the engines, which have been started.

        Raises:
            EngineError: see `TokenEngine.generate`.
        """


class Rollouts(Protocol):
    """Interface for playing, scoring and recording episodes with the model or scripted players."""

    @property
    def engines(self) -> Engines:
        """The engines with which the model plays."""

    @property
    def progress(self) -> CollectionProgress:
        """Progress of the current collection."""

    def worker_metrics(self) -> dict[str, float]:
        """Return metrics of how many workers can play now, and how many have been replaced."""

    async def start(self) -> Any:
        """Open the phones and the recorder; the engines start when the model first plays.

        Raises:
            ConfigError: a phone cannot be reached, or see `RewardFunctions`.
        """

    async def collect(
        self, requests: Sequence[EpisodeRequest], player: str | None = None, greedy: bool = False
    ) -> list[ScoredEpisode]:
        """Play these episodes concurrently, in any order.

        Args:
            requests: what to play; all requests must have the same split.
            player: a scripted player's name; None for the model.
            greedy: whether the model always takes its most probable token.

        Returns:
            One scored episode per request, in the order of the requests.

        Raises:
            WorldError: more than half of the episodes are void, or no phone is left.
            WorkerLost: all workers died and could not be replaced.
            ConfigError: the player does not exist, or an engine cannot start.
        """

    async def finish(self) -> None:
        """Close the phones, the environments and the recorder, but not the engines."""

    async def switch(self, plan: RolloutPlan, run: Path | None) -> Any:
        """Play another environment from now on, with the same engines and weights.

        Args:
            plan: what to play. It may differ from the current plan only in its environments,
                rewards, evaluation and run.
            run: the run's folder, in which to record episodes; None records nothing.
        """

    async def close(self) -> None:
        """Close the engines and the phones; may be called twice."""
