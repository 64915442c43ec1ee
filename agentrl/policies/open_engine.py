"""Open and check the engine that a configuration selects."""

from dataclasses import replace
from pathlib import Path

from agentrl import extras
from agentrl.config import ModelConfig, RolloutConfig
from agentrl.errors import ConfigError
from agentrl.extension_points import ENGINE
from agentrl.policies.engines.engine import ChatEngine, Engine, EngineSettings
from agentrl.policies.models.model_loading import family_of


def engine_class(rollout: RolloutConfig) -> type[Engine]:
    """Return the class named by `rollout.engine`, without importing the engine's libraries."""
    found: type[Engine] = ENGINE.resolve(rollout.engine)
    return found


def check_engine_for(
    model: ModelConfig, folder: Path, rollout: RolloutConfig, gpus: int | None
) -> None:
    """Check that an engine's sampling probabilities match the learner's.

    Args:
        model: a model other than `tiny`. Call `check_model` first.
        folder: folder with the model's config.json.
        rollout: its `engine` is checked.
        gpus: number of GPUs of the job; None if not known yet.
    """
    if gpus is None:
        return
    family = family_of(folder, model.adapter)
    why = engine_class(rollout).why_not_train(folder, family, gpus)
    if why is None:
        return
    others = [
        name
        for name in other_engines(rollout)
        if _named(rollout, name).why_not_train(folder, family, gpus) is None
    ]
    remedy = f"set rollout.engine={' or '.join(others)}" if others else "choose another model"
    raise ConfigError(
        f"rollout.engine={rollout.engine} cannot be used to train {model.path} because {why}; "
        f"{remedy}"
    )


def other_engines(rollout: RolloutConfig) -> list[str]:
    """Return the other engines of agentrl that can train and whose packages are installed."""
    names = (one.name for one in ENGINE.extensions() if one.origin == "agentrl")
    others = [name for name in names if ENGINE.target(name) != ENGINE.target(rollout.engine)]
    return [name for name in others if _can_train_here(_named(rollout, name), rollout)]


def _named(rollout: RolloutConfig, engine: str) -> type[Engine]:
    return engine_class(replace(rollout, engine=engine))


def _can_train_here(engine: type[Engine], rollout: RolloutConfig) -> bool:
    return engine.capabilities.trains and not engine.missing_packages(rollout)


def check_packages(rollout: RolloutConfig) -> None:
    """Check that all packages the engine and the launcher import are installed."""
    engine = engine_class(rollout)
    models, launcher = list[str](), list[str]()
    # Without a model, everything runs in this process.
    if engine.capabilities.needs_model:
        models, launcher = extras.missing_for_models(rollout.launcher)
    if lacking := [*models, *engine.missing_packages(rollout), *launcher]:
        raise ConfigError(". ".join(lacking))


def open_engine(
    rollout: RolloutConfig,
    model: ModelConfig,
    folder: Path | None,
    seed: int = 0,
    version: int = 0,
    *,
    backend: str | None = None,
    can_sleep: bool = False,
) -> Engine:
    """Create the configured engine without starting it.

    Args:
        rollout: selects the engine.
        model: selects dtype, attention, family and LoRA adapters.
        folder: the folder from `resolve_model`; None for an engine that needs no model.
        seed: see `EngineSettings`.
        version: version of the weights in the folder.
        backend: see `EngineSettings`.
        can_sleep: see `EngineSettings`.
    """
    engine_class(rollout).check(rollout)
    settings = EngineSettings(
        folder=folder,
        version=version,
        dtype=model.dtype,
        attention=model.attention,
        adapter=model.adapter,
        chat=model.chat,
        chat_options=model.chat_options,
        max_context=rollout.max_context,
        concurrency=rollout.concurrency,
        deadline_s=rollout.deadline_s,
        start_deadline_s=rollout.start_deadline_s,
        seed=seed,
        backend=backend,
        lora_rank=model.lora.rank if model.lora.serve == "adapter" else 0,
        can_sleep=can_sleep,
        endpoint=rollout.endpoint,
    )
    return engine_class(rollout)(settings, **rollout.engine_kwargs)


async def served_model_name(rollout: RolloutConfig) -> str:
    """Return the name of a server's model, after requesting a first reply."""
    engine = open_engine(rollout, ModelConfig(), None)
    assert isinstance(engine, ChatEngine), "a model without a folder must be on a server"
    try:
        await engine.start()
    finally:
        await engine.close()
    return engine.model
