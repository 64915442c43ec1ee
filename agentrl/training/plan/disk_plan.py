"""Checks that a job's files fit on the disk."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.filesize import decimal

from agentrl.config import CheckpointConfig, RunConfig
from agentrl.errors import ConfigError
from agentrl.text.formatting import pluralize
from agentrl.training.plan.learner_state_size import LearnerStateSize

log = logging.getLogger(__name__)

GB = 10**9


@dataclass(slots=True, kw_only=True, frozen=True)
class DiskPlan:
    """Sizes of the files that a job will write."""

    checkpoint: int
    """Size of a checkpoint in bytes."""
    num_checkpoints: int
    """Maximum number of checkpoints on disk: those kept, the best, and the one being written."""
    model: int
    """Size of the exported model in bytes."""
    recordings: int
    """Maximum size of recorded episodes and frames in bytes (`run.keep_gb`); 0 without a limit."""

    @classmethod
    def of(
        cls,
        size: LearnerStateSize,
        kept: CheckpointConfig,
        run: RunConfig,
        steps: int,
        *,
        evaluates: bool,
    ) -> "DiskPlan":
        """Plan the files of a whole job; a job that evaluates also keeps its best checkpoint."""
        written = 1 + -(-steps // kept.every)  # the first is written before the first step
        return cls(
            checkpoint=size.state,
            num_checkpoints=min(written, kept.keep + 1 + evaluates),
            model=size.model,
            recordings=int((run.keep_gb or 0) * GB),
        )

    @property
    def needed(self) -> int:
        """Size of all checkpoints and the model in bytes."""
        return self.num_checkpoints * self.checkpoint + self.model

    def describe(self) -> dict[str, float]:
        """Describe the size of each kind of file."""
        limited = {"recordings (run.keep_gb)": self.recordings} if self.recordings else {}
        return {
            pluralize(self.num_checkpoints, "checkpoint"): self.num_checkpoints * self.checkpoint,
            "exported model": self.model,
            **limited,
        }

    def misfit(self, run: Path) -> str | None:
        """Return why a run does not fit on its disk, or None. The run need not exist yet."""
        free = _free(run)
        if self.needed <= free:
            return None
        return (
            f"{run}: the disk has room for {decimal(free)}, but the job needs "
            f"{decimal(self.needed)} for {self._what}. Free some space, set run.dir to a different "
            "disk, or lower checkpoint.keep"
        )

    def check(self, run: Path) -> None:
        """Compare the files with the free space on the run's disk; warn if recordings do not fit.

        Raises:
            ConfigError: checkpoints and the model do not fit.
        """
        if (misfit := self.misfit(run)) is not None:
            raise ConfigError(misfit)
        free = _free(run)
        recorded = self.recordings - _size(run / "episodes", run / "frames")
        if recorded > 0 and self.needed + recorded > free:
            log.warning(
                "%s: the disk has room for %s, but the job may write %s, and recordings up to "
                "run.keep_gb=%g; lower run.keep_gb, or free some space",
                run, decimal(free), self._what, self.recordings / GB,
            )  # fmt: skip

    @property
    def _what(self) -> str:
        return (
            f"{self.num_checkpoints:,} checkpoints of {decimal(self.checkpoint)} and a model of "
            f"{decimal(self.model)}"
        )


def _free(run: Path) -> int:
    """Return the number of bytes that a run can write, including files that it replaces."""
    run = run.absolute()
    exists = next(path for path in (run, *run.parents) if path.exists())
    return shutil.disk_usage(exists).free + _size(run / "checkpoints") + _size(run / "model")


def _size(*folders: Path) -> int:
    files = (file for folder in folders for file in folder.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def is_in_memory(path: Path) -> bool:
    """Return whether a path is on a RAM disk, such as `/dev/shm`, or `/tmp` on some systems."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    around = (mounts[parent] for parent in (path, *path.parents) if parent in mounts)
    return next(around, "") in ("tmpfs", "ramfs")
