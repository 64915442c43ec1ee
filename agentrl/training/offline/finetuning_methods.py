"""Trains on data sets: supervised fine-tuning, preference training and reward models."""

from collections.abc import Callable, Sequence

from agentrl import replay
from agentrl.config import Config, DPOConfig, RewardModelConfig
from agentrl.data.offline_rows import (
    OfflineRow,
    ReadRow,
    read_chat,
    read_labeled,
    read_preference,
)
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath
from agentrl.training.job import run_job
from agentrl.training.offline.finetuning_job import Examples, FinetuningJob, FinetuningPlan
from agentrl.training.offline.offline_dataset import (
    Encode,
    encode_compared,
    encode_labeled,
    encode_learned,
    encode_pair,
)


@with_short_mistakes
def sft(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[FinetuningPlan], None] = lambda plan: None,
) -> replay.Run:
    """Fine-tune a model on conversations, or resume a run. For the arguments, see `train`.

    Returns:
        The run: its summary, checkpoints and model.

    Raises:
        ConfigError: the configuration is invalid or names something that does not exist, or another
            process is working on this run.
        LearnerError: training diverged, or ranks died more often than `run.restarts` allows.
        SystemExit: after SIGTERM or `run.stop_signal`, with status 128 + its number.
    """
    return run_job(SupervisedFinetuning, config, overrides, resume, begun)


@with_short_mistakes
def dpo(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[FinetuningPlan], None] = lambda plan: None,
) -> replay.Run:
    """Train a model on pairs of answers (DPO, IPO or SimPO), or resume a run.

    Has the same arguments, result and errors as `agentrl.sft`.
    """
    return run_job(PreferenceTraining, config, overrides, resume, begun)


@with_short_mistakes
def train_reward_model(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[FinetuningPlan], None] = lambda plan: None,
) -> replay.Run:
    """Train a reward model, or resume a run.

    Has the same arguments, result and errors as `agentrl.sft`.
    """
    return run_job(RewardModelTraining, config, overrides, resume, begun)


class SupervisedFinetuning(FinetuningJob):
    """Supervised fine-tuning on the replies in conversations."""

    command, section, stage = "agentrl sft", "sft", "fine-tuning"

    @property
    def form(self) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `FinetuningJob.form`."""
        return read_chat, encode_learned


class PreferenceTraining(FinetuningJob):
    """Preference training on pairs of answers."""

    command, section, stage = "agentrl dpo", "dpo", "preference training"

    @property
    def form(self) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `FinetuningJob.form`."""
        return read_preference, encode_pair

    def open_data(self) -> Examples:
        """See `FinetuningJob.open_data`."""
        examples, settings = super().open_data(), self.settings
        assert isinstance(settings, DPOConfig)
        if settings.loss == "ipo" and examples.train.has("margin"):
            raise ConfigError(
                f"dpo.loss=ipo: IPO does not use the margins in {examples.train.title}; remove the "
                "column, or set dpo.loss=dpo"
            )
        return examples


class RewardModelTraining(FinetuningJob):
    """Training of a reward model on pairs of answers or labeled replies."""

    command, section = "agentrl train-reward-model", "reward_model"
    stage = "reward model training"
    is_reward_model = True

    @property
    def form(self) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `FinetuningJob.form`."""
        assert isinstance(self.settings, RewardModelConfig)
        if self.settings.per_turn:
            return read_labeled, encode_labeled
        return read_preference, encode_compared
