"""The output of `--dry-run`: plan, measured lengths, memory, and what was not checked."""

import inspect
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl import extension_points as points
from agentrl import user_code
from agentrl.cluster.ask_nodes import ask_nodes, smallest_gpu
from agentrl.cluster.machine_resources import host_memory
from agentrl.config import changed_settings, parse_loggers
from agentrl.env_registry import EnvRegistration
from agentrl.extension_points import ExtensionPoint
from agentrl.policies.models.model_source import is_on_hub
from agentrl.training.monitoring.logger import check_logins
from agentrl.training.plan.environment_checks import count_episodes
from agentrl.training.plan.host_memory_plan import misfits_without_gpus
from agentrl.training.plan.job_plan import JobPlan
from agentrl.training.plan.model_config_folder import are_configs_here
from agentrl.training.plan.trial_episodes import check_lengths, check_rewards
from agentrl.training.plan.work_estimate import estimate_work

MEMORY, MISFITS = "memory", "does not fit"
"""Keys in the result of `describe_plan`: the memory plan, and a list of problems with it."""
_BUILT_IN = ("agentrl", "gymnasium")
_CARDS_S = 60.0
"""Deadline in seconds for all nodes to report their GPU memory."""


def describe_plan(plan: JobPlan, *, run: Path | None = None) -> dict[str, Any]:
    """Describe a job for `--dry-run`, and measure what the plan does not know.

    A scripted player plays a few episodes to check whether prompts and replies fit; nothing is
    recorded. `not checked` lists what may still prevent the job from starting.

    Args:
        plan: the job; it is not started.
        run: the folder of the run to resume; None for a new run.

    Raises:
        ConfigError: prompts, replies, rewards or a logger's login cannot be used. The Hub is not
            contacted.
        WorldError: the environment cannot be played.
    """
    config, own, recorded = plan.settings, plan.play.tasks[""].train, plan.demonstrations
    unverified, on_hub = check_logins(config.logging), is_on_hub(config.model)
    if on_hub:  # lengths cannot be measured
        check_rewards(plan.play)
    lengths = check_lengths(plan.play, plan.warm_start, recorded.episodes)
    mixture = {n: f"{plan.play.tasks[n].train.id}, {w:.0%}" for n, w in plan.weights.items() if n}
    unmeasured = [f"length of prompts and replies in mixture, {name}" for name in mixture]
    memory, unplanned = _plan_memory(plan, run)
    counts = {k: v or "unlimited" for k, v in count_episodes(plan.play).items()}
    elsewhere = " (not a local folder; looked up on the Hugging Face Hub when the job starts)"
    optional = {
        "mixture": mixture,
        "model": config.model.path + elsewhere * on_hub,
        "recorded demonstrations": str(recorded) if recorded.episodes else "",
        "rewards": [r.function for r in config.rewards] or ["the environment's own"],
        "custom classes": _custom_classes(plan),
    }
    return {
        "config": changed_settings(config),
        "resolved": {
            "environment": own.registration.id,
            "phone app": own.app or "none",
            "distinct episodes": counts,
            "players": sorted(own.players),
            **{name: value for name, value in optional.items() if value},
            **lengths.measured,
        },
        "placement": plan.layout.describe(),
        **({MEMORY: memory} if memory else {}),
        "budget": estimate_work(plan.play, config.warm_start, config.train.steps),
        "not checked": [*unplanned, *unmeasured, *lengths.unchecked, *unverified],
    }


