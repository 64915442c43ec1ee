"""Checkpoints of a run: whole or not at all, the last few and the best.

::

    RUN/checkpoints/
        step-00010/learner/       weights, optimizers, counters, random state: see `shards`
        step-00010/trainer.json   what the loop keeps
        step-00010/best           there if no evaluation during training before was better: the
                                  latest of these is the best
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.config import LoraConfig, ModelConfig
from agentrl.errors import ConfigError
from agentrl.weight_sync import weight_files

if TYPE_CHECKING:
    from torch import Tensor

_BEST = "best"
_LEARNER = "learner"
_TRAINER = "trainer.json"


class Restorable(Protocol):
    """Something whose whole state goes to a folder and comes back."""

    def save_state(self, path: Path) -> None:
        """Write the state."""

    def restore(self, path: Path) -> None:
        """Go on exactly where the state was written."""


def save(
    run: Path,
    step: int,
    learner: Restorable,
    trainer: Mapping[str, Any],
    *,
    keep: int,
    best: bool = False,
) -> Path:
    """Write a checkpoint and remove those that are no longer kept.

    A process that dies on the way leaves all earlier checkpoints as they were.

    Args:
        run: the run's folder.
        step: training steps that are done.
        learner: writes its own state.
        trainer: the loop's state, plain JSON values.
        keep: how many of the last ones stay; the best one stays beside them.
        best: True if no earlier one is better.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: the disk is full, or closed to us.
    """
    parent = run / "checkpoints"
    folder = parent / f"step-{step:05d}"
    with weight_files.replacing_folder(folder) as partial:
        learner.save_state(partial / _LEARNER)
        (partial / _TRAINER).write_text(json.dumps(dict(trainer), indent=1))
        if best:
            # Inside, and before the folder gets its name: whatever kills us, both are there or
            # none.
            (partial / _BEST).touch()
    _prune(parent, keep)
    return folder


def _prune(parent: Path, keep: int) -> None:
    kept = _complete(parent)[-keep:]
    chosen = best(parent.parent)
    for folder in _complete(parent):
        if folder not in kept and folder != chosen:
            shutil.rmtree(folder)
    # What a killed process left half-written.
    for leftover in (*parent.glob(".step-*.partial"), *parent.glob(".step-*.old")):
        shutil.rmtree(leftover, ignore_errors=True)


def _complete(parent: Path) -> list[Path]:
    """From the earliest to the latest step; half-written ones and copies have other names."""
    whole = (p for p in parent.glob("step-*") if re.fullmatch(r"step-[0-9]{1,12}", p.name))
    found = [folder for folder in whole if (folder / _TRAINER).is_file()]
    return sorted(found, key=step_of)


def step_of(folder: Path) -> int:
    """The training step of a checkpoint's folder."""
    return int(folder.name.removeprefix("step-"))


def latest(run: Path) -> Path | None:
    """The checkpoint of the latest step of a run; None if it has none."""
    found = _complete(run / "checkpoints")
    return found[-1] if found else None


def best(run: Path) -> Path | None:
    """The best checkpoint of a run; None if none was marked."""
    found = [folder for folder in _complete(run / "checkpoints") if (folder / _BEST).is_file()]
    return found[-1] if found else None


def named(run: Path, name: str) -> Path:
    """A run's checkpoint.

    Args:
        run: the run's folder.
        name: `best`, `last` or the number of a step.

    Raises:
        ConfigError: the run keeps no such checkpoint.
    """
    kept = {str(step_of(folder)): folder for folder in _complete(run / "checkpoints")}
    found = {"best": best(run), "last": latest(run)} | kept
    if (folder := found.get(name)) is None:
        steps = ", ".join(kept) or "none"
        if name == "best" and kept:
            raise ConfigError(
                f"{run}: no checkpoint is the best, as no evaluation fell into training "
                f"(eval.every). Name one of its steps: {steps}"
            )
        raise ConfigError(f"{run}: no checkpoint {name!r}. Its checkpoints are of steps: {steps}")
    return folder


