"""Disk space that a job will need, compared with the free space."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.filesize import decimal

from agentrl.config import CheckpointConfig, RunConfig
from agentrl.errors import ConfigError
from agentrl.text import pluralize
from agentrl.training.plan.job_size import JobSize

log = logging.getLogger(__name__)

GB = 10**9


@dataclass(slots=True, kw_only=True, frozen=True)
class DiskPlan:
    """The sizes of the files that a job is going to write."""

    checkpoint: int
    """Bytes of one checkpoint."""
    num_checkpoints: int
    """Checkpoints at the same time: those kept, the best one, and the one being written."""
    model: int
    """Bytes of the exported model."""
    recordings: int
    """Recorded episodes and frames: the limit `run.keep_gb`; 0 without one."""

    @classmethod
    def of(
        cls, size: JobSize, kept: CheckpointConfig, run: RunConfig, steps: int, *, evaluates: bool
    ) -> "DiskPlan":
        """Plan a whole job; one that evaluates keeps its best checkpoint, too."""
        written = 1 + -(-steps // kept.every)  # the first one before the first step
        return cls(
            checkpoint=size.state,
            num_checkpoints=min(written, kept.keep + 1 + evaluates),
            model=size.model,
            recordings=int((run.keep_gb or 0) * GB),
        )

    @property
    def needed(self) -> int:
        """Bytes of all checkpoints and of the model."""
        return self.num_checkpoints * self.checkpoint + self.model

    def describe(self) -> dict[str, float]:
        """Bytes of each kind of files."""
        limited = {"recordings (run.keep_gb)": self.recordings} if self.recordings else {}
        return {
            pluralize(self.num_checkpoints, "checkpoint"): self.num_checkpoints * self.checkpoint,
            "exported model": self.model,
            **limited,
        }

    def misfit(self, run: Path) -> str | None:
        """Say why the disk of a run, which need not exist, has no room; None if it has."""
        free = _free(run)
        if self.needed <= free:
            return None
        return (
            f"{run}: the disk has room for {decimal(free)}, but the job writes {self._what}: "
            f"{decimal(self.needed)}. Free some space, set run.dir to another disk, or lower "
            "checkpoint.keep"
        )

    def check(self, run: Path) -> None:
        """Compare with the free space of the run's disk; recordings only lead to a warning.

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
                "run.keep_gb=%g; lower it, or free some space",
                run, decimal(free), self._what, self.recordings / GB,
            )  # fmt: skip

    @property
    def _what(self) -> str:
        return (
            f"{self.num_checkpoints:,} checkpoints of {decimal(self.checkpoint)} and the model of "
            f"{decimal(self.model)}"
        )


def _free(run: Path) -> int:
    """Bytes that a run can write, those of the files that it replaces included."""
    run = run.absolute()
    exists = next(path for path in (run, *run.parents) if path.exists())
    return shutil.disk_usage(exists).free + _size(run / "checkpoints") + _size(run / "model")


def _size(*folders: Path) -> int:
    files = (file for folder in folders for file in folder.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def is_in_memory(path: Path) -> bool:
    """Whether a path is on a disk in memory, as `/dev/shm` is, and `/tmp` on some systems."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    around = (mounts[parent] for parent in (path, *path.parents) if parent in mounts)
    return next(around, "") in ("tmpfs", "ramfs")
