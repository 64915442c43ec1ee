"""Supervised fine-tuning on conversations."""

from collections.abc import Callable, Sequence

from agentrl import replay
from agentrl.config import Config, FinetuningConfig
from agentrl.data.conversations import OfflineRow, ReadRow, read_chat
from agentrl.errors import with_short_mistakes
from agentrl.files import StrPath
from agentrl.training.job import run_job
from agentrl.training.offline.offline_dataset import Encode, encode_learned
from agentrl.training.offline.offline_job import OfflineJob, OfflinePlan


@with_short_mistakes
def sft(
    config: Config | StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[OfflinePlan], None] = lambda plan: None,
) -> replay.Run:
    """Fine-tune a model on conversations; or resume a run; the arguments are those of `train`.

    Returns:
        The run: its summary, checkpoints and model.

    Raises:
        ConfigError: something that the configuration names does not exist, or another process
            is working on this run.
        LearnerError: training diverged, or ranks died more often than `run.restarts` allows.
        SystemExit: after SIGTERM or `run.stop_signal`, with status 128 + its number.
    """
    return run_job(SupervisedFinetuning(), config, overrides, resume, begun)


class SupervisedFinetuning(OfflineJob):
    """The likelihood of the replies in conversations."""

    command, section, stage = "agentrl sft", "sft", "fine-tuning"

    def form(self, settings: FinetuningConfig) -> tuple[ReadRow[OfflineRow], Encode]:
        """See `OfflineJob.form`."""
        return read_chat, encode_learned
