"""What a command is pointed at: a run, a configuration, or an environment by its name."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.config.loading import path_of
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import is_on_hub, resolve_model
from agentrl.policies.open_model import served_model
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.run_folder import RunFolder


def open_target(
    target: Config | str | Path, overrides: Sequence[str]
) -> tuple[Config, Path | None]:
    """The configuration, and the run's folder if the target is one."""
    if isinstance(target, Config):
        return configuration.resolve(target, overrides), None
    run = Path(target)
    if not run.is_dir():
        return configuration.load(target, overrides), None
    RunFolder.existing(run)
    return configuration.load(run / "config.yaml", overrides), run


def checkpoint_of(run: Path | None, name: str | None) -> Path | None:
    """The folder of a run's checkpoint; None where none is asked for.

    Raises:
        ConfigError: there is none of that name, or nothing that could have one.
    """
    if name is None:
        return None
    if run is None:
        raise ConfigError(f"checkpoint={name}: only a run's folder has checkpoints")
    return checkpoint_store.named(run, name)


def with_own_model(config: Config, run: Path, kept: Path | None) -> Config:
    """The same configuration with the run's own model, which may have begun as another's."""
    own = run / ("model" if kept is None else "start")
    if kept is None and not own.is_dir():
        raise ConfigError(
            f"{run} has no final model yet: continue it with --resume, or name a checkpoint"
        )
    if not own.is_dir():  # it began as a folder or a model of the hub
        return config
    return replace(config, model=replace(config.model, path=str(own.absolute())))


def is_served(config: Config, checkpoint: str | None = None) -> bool:
    """Whether the model that plays is a server's.

    Raises:
        ConfigError: it is, and a checkpoint is asked for.
    """
    served = config.rollout.engine == "remote"
    if served and checkpoint is not None:
        raise ConfigError(
            f"checkpoint={checkpoint}: with rollout.engine=remote the server's model plays; leave "
            "one of them out"
        )
    return served


def with_served_model(config: Config) -> Config:
    """The same configuration, which names the model that a server has; it is asked.

    Raises:
        ConfigError: it cannot be reached, refuses, or has not one model alone and none is named.
        EngineError: it fails.
    """
    rollout = config.rollout
    endpoint = replace(rollout.endpoint, model=asyncio.run(served_model(rollout)))
    return replace(config, rollout=replace(rollout, endpoint=endpoint))


def steps_of(run: Path | None, kept: Path | None) -> int:
    """How many training steps the model of a run or of its checkpoint has seen."""
    if kept is not None:
        return checkpoint_store.step_of(kept)
    return 0 if run is None else RunFolder(run).load_state().step


def asked_name(config: Config, overrides: Sequence[str]) -> str | None:
    """The name of the folder to record in, where an override asks for one; a run's is its own."""
    asked = any(override.partition("=")[0].strip() == "run.name" for override in overrides)
    return config.run.name if asked else None


def check_kept(config: Config, kept: Path | None) -> None:
    """See whether a checkpoint is of the model that a run began with, if that is a folder here.

    Args:
        config: with the run's own model.
        kept: the checkpoint; None where none is asked for.

    Raises:
        ConfigError: it is another model's, or broken.
    """
    if kept is not None and config.model.path != "tiny" and not is_on_hub(config.model):
        checkpoint_store.check(kept, path_of(config.model.path, "model.path"), config.model.lora)


def model_folder(config: Config, scratch: Path, kept: Path | None) -> Path:
    """The folder of what is evaluated; what has to be made goes into the scratch folder.

    Raises:
        ConfigError: the checkpoint is another model's, or broken.
    """
    start = resolve_model(config.model, config.seed, scratch / "start")
    if kept is None:
        return start
    checkpoint_store.check(kept, start, config.model.lora)
    checkpoint_store.export(kept, start, scratch / "model", config.model.dtype, config.model.lora)
    return scratch / "model"


def merged(
    run: Path, out: Path, name: str | None = None, dtype: str | None = None, adapter: bool = False
) -> int:
    """Write the model of a run's checkpoint as an ordinary Hugging Face folder.

    Args:
        run: the run's folder.
        out: where; made, and there only once it is whole.
        name: `best`, `last` or a step; None takes the best, or the last where none is.
        dtype: of the written weights; None takes the run's `model.dtype`.
        adapter: write the adapters (`model.lora`) alone, for PEFT and vLLM.

    Returns:
        The training step of the checkpoint.

    Raises:
        ConfigError: there is no such run or checkpoint, it is another model's or broken, or it
            has no adapters.
    """
    RunFolder.existing(run)
    config, _ = open_target(run, ())
    if adapter and not config.model.lora.rank:
        raise ConfigError(
            f"{run}: this model has no adapters (model.lora.rank is 0). Leave out --adapter"
        )
    kept = checkpoint_store.named(
        run, name or ("last" if checkpoint_store.best(run) is None else "best")
    )
    start = run / "start"
    try:
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            if not start.is_dir():  # it began as a folder or a model of the hub
                start = resolve_model(config.model, config.seed, Path(scratch) / "start")
            checkpoint_store.check(kept, start, config.model.lora)
            out.parent.mkdir(parents=True, exist_ok=True)
            if adapter:
                checkpoint_store.export_adapters(kept, start, out, config.model)
            else:
                dtype = dtype or config.model.dtype
                checkpoint_store.export(kept, start, out, dtype, config.model.lora)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    return checkpoint_store.step_of(kept)
