"""The rollouts of several evaluations of one policy, whose model is loaded once."""

from pathlib import Path

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.rollout.play_plan import plan_play
from agentrl.rollout.workers.open_rollouts import open_rollouts
from agentrl.rollout.workers.rollouts import Rollouts
from agentrl.training.model_to_play import model_folder
from agentrl.training.plan.long_prompts import skip_long_prompts


class SharedRollouts:
    """Opens rollouts for one evaluation after the other.

    Args:
        scratch: an empty folder, for a model that must be exported.
        needs_model: whether a model of this machine plays.
        checkpoint: of the model; None for its final or start model.
        version: number of training steps that the model has had.
    """

    def __init__(
        self, scratch: Path, *, needs_model: bool, checkpoint: Path | None, version: int
    ) -> None:
        self._scratch, self._needs_model = scratch, needs_model
        self._checkpoint, self._version = checkpoint, version
        self._model: Path | None = None
        self._opened: Rollouts | None = None

    async def open(self, config: Config, folder: Path) -> Rollouts:
        """The rollouts of the next evaluation.

        Args:
            config: differs from that of the first one as `Rollouts.switch` allows.
            folder: in which its episodes are recorded.

        Raises:
            ConfigError: the model cannot be loaded, or the environment not be opened.
        """
        if self._needs_model and self._model is None:
            self._model = model_folder(config.model, config.seed, self._scratch, self._checkpoint)
        if self._model is not None:
            config = skip_long_prompts(config, self._model)
        if self._opened is None:
            plan = plan_play(config)
            self._opened = await open_rollouts(plan, self._model, folder, self._version)
        else:
            await self._opened.switch(plan_play(config), folder)
        return self._opened

    async def finish(self) -> None:
        """End an evaluation, so that everything it has recorded is on the disk."""
        if self._opened is not None:
            await self._opened.finish()

    async def close(self) -> None:
        """Close everything; may be called twice."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()
        ray_cluster.leave_cluster()
