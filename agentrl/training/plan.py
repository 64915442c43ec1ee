"""Check a whole job before any work starts: every name resolves, everything needed is there."""

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl import devices, env, plugins
from agentrl.config import Config
from agentrl.data.templates import render_instructions
from agentrl.errors import ConfigError, told
from agentrl.policies.opening import check_model
from agentrl.rollout.rollouts import load_player
from agentrl.rollout.scoring import Scorer
from agentrl.training.algorithms import algorithm
from agentrl.training.report.loggers import check_loggers
from agentrl.training.seeds import check_seeds

_INSTALL_VLLM = (
    "rollout.engine=vllm: vLLM is not installed. Install it with pip install 'agentrl[gpu]' "
    "(or 'agentrl[cpu]' without a GPU), or set rollout.engine=hf, which needs nothing more."
)
_INSTALL_RAY = (
    "rollout.launcher=ray: Ray is not installed. Install it with pip install 'agentrl[ray]', "
    "or set rollout.launcher=local."
)


def check(config: Config, player: str | None = None) -> None:
    """Resolve everything that a job names.

    Args:
        config: the job.
        player: a scripted player that is to play, besides those of the configuration.

    Raises:
        ConfigError: the first thing that is not there, and what to do.
    """
    configuration.validate(config)
    game = env.game(config.env.id)
    plugins.load(game.entry_point)
    translator = env.make_translator(config.env.id, config.env.translator)
    try:
        words = translator.instructions()
    except Exception as error:
        raise ConfigError(f"env.translator: its instructions fail: {told(error)}") from error
    render_instructions(config.env.prompt, words)
    players = [p for p in (player, config.warm_start and config.warm_start.player) if p]
    for name in (*players, *config.eval.baselines):
        load_player(config.env, name)
    Scorer(config.rewards)
    algorithm(config.algorithm.name)
    check_loggers(config.logging)
    check_model(config.model)
    check_seeds(config)
    _check_installed(config)
    if game.app is not None:
        deadlines = devices.Deadlines(**asdict(config.devices.deadlines))
        devices.check_source(config.devices.source, deadlines)


def _check_installed(config: Config) -> None:
    if config.rollout.engine == "vllm" and find_spec("vllm") is None:
        raise ConfigError(_INSTALL_VLLM)
    if config.rollout.launcher == "ray" and find_spec("ray") is None:
        raise ConfigError(_INSTALL_RAY)
    if config.train.ranks > 1 and config.rollout.launcher == "local":
        raise ConfigError(
            f"train.ranks={config.train.ranks} needs rollout.launcher=ray: "
            "the local launcher trains in this process alone"
        )


def resolve(config: Config) -> dict[str, Any]:
    """What the job would do, for `--dry-run`: the whole tree and what its names mean.

    Raises:
        ConfigError: see `check`.
    """
    check(config)
    game = env.game(config.env.id)
    return {
        "config": configuration.to_dict(config),
        "resolved": {
            "environment": game.id,
            "phone app": game.app or "none",
            "players": sorted(game.players),
            "model": str(Path(config.model.path)),
            "rewards": [r.function for r in config.rewards] or ["the environment's own"],
        },
        "budget": budget(config),
    }


def budget(config: Config) -> dict[str, str]:
    """How much of what each stage does, at most; `summary.json` says what it took."""
    rollout, evaluation, warm = config.rollout, config.eval, config.warm_start
    during = (config.train.steps - 1) // evaluation.every if evaluation.every else 0
    both = 2 * evaluation.episodes
    stages = {
        "baselines": _games(config, evaluation.episodes * len(evaluation.baselines)),
        "demonstrations": _games(config, warm.episodes if warm else 0),
        "warm start": f"{warm.steps} steps of {warm.batch} turns" if warm else "none",
        "evaluation before": _games(config, both),
        "reinforcement": f"{config.train.steps} steps, together "
        + _games(config, config.train.steps * rollout.groups * rollout.group_size),
        "evaluation during": _games(config, during * evaluation.episodes_during),
        "evaluation after": _games(config, both),
    }
    return {stage: amount for stage, amount in stages.items() if amount != "none"}


def _games(config: Config, episodes: int) -> str:
    if not episodes:
        return "none"
    return f"{episodes:,} episodes of at most {config.env.max_turns} turns"
