"""The amount of work in each stage of a job and, where measured, its approximate duration.

Times are estimates, known only for the tiny model on virtual phones with an engine whose speed has
been measured (`EngineCapabilities.tiny_turns_per_s`). They are based on the measured stages of
`configs/number_game.yaml` on two cores (docs/results.md).
"""

import math
from collections.abc import Sequence

from agentrl.config import (
    DevicesConfig,
    EnvConfig,
    ModelConfig,
    RolloutConfig,
    WarmStartConfig,
)
from agentrl.devices.device_sources import num_virtual
from agentrl.policies.models.model_source import local_folder
from agentrl.policies.open_engine import engine_class
from agentrl.rollout.environments.resolved_env import ResolvedEnv
from agentrl.rollout.rollout_plan import RolloutPlan, baseline_players
from agentrl.text.formatting import pluralize
from agentrl.training.demonstrations import warm_start_cache
from virtual_phone.phones_spec import EFFECT_DELAY_MS

_SCRIPTED_TURNS_PER_S = 110.0
"""As measured: 300 episodes of 19 turns on 32 virtual phones without effect delay took 51 s."""
_SUPERVISED_TURNS_PER_S = 170.0
"""As measured: 600 steps of 32 turns took 112 s."""
_LEARNED_TURNS_PER_S = 400.0
"""As measured: the 608 turns of a training step took 0.2 to 3.8 s."""
_START_S = 15.0
"""Seconds to start phones, Ray and the learner."""
_ENGINE_START_S = 30.0
"""Seconds to start vLLM with the tiny model."""
_PHONE_S = 0.05
"""Seconds per turn on a phone that has the machine to itself, without effect delay."""
_ANSWER_S = 0.1
"""Seconds that the model takes to reply to a single prompt."""
_BASIS = "estimated for two otherwise idle cores"


def estimate_work(play: RolloutPlan, warm: WarmStartConfig | None, steps: int) -> dict[str, str]:
    """Return the maximum amount of work in each stage, and its approximate duration.

    Args:
        play: the job.
        warm: the job's warm start, if any.
        steps: number of training steps.

    If times are known, the last entry, `total`, is their sum.
    """
    own = play.tasks[""]
    evaluation, rollout = own.eval, play.settings.rollout
    settings = [task.train.settings for task in play.trained.values()]
    max_turns = max(one.max_turns for one in settings)
    ringed = sum(play.ring_episodes.values())
    held_out = evaluation.episodes * len(settings) + ringed
    measured = _measured_turns_per_s(play.settings.model, own.train, rollout, play.settings.devices)
    scripted, model = _turns_per_second(rollout, play.settings.devices, measured or math.inf)
    baselines = held_out * len(baseline_players(play))
    before, before_s = _episode_work(max_turns, 2 * held_out, model)
    played = steps * rollout.groups * rollout.group_size
    learned_per_s = 1 / (1 / model + 1 / _LEARNED_TURNS_PER_S)
    learned, learned_s = _episode_work(max_turns, played, learned_per_s)
    # Evaluations every `eval.every` steps and after the last step.
    during = math.ceil(steps / evaluation.every) if evaluation.every else 0
    stages = {
        "start": ("starting processes and loading the model", _START_S),
        "baselines": _episode_work(max_turns, baselines, scripted),
        **_warm_start_work(play.settings.model, warm, settings, scripted),
        "engine start": ("starting the rollout engines", _ENGINE_START_S),
        "evaluation before": (before, before_s),
        "reinforcement": (
            learned and f"{pluralize(steps, 'step')} with {learned} in total",
            learned_s,
        ),
        "evaluation during": _episode_work(
            max_turns, during * evaluation.episodes_during * len(settings), model
        ),
        "evaluation after": _episode_work(max_turns, 2 * held_out, model),
    }
    stages = {name: (amount, seconds) for name, (amount, seconds) in stages.items() if amount}
    if measured is None:
        return {name: amount for name, (amount, _) in stages.items()}
    lines = {name: f"{amount}, {_about(seconds)}" for name, (amount, seconds) in stages.items()}
    total = _about(sum(seconds for _, seconds in stages.values()))
    return lines | {"total": f"{total}, {_BASIS}"}


def _warm_start_work(
    model: ModelConfig,
    warm: WarmStartConfig | None,
    environments: Sequence[EnvConfig],
    turns_per_s: float,
) -> dict[str, tuple[str, float]]:
    """Return the work and the seconds of each stage of a warm start; empty if it is skipped."""
    if warm is None or all(_has_warm_start(model, warm, one) for one in environments):
        return {}
    games = 0 if warm.player is None else warm.episodes
    max_turns = max(one.max_turns for one in environments)
    return {
        "demonstrations": _episode_work(max_turns, games, turns_per_s),
        "warm start": (
            f"{warm.steps} steps of {warm.batch} turns",
            warm.steps * warm.batch / _SUPERVISED_TURNS_PER_S,
        ),
    }


def _episode_work(max_turns: int, episodes: int, turns_per_s: float) -> tuple[str, float]:
    """Return a description of some episodes, empty if there are none, and the seconds."""
    most = pluralize(max_turns, "turn")
    amount = f"{episodes:,} episodes of at most {most}" if episodes else ""
    return amount, episodes * max_turns / turns_per_s


def _turns_per_second(
    rollout: RolloutConfig, devices: DevicesConfig, measured: float
) -> tuple[float, float]:
    """Return the turns per second of scripted players and of the model, limited by the phones."""
    at_once = min(_num_virtual(devices) or 1, rollout.concurrency)
    turn_s = _PHONE_S + sum(devices.effect_delay_ms or EFFECT_DELAY_MS[devices.tempo]) / 2000
    return (
        min(_SCRIPTED_TURNS_PER_S, at_once / turn_s),
        min(measured, at_once / (turn_s + _ANSWER_S)),
    )


def _measured_turns_per_s(
    model: ModelConfig, environment: ResolvedEnv, rollout: RolloutConfig, devices: DevicesConfig
) -> float | None:
    """Return the model's turns per second; None if not measured for this kind of job."""
    if model.path != "tiny" or environment.app is None or _num_virtual(devices) is None:
        return None
    return engine_class(rollout).capabilities.tiny_turns_per_s


def _num_virtual(devices: DevicesConfig) -> int | None:
    found = [devices.of_host(host).source for host in devices.hosts] or [devices.source]
    counts = [num_virtual(source) if isinstance(source, str) else None for source in found]
    return None if len(counts) > 1 else counts[0]


def _has_warm_start(model: ModelConfig, warm: WarmStartConfig, environment: EnvConfig) -> bool:
    return model.path != "tiny" and warm_start_cache.has_warm_start(
        local_folder(model), warm, environment.id
    )


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.1f} min" if seconds < 600 else f"about {seconds / 60:.0f} min"