def load(folder: Path, learner: Restorable) -> dict[str, Any]:
    """Bring a learner back to a checkpoint.

    Args:
        folder: as `save`, `latest` or `best` returned it.
        learner: of the same configuration.

    Returns:
        The loop's state, as it was given to `save`.

    Raises:
        ConfigError: it is no checkpoint, is broken, or belongs to another model or job.
    """
    try:
        trainer = json.loads((folder / _TRAINER).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: is no checkpoint that can be read: {error}") from error
    step = trainer.get("step") if isinstance(trainer, dict) else None
    if not isinstance(trainer, dict) or type(step) is not int:
        raise _unusable(folder, "says no step")
    if step != step_of(folder):
        raise _unusable(folder, f"is of step {step}, and its folder of step {step_of(folder)}")
    for name in ("best", "kl_coefficient"):
        if not isinstance(trainer.get(name), int | float | None):
            raise _unusable(folder, f"{name}={trainer[name]!r} is no number")
    learner.restore(folder / _LEARNER)
    return trainer


def _unusable(folder: Path, why: str) -> ConfigError:
    return ConfigError(f"{folder / _TRAINER}: {why}. Remove this checkpoint to use an earlier one.")


def check(checkpoint: Path, source: Path, lora: LoraConfig) -> None:
    """See whether a checkpoint is of a run's model, without reading its weights.

    Args:
        checkpoint: as `named` returned it.
        source: the model's folder as the run began.
        lora: the run's adapters.

    Raises:
        ConfigError: it is another model's or has other adapters, or is broken.
    """
    from agentrl.training.learner import learner_state

    learner_state.check_model(checkpoint / _LEARNER, source, lora)


def export(checkpoint: Path, source: Path, folder: Path, dtype: str, lora: LoraConfig) -> None:
    """Make an ordinary Hugging Face folder of a checkpoint.

    Args:
        checkpoint: as `named` returned it.
        source: the model's folder as the run began: configuration, tokenizer and processor.
        folder: where.
        dtype: `float32` or `bfloat16`, of the written weights.
        lora: the run's adapters, which become part of the weights.

    Raises:
        ConfigError: the checkpoint is broken.
    """
    import torch

    from agentrl.training.learner import lora_adapters

    masters = lora_adapters.merged(_kept(checkpoint, weight_files.read(source)), lora)
    weight_files.export(
        source, folder, {n: t.to(getattr(torch, dtype)) for n, t in masters.items()}
    )


def export_adapters(checkpoint: Path, source: Path, folder: Path, model: ModelConfig) -> None:
    """Write the adapters of a checkpoint alone, in PEFT's format.

    Args:
        checkpoint: as `named` returned it.
        source: the model's folder as the run began, which the adapters belong to.
        folder: where.
        model: the run's.

    Raises:
        ConfigError: the checkpoint is broken, or its adapters are not all that was learned.
    """
    import torch

    from agentrl.training.learner import lora_adapters, qlora

    began = weight_files.read(source)
    kept = _kept(checkpoint, began)
    for name, tensor in kept.items():
        first = began.get(lora_adapters.plain_name(name) or "")
        if first is not None and model.lora.base == "nf4" and lora_adapters.is_below(name):
            first = qlora.rounded(first.to(getattr(torch, model.dtype)))
        if first is not None and not first.to(tensor.dtype).equal(tensor):
            raise ConfigError(
                "the adapters are not all that this run has learned: its warm start has become "
                "part of the weights below them (warm_start.cache). Leave out --adapter"
            )
    base = str(source.absolute()) if model.path == "tiny" else model.path
    lora_adapters.write(folder, kept, model.lora, base)


def _kept(checkpoint: Path, began: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The policy of a checkpoint, by the names that it is trained under.

    Args:
        checkpoint: as `named` returned it.
        began: the weights that the run began with.
    """
    from agentrl.training.checkpoints import tensor_shards
    from agentrl.training.learner import learner_state, lora_adapters, qlora

    def shape(name: str) -> Sequence[int]:
        return began[lora_adapters.plain_name(name) or ""].shape

    return qlora.opened(tensor_shards.read(checkpoint / _LEARNER, learner_state.POLICY), shape)