def _plan_memory(plan: JobPlan, run: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Plan a job's memory and disk space, and list what does not fit, or why this is unknown."""
    learner, layout = plan.learner, plan.layout
    used = {slot.node for slot in (*layout.ranks, *layout.engines) if slot.gpus}
    what = "memory and disk space"
    if not used:
        if find_spec("torch"):
            memory = host_memory().total
            if problems := misfits_without_gpus(learner, layout.nodes, memory, run):
                return {MISFITS: problems}, []
        return {}, [f"{what} (no GPU found; `agentrl plan` computes what a job on GPUs needs)"]
    from agentrl.training.plan import memory_plan  # imports torch

    if not are_configs_here(learner, run):
        return {}, [
            f"{what} (`agentrl plan` computes them from the model's config.json, which it "
            "downloads)"
        ]
    nodes = [node for node in layout.nodes if node in used]
    card = smallest_gpu(nodes, _CARDS_S)
    replies = ask_nodes(nodes, host_memory, _CARDS_S)
    host = min((reply.result.total for reply in replies if reply.result), default=None)
    try:
        found = memory_plan.plan_memory(
            learner, plan.play, plan.settings.checkpoint, layout, card, host=host, run=run
        )
    except memory_plan.CannotSimulate as error:
        return {}, [f"{what}: {error}"]
    size = "unknown; compare it with the totals" if card is None else f"{card / 1e9:.1f} GB"
    disk = found.disk.misfit(run or Path(plan.settings.run.dir))
    problems = [*found.problems, *filter(None, [disk])]
    misfits = {MISFITS: problems} if problems else {}
    notes = {"note": found.host.warning} if found.host.warning else {}
    return {"size of a GPU": size, **found.describe(), **notes, **misfits}, []


def _custom_classes(plan: JobPlan) -> list[str]:
    """List classes and functions from outside agentrl, such as `loss = losses.py:MyLoss`."""
    config, tasks = plan.settings, plan.play.trained.values()
    devices, algorithm = config.devices, config.algorithm
    named = [
        (points.MODEL, config.model.adapter),
        (points.CHAT, config.model.chat), (points.ALGORITHM, algorithm.name),
        (points.LOSS, algorithm.loss.name), (points.ENGINE, config.rollout.engine),
        (points.TRANSPORT, config.train.weight_transfer), (points.DRIVER, devices.driver),
        (points.CAPTURE, devices.capture), (points.SUITE, config.eval.suite),
        (points.SAMPLER, config.sampling.name),
        *((points.DIALECT, task.train.settings.dialect) for task in tasks),
        *((points.REWARD, reward.function) for task in tasks for reward in task.rewards),
        *((points.LOGGER, logger.name) for logger in parse_loggers(config.logging)),
    ]  # fmt: skip
    games = [found for task in tasks for found in _of_game(task.train.registration)]
    loaded = [*games, *_resolved(named)]
    defined = ((kind, _definition(found)) for kind, found in loaded)
    texts = (_text(kind, found) for kind, found in defined if not _is_built_in(found))
    return list(dict.fromkeys(texts))


def _of_game(game: EnvRegistration) -> Iterator[tuple[str, Any]]:
    """Yield the kind and object of each extension named in an environment's registration."""
    yield "env", _load(game.entry_point)
    if game.app is not None:
        yield "app", _load(game.app)
    yield "translator", _load(game.translator)
    for player in game.players.values():
        yield "player", _load(player)


def _resolved(named: Iterable[tuple[ExtensionPoint, str | None]]) -> Iterator[tuple[str, Any]]:
    """Yield the kind and object of named extensions, except built-in ones."""
    for point, name in named:
        # Skip built-in extensions, whose import may require a library that the job does not need.
        if name not in (None, "auto") and not point.target(name).startswith("agentrl."):
            yield point.kind, point.resolve(name)


def _load(target: Any) -> Any:
    """Return a registered object, loading it if it was registered by name."""
    return user_code.load(target) if isinstance(target, str) else target


def _definition(found: Any) -> Any:
    """Return a class or function itself, and the class of any other object."""
    return found if isinstance(found, type) or inspect.isfunction(found) else type(found)


def _is_built_in(found: Any) -> bool:
    return str(found.__module__).partition(".")[0] in _BUILT_IN


def _text(kind: str, found: Any) -> str:
    file = Path(inspect.getfile(found)).resolve()
    here = Path.cwd().resolve()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return f"{kind} = {shown}:{found.__qualname__}"
