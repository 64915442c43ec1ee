"""The output of `--dry-run`: plan, measured lengths, memory, and what was not checked."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl.cluster.node_report import host_memory
from agentrl.cluster.node_survey import ask_nodes, smallest_gpu
from agentrl.cluster.placement import Layout
from agentrl.config import Config, changed_settings
from agentrl.policies.models.model_source import is_on_hub
from agentrl.training.monitoring.logger import check_logins
from agentrl.training.plan.custom_classes import custom_classes
from agentrl.training.plan.environment_checks import count_episodes
from agentrl.training.plan.job_plan import make_plan
from agentrl.training.plan.length_check import check_lengths, check_rewards
from agentrl.training.plan.work_estimate import estimate_work

MEMORY, MISFITS = "memory", "does not fit"
"""Keys of what `describe_plan` returns: the memory plan, and its list of what does not fit."""
_CARDS_S = 60.0
"""Time for all nodes to report their GPU memory, in seconds."""


def describe_plan(
    config: Config, *, run: Path | None = None, warm_start_pending: bool = True
) -> dict[str, Any]:
    """Resolve the job's settings and names for `--dry-run`.

    A scripted player plays a few episodes, to see whether prompts and replies fit; nothing is
    recorded. `not checked` lists what may still keep the job from starting.

    Args:
        config: the job.
        run: the folder of the run that is resumed; None for a new one.
        warm_start_pending: see `plan_training`.

    Raises:
        ConfigError: see `plan_training`; the hub is not contacted.
        WorldError: the environment cannot be played.
    """
    plan = make_plan(config, warm_start_pending=warm_start_pending, rewards=True)
    own, demonstrations = plan.play.tasks[""].train, plan.demonstrations
    unverified = check_logins(config.logging)
    if is_on_hub(config.model):  # whose lengths are not measured
        check_rewards(plan.play)
    warm = config.warm_start if warm_start_pending else None
    lengths = check_lengths(replace(config, warm_start=warm), demonstrations.episodes)
    mixture = {n: f"{plan.play.tasks[n].train.id}, {w:.0%}" for n, w in plan.weights.items() if n}
    unmeasured = [f"length of prompts and replies in mixture, {name}" for name in mixture]
    memory, unplanned = _plan_memory(config, plan.layout, run or Path(config.run.dir))
    on_hub = " (not a local folder: looked up on the Hugging Face hub when the job starts)"
    return {
        "config": changed_settings(config),
        "resolved": {
            "environment": own.registration.id,
            "phone app": own.app or "none",
            "distinct episodes": {
                k: v or "unlimited" for k, v in count_episodes(plan.play).items()
            },
            "players": sorted(own.players),
            **({"mixture": mixture} if mixture else {}),
            "model": config.model.path + (on_hub if is_on_hub(config.model) else ""),
            **({"recorded demonstrations": str(demonstrations)} if demonstrations.episodes else {}),
            "rewards": [r.function for r in config.rewards] or ["the environment's own"],
            **(
                {"custom classes": classes}
                if (classes := custom_classes(config, plan.play))
                else {}
            ),
            **lengths.measured,
        },
        "placement": plan.layout.describe(),
        **({MEMORY: memory} if memory else {}),
        "budget": estimate_work(config, plan.play),
        "not checked": [
            *unplanned,
            *unmeasured,
            *lengths.unchecked,
            *unverified,
        ],
    }


def _plan_memory(config: Config, layout: Layout, run: Path) -> tuple[dict[str, Any], list[str]]:
    """Plan the memory and disk of a job, and list what does not fit; or why that is not known."""
    used = {slot.node for slot in (*layout.ranks, *layout.engines) if slot.gpus}
    what = "memory and disk space"
    if not used:
        if find_spec("torch"):
            from agentrl.training.plan import cpu_memory_plan  # imports torch

            if problems := cpu_memory_plan.misfits(config, layout.nodes, host_memory().total):
                return {MISFITS: problems}, []
        return {}, [f"{what} (there is no GPU; agentrl plan computes what a job on GPUs needs)"]
    from agentrl.training.plan import memory_plan  # imports torch

    if not memory_plan.is_config_here(config.model):
        return {}, [f"{what} (agentrl plan computes them: it downloads the model's config.json)"]
    nodes = [node for node in layout.nodes if node in used]
    card = smallest_gpu(nodes, _CARDS_S)
    replies = ask_nodes(nodes, host_memory, _CARDS_S)
    host = min((reply.result.total for reply in replies if reply.result), default=None)
    try:
        plan = memory_plan.plan_memory(config, layout, card, host=host)
    except memory_plan.CannotSimulate as error:
        return {}, [f"{what}: {error}"]
    size = "unknown: compare it with the totals" if card is None else f"{card / 1e9:.1f} GB"
    problems = [*plan.problems, *filter(None, [plan.disk.misfit(run)])]
    misfits = {MISFITS: problems} if problems else {}
    notes = {"note": plan.host.warning} if plan.host.warning else {}
    return {"size of a GPU": size, **plan.describe(), **notes, **misfits}, []
