"""Training a reward model on pairs of answers, or on labeled replies."""

from collections.abc import Callable, Sequence

from agentrl import replay
from agentrl.config import Config, FinetuningConfig, RewardModelConfig
from agentrl.data.conversations import OfflineRow, ReadRow, read_labeled, read_preference
from agentrl.errors import with_short_mistakes
from agentrl.files import StrPath
from agentrl.training.job import run_job
from agentrl.training.offline.offline_dataset import (
    Encode,
    encode_compared,
    encode_labeled,
)
from agentrl.training.offline.offline_job import OfflineJob, OfflinePlan


@with_short_mistakes
def train_reward_model(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[OfflinePlan], None] = lambda plan: None,
) -> replay.Run:
    """Train a reward model; or resume a run.

    Arguments, result and errors are those of `agentrl.sft`.
    """
    return run_job(RewardModelTraining(), config, overrides, resume, begun)


class RewardModelTraining(OfflineJob):
    """A number that is higher for better answers."""

    command, section = "agentrl train-reward-model", "reward_model"
    stage = "reward model training"
    is_reward_model = True

    def form(self, settings: FinetuningConfig) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `OfflineJob.form`."""
        assert isinstance(settings, RewardModelConfig)
        if settings.per_turn:
            return read_labeled, encode_labeled
        return read_preference, encode_compared
