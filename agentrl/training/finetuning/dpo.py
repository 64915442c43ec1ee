"""Training on pairs of a better and a worse answer: DPO, IPO and SimPO."""

from collections.abc import Callable, Sequence
from pathlib import Path

from agentrl import replay
from agentrl.config import Config, FinetuningConfig
from agentrl.data.conversations import read_preference
from agentrl.training.finetuning.offline_dataset import Encode, encode_pair
from agentrl.training.finetuning.offline_job import OfflineJob, Parse
from agentrl.training.job import run_job


def dpo(
    config: Config | str | Path,
    *,
    overrides: Sequence[str] = (),
    resume: str | Path | None = None,
    begun: Callable[[Config], None] = lambda config: None,
) -> replay.Run:
    """Train a model on pairs of answers; or resume a run.

    Arguments, result and errors are those of `agentrl.sft`.
    """
    return run_job(PreferenceTraining(), config, overrides, resume, begun)


class PreferenceTraining(OfflineJob):
    """The preference for the better answer over the worse one."""

    command, section, stage = "agentrl dpo", "dpo", "preference training"

    def form(self, settings: FinetuningConfig) -> tuple[Parse, Encode]:
        """See `OfflineJob.form`."""
        return read_preference, encode_pair
