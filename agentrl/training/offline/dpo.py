"""Training on pairs of a better and a worse answer: DPO, IPO and SimPO."""

from collections.abc import Callable, Sequence

from agentrl import replay
from agentrl.config import Config, FinetuningConfig
from agentrl.data.conversations import OfflineRow, ReadRow, read_preference
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath
from agentrl.training.job import run_job
from agentrl.training.offline.offline_dataset import Encode, encode_pair
from agentrl.training.offline.offline_job import Examples, OfflineJob, OfflinePlan


@with_short_mistakes
def dpo(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[OfflinePlan], None] = lambda plan: None,
) -> replay.Run:
    """Train a model on pairs of answers; or resume a run.

    Arguments, result and errors are those of `agentrl.sft`.
    """
    return run_job(PreferenceTraining(), config, overrides, resume, begun)


class PreferenceTraining(OfflineJob):
    """The preference for the better answer over the worse one."""

    command, section, stage = "agentrl dpo", "dpo", "preference training"

    def open_data(self, config: Config) -> Examples:
        """See `OfflineJob.open_data`."""
        examples = super().open_data(config)
        if config.dpo and config.dpo.loss == "ipo" and examples.train.has("margin"):
            raise ConfigError(
                f"dpo.loss=ipo: the margins of {examples.train.title} have no effect on it; remove "
                "the column, or set dpo.loss=dpo"
            )
        return examples

    def form(self, settings: FinetuningConfig) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `OfflineJob.form`."""
        return read_preference, encode_pair
