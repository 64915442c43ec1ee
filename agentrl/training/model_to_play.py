"""Choose, check and export the model that a command plays: of a run, a checkpoint or a server."""

import tempfile
from dataclasses import replace
from pathlib import Path

from agentrl import event_loop
from agentrl.config import ModelConfig, RolloutConfig, record_image_sizes
from agentrl.config.bounds import path_of
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.policies.open_model import engine_class, served_model_name
from agentrl.runs.run_folder import MODEL_STEP, RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.playable_target import open_target


def checkpoint_of(run: Path | None, name: str | None) -> Path | None:
    """The folder of a run's checkpoint; None without a name.

    Raises:
        ConfigError: there is no such checkpoint, or the target is not a run.
    """
    if name is None:
        return None
    if run is None:
        raise ConfigError(
            f"checkpoint={name}: only runs have checkpoints; give a run's folder (runs/NAME)"
        )
    return checkpoint_store.by_name(run, name)


def model_of_run(model: ModelConfig, run: Path, kept: Path | None) -> ModelConfig:
    """The run's own model: with a checkpoint its start model, otherwise its final one."""
    own = run / ("model" if kept is None else "start")
    if kept is None and not own.is_dir():
        raise ConfigError(
            f"{run} has no final model yet: resume it, or choose a checkpoint (--checkpoint last)"
        )
    if not own.is_dir():  # the run started from a folder or from a model of the hub
        return model
    return replace(model, path=str(own.absolute()))


def is_served(rollout: RolloutConfig, checkpoint: str | None = None) -> bool:
    """Whether the model that plays is behind a server.

    Raises:
        ConfigError: it is, but a checkpoint is named.
    """
    served = not engine_class(rollout).capabilities.needs_model
    if served and checkpoint is not None:
        raise ConfigError(
            f"checkpoint={checkpoint} contradicts rollout.engine={rollout.engine}, which plays "
            "with the server's model; remove one of the two settings"
        )
    return served


def with_served_model(rollout: RolloutConfig) -> RolloutConfig:
    """Contact the server, and return the settings with the name of the model that it offers.

    Raises:
        ConfigError: the server cannot be reached or rejects the request, or it offers several
            models and none is named.
        EngineError: the server fails.
    """
    endpoint = replace(rollout.endpoint, model=event_loop.run(served_model_name(rollout)))
    return replace(rollout, endpoint=endpoint)


def trained_steps(run: Path | None, kept: Path | None) -> int:
    """How many training steps the model of a run or of a checkpoint has had."""
    if kept is not None:
        return checkpoint_store.step_of(kept)
    return 0 if run is None else RunFolder(run).load_state().step


def check_checkpoint(model: ModelConfig, kept: Path | None) -> None:
    """Check that a checkpoint fits the run's start model, if that is a local folder.

    Args:
        model: the run's own model.
        kept: the checkpoint; None checks nothing.

    Raises:
        ConfigError: it belongs to another model, or is damaged.
    """
    if kept is not None and model.path != "tiny" and not is_on_hub(model):
        checkpoint_store.check(kept, path_of(model.path, "model.path"), model.lora)


def model_folder(model: ModelConfig, run_seed: int, scratch: Path, kept: Path | None) -> Path:
    """The folder of the model to evaluate; a model that must be exported goes into `scratch`.

    Raises:
        ConfigError: the checkpoint belongs to another model, or is damaged.
    """
    start = resolve_model(model, run_seed, scratch / "start")
    if kept is None:
        return start
    checkpoint_store.check(kept, start, model.lora)
    checkpoint_store.export(kept, start, scratch / "model", model.dtype, model.lora)
    return scratch / "model"


def _final_step(run: Path) -> str:
    """The checkpoint of the exported model: the last, or the best one after an early stop."""
    summary = RunFolder(run).final_summary() or {}
    return str(summary.get(MODEL_STEP, "last"))


def export_checkpoint(
    run: Path, out: Path, name: str | None = None, dtype: str | None = None, adapter: bool = False
) -> int:
    """Export the model of a run's checkpoint as an ordinary Hugging Face folder.

    Args:
        run: the run's folder.
        out: the folder to write; it appears only when it is complete.
        name: `best`, `last` or a step; None takes that of the final model.
        dtype: of the written weights; None takes the run's `model.dtype`.
        adapter: write only the adapters (`model.lora`), for PEFT and vLLM.

    Returns:
        The training step of the checkpoint.

    Raises:
        ConfigError: there is no such run or checkpoint, the checkpoint belongs to another model
            or is damaged, or it has no adapters.
    """
    RunFolder.existing(run)
    config, _ = open_target(run, ())
    if adapter and RunFolder(run).command == "agentrl train-reward-model":
        raise ConfigError(
            f"{run}: adapters alone would lack the reward model's head. Leave out --adapter"
        )
    if adapter and not config.model.lora.rank:
        raise ConfigError(
            f"{run}: this model has no adapters (model.lora.rank=0). Leave out --adapter"
        )
    kept = checkpoint_store.by_name(run, name or _final_step(run))
    start = run / "start"
    try:
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            if not start.is_dir():  # the run started from a folder or from a model of the hub
                start = resolve_model(config.model, config.seed, Path(scratch) / "start")
            checkpoint_store.check(kept, start, config.model.lora)
            out.parent.mkdir(parents=True, exist_ok=True)
            if adapter:
                checkpoint_store.export_adapters(kept, start, out, config.model)
            else:
                dtype = dtype or config.model.dtype
                checkpoint_store.export(kept, start, out, dtype, config.model.lora)
                record_image_sizes(out, config.model)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    return checkpoint_store.step_of(kept)
