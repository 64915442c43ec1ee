"""What a job is going to write, compared with the free disk space."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from agentrl.config import CheckpointConfig, ModelConfig, OptimConfig, RunConfig
from agentrl.errors import ConfigError
from agentrl.weight_sync import weight_files

log = logging.getLogger(__name__)

_WEIGHT_BYTES = 4
"""Of a trained weight in a checkpoint, also with `train.master_dtype=bfloat16`."""
_MOMENTS_BYTES = {"float32": 8, "bfloat16": 4, "8bit": 2}
GB = 10**9


@dataclass(slots=True, kw_only=True, frozen=True)
class DiskPlan:
    """The bytes that a job is going to write."""

    checkpoint: int
    """Of one checkpoint."""
    num_checkpoints: int
    """At the same time: those that are kept, the best one, and the one that is being written."""
    model: int
    """Of the exported model."""

    @classmethod
    def of(
        cls,
        *,
        start: Path,
        model: ModelConfig,
        optim: OptimConfig,
        checkpoint: CheckpointConfig,
        steps: int,
        evaluates: bool,
    ) -> "DiskPlan":
        """Plan a job from the beginning. Adapters, critics and the like are not counted.

        Args:
            start: the folder of the model that the job starts from.
            model: its settings.
            optim: the optimizer, whose state is part of checkpoints.
            checkpoint: how many are kept.
            steps: of the whole job.
            evaluates: whether a best checkpoint is kept, too.
        """
        written = 1 + -(-steps // checkpoint.every)  # the first one before the first step
        weight = 0 if model.lora.rank else _WEIGHT_BYTES + _MOMENTS_BYTES[optim.moments]
        return cls(
            checkpoint=weight * weight_files.size_of(start, "float32") // 4,
            num_checkpoints=min(written, checkpoint.keep + 1 + evaluates),
            model=weight_files.size_of(start, model.dtype),
        )

    def check(self, run: Path, settings: RunConfig) -> None:
        """Compare with the free space of the run's disk; recordings only lead to a warning.

        Raises:
            ConfigError: checkpoints and the model do not fit.
        """
        free = shutil.disk_usage(run).free + _size(run / "checkpoints") + _size(run / "model")
        needed = self.num_checkpoints * self.checkpoint + self.model
        what = (
            f"{self.num_checkpoints:,} checkpoints of {decimal(self.checkpoint)} and the model of "
            f"{decimal(self.model)}"
        )
        if needed > free:
            raise ConfigError(
                f"{run}: the disk has room for {decimal(free)}, but the job writes {what}: "
                f"{decimal(needed)}. Free some space, set run.dir to another disk, or lower "
                "checkpoint.keep"
            )
        recorded = int((settings.keep_gb or 0) * GB) - _size(run / "episodes", run / "frames")
        if recorded > 0 and needed + recorded > free:
            log.warning(
                "%s: the disk has room for %s, but the job may write %s, and recordings up to "
                "run.keep_gb=%g; lower it, or free some space",
                run, decimal(free), what, settings.keep_gb,
            )  # fmt: skip


def _size(*folders: Path) -> int:
    files = (file for folder in folders for file in folder.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())
