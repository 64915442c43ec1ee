"""Checkpoints of a run: the latest few and the best.

::

    RUN/checkpoints/
        step-00010/learner/       weights, optimizers, counters, random state; `sharded_checkpoint`
        step-00010/best           marks the best evaluation so far; the latest mark counts
        step-00010/trainer.json   state of the training loop; written last

A folder without `trainer.json` is incomplete and is ignored. No folder is renamed, because mounted
buckets do not support that.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from agentrl.config import LoraConfig
from agentrl.errors import ConfigError
from agentrl.files import naming, sync, write_json

_BEST = "best"
_LEARNER = "learner"
_TRAINER = "trainer.json"


class Restorable(Protocol):
    """An object whose complete state can be saved to a folder and restored."""

    def save_state(self, path: Path) -> None:
        """Write the state."""

    def restore(self, path: Path) -> None:
        """Continue exactly where the state was saved."""


def begin(run: Path, step: int) -> Path:
    """Create a folder for a new checkpoint; removes a checkpoint of the same step.

    Readers ignore the checkpoint until `complete` is called.
    """
    folder = run / "checkpoints" / f"step-{step:05d}"
    # Without this file the checkpoint does not count, so a process that is killed while removing
    # the rest leaves nothing that looks complete.
    (folder / _TRAINER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def learner_state_of(folder: Path) -> Path:
    """Return the folder of the learner's state in a checkpoint."""
    return folder / _LEARNER


@contextmanager
def removed_if_failed(folder: Path) -> Iterator[None]:
    """Remove an incomplete checkpoint if it cannot be written, to free space on a full disk."""
    try:
        with naming(folder):
            yield
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def complete(folder: Path, trainer: Mapping[str, Any], *, keep: int, best: bool) -> None:
    """Complete a checkpoint whose learner state is on disk, and remove older checkpoints.

    Can also update the training loop's state in a complete checkpoint.

    Args:
        folder: the checkpoint's folder.
        trainer: state of the training loop, JSON values.
        keep: number of latest checkpoints to keep in addition to the best.
        best: whether this is the best checkpoint so far.
    """
    if best:
        (folder / _BEST).touch()
    # Sync everything to disk before writing the file that marks the checkpoint as complete.
    for path in (folder / _LEARNER, folder, folder.parent):
        sync(path)
    write_json(folder / _TRAINER, dict(trainer))
    sync(folder)
    _prune(folder.parent, keep)


def _prune(parent: Path, keep: int) -> None:
    kept = _complete(parent)[-keep:]
    chosen = best(parent.parent)
    for folder in _folders(parent):
        if folder not in kept and folder != chosen:
            # Readers must ignore a partly removed checkpoint, like one partly written by a killed
            # process.
            (folder / _TRAINER).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _folders(parent: Path) -> list[Path]:
    """Return complete and incomplete checkpoints in order of steps; copies have other names."""
    found = (p for p in parent.glob("step-*") if re.fullmatch(r"step-[0-9]{1,12}", p.name))
    return sorted(found, key=step_of)


def _complete(parent: Path) -> list[Path]:
    return [folder for folder in _folders(parent) if (folder / _TRAINER).is_file()]


def step_of(folder: Path) -> int:
    """Return the training step in the name of a checkpoint's folder."""
    return int(folder.name.removeprefix("step-"))


def latest(run: Path) -> Path | None:
    """Return a run's checkpoint of the latest step; None if the run has no checkpoint."""
    found = _complete(run / "checkpoints")
    return found[-1] if found else None


def best(run: Path) -> Path | None:
    """Return the best checkpoint of a run; None if none is marked."""
    found = [folder for folder in _complete(run / "checkpoints") if (folder / _BEST).is_file()]
    return found[-1] if found else None


def by_name(run: Path, name: str) -> Path:
    """Return a checkpoint of a run by name.

    Args:
        run: the run's folder.
        name: `best`, `last` or the number of a step.

    Raises:
        ConfigError: the run has no such checkpoint.
    """
    kept = {str(step_of(folder)): folder for folder in _complete(run / "checkpoints")}
    found = {"best": best(run), "last": latest(run)} | kept
    if (folder := found.get(name)) is None:
        steps = ", ".join(kept) or "none"
        if name == "best" and kept:
            raise ConfigError(
                f"{run}: no checkpoint is marked as best, because there were no evaluations during "
                "training (eval.every, or eval_every in the section sft, dpo or reward_model). "
                f"Choose a step instead: {steps}"
            )
        raise ConfigError(f"{run} has no checkpoint {name!r}; available steps: {steps}")
    return folder


def load(folder: Path, learner: Restorable) -> dict[str, Any]:
    """Restore a learner from a checkpoint.

    Args:
        folder: checkpoint folder returned by `by_name`, `latest` or `best`.
        learner: learner with the same configuration.

    Returns:
        The state of the training loop that was passed to `complete`.

    Raises:
        ConfigError: the folder is not a checkpoint, is broken, or belongs to a different model or
            job.
    """
    trainer = _trainer_state(folder)
    learner.restore(folder / _LEARNER)
    return trainer


def _trainer_state(folder: Path) -> dict[str, Any]:
    """Read the training loop's state.

    Raises:
        ConfigError: the state is missing or damaged.
    """
    try:
        trainer = json.loads((folder / _TRAINER).read_text())
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read as a checkpoint: {error}") from error
    except ValueError as error:
        raise _unusable(folder, f"cannot be read: {error}") from error
    step = trainer.get("step") if isinstance(trainer, dict) else None
    if not isinstance(trainer, dict) or type(step) is not int:
        raise _unusable(folder, "has no step")
    if step != step_of(folder):
        raise _unusable(folder, f"has step {step}, but its folder has step {step_of(folder)}")
    for name in ("best", "kl_coefficient", "entropy_coefficient", "entropy"):
        if not isinstance(trainer.get(name), int | float | None):
            raise _unusable(folder, f"{name}={trainer[name]!r} is not a number")
    return trainer


def check_files(folder: Path) -> None:
    """Check that the files of a checkpoint are complete, without reading its weights.

    Raises:
        ConfigError: a file is missing, damaged or truncated.
    """
    # Import here, so that commands that list checkpoints do not need torch.
    from agentrl.training.learner.parallel import sharded_checkpoint

    _trainer_state(folder)
    sharded_checkpoint.check_files(folder / _LEARNER)


def _unusable(folder: Path, why: str) -> ConfigError:
    return ConfigError(f"{folder / _TRAINER}: {why}. Remove this checkpoint to use an earlier one.")


def check(checkpoint: Path, source: Path, lora: LoraConfig) -> None:
    """Check that a checkpoint belongs to a run's model, without reading its weights.

    Raises:
        ConfigError: the checkpoint belongs to a different model, has different adapters, or is
            broken.
    """
    from agentrl.training.learner import learner_state

    learner_state.check_model(checkpoint / _LEARNER, source, lora)
