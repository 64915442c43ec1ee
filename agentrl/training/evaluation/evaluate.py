"""How well somebody plays, on seeds that nothing was ever trained on."""

import asyncio
import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from agentrl.cluster import ray_cluster
from agentrl.config import Config
from agentrl.devices.vision import Audit
from agentrl.errors import ConfigError
from agentrl.files import working_in
from agentrl.rollout.collector import tickets_of_step
from agentrl.rollout.rollout_group import AnyRollouts, open_rollouts
from agentrl.training import plan, seeds
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.monitoring.console import Display
from agentrl.training.monitoring.eta import Amounts
from agentrl.training.monitoring.rollout_progress import watching
from agentrl.training.run_folder import RunFolder
from agentrl.training.run_target import (
    asked_name,
    check_kept,
    checkpoint_of,
    is_served,
    model_folder,
    open_target,
    steps_of,
    with_own_model,
    with_served_model,
)
from agentrl.types import ScoredEpisode
from agentrl.weight_sync import transports

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class Evaluation:
    """Means over the valid episodes; `metrics` are the environment's own, such as accuracy."""

    metrics: dict[str, float]
    episodes: int
    void: int
    seconds: float
    by_seed: dict[int, dict[str, float]]
    audit: dict[str, dict[str, float]] = field(default_factory=dict)
    """How well an environment that compares what it reads with the truth has read each fact."""

    def summary(self) -> dict[str, Any]:
        """Without the single seeds, as it stands in `summary.json`."""
        counts = {"episodes": self.episodes, "void": self.void, "seconds": round(self.seconds, 1)}
        return {**{k: round(v, 4) for k, v in self.metrics.items()}, **counts}


def metrics_of(scored: ScoredEpisode) -> dict[str, float]:
    """Numbers of one episode: its return, its length, and `info["metrics"]` of its last turn.

    Where its reward has several components, each of them as well, unweighted: `reward/NAME`.
    """
    turns = scored.episode.turns
    own = turns[-1].info.get("metrics", {}) if turns else {}
    unreadable = sum(t.parse_error is not None for t in turns)
    components = {f"reward/{name}": float(sum(v)) for name, v in scored.components.items()}
    return {
        "reward": scored.total,
        "turns": float(len(turns)),
        "unreadable": unreadable / max(1, len(turns)),
        **{str(k): float(v) for k, v in own.items()},
        **(components if len(components) > 1 else {}),
    }


def means(episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
    """The mean of each number over the valid episodes; empty without any."""
    rows = [metrics_of(e) for e in episodes if not e.episode.outcome.void]
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}


def audited(episodes: Sequence[ScoredEpisode]) -> Audit:
    """What the environment said of its reading, as `info["audit"]`, in the valid episodes."""
    audit = Audit()
    for episode in (e.episode for e in episodes if not e.episode.outcome.void):
        # A turn without an action has brought no new screen.
        acted = [turn.info for turn in episode.turns if turn.action is not None]
        for found in (info.get("audit") for info in (episode.reset_info, *acted)):
            if isinstance(found, Mapping) and found.keys() == {"agreed", "differs"}:
                audit.take(found)
    return audit


async def play_held_out(
    rollouts: AnyRollouts,
    config: Config,
    episodes: int,
    *,
    name: str = "eval",
    step: int = 0,
    player: str | None = None,
    greedy: bool = False,
    demos: bool = False,
    check: Callable[[Sequence[ScoredEpisode]], None] = lambda played: None,
) -> Evaluation:
    """Play games on held-out seeds; a player's own draws are the same each time.

    Args:
        rollouts: play them.
        config: the job.
        episodes: how many games, each on a seed of its own.
        name: tells this evaluation from others of the same step; in the episodes' ids.
        step: how many training steps the model has seen.
        player: a scripted player; None for the model.
        greedy: the model takes its most probable token each time.
        demos: play the seeds of demonstrations instead.
        check: told of the episodes; raises where they will not do.

    Raises:
        WorldError: not one could be played.
    """
    started = time.perf_counter()
    label = name.replace(" ", "-")
    chosen = (seeds.demonstration if demos else seeds.evaluation)(config, episodes)
    tickets = tickets_of_step("demo" if demos else "eval", step, chosen, 1, label)
    played = await rollouts.collect(tickets, player, greedy)
    check(played)
    valid = [e for e in played if not e.episode.outcome.void]
    return Evaluation(
        metrics=means(played),
        episodes=len(valid),
        void=len(played) - len(valid),
        seconds=time.perf_counter() - started,
        by_seed={e.episode.seed: metrics_of(e) for e in valid},
        audit=audited(played).summary(),
    )


def evaluate(
    target: Config | str | Path,
    *,
    episodes: int | None = None,
    policy: str = "model",
    greedy: bool = False,
    checkpoint: str | None = None,
    demos: bool = False,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluate a run's model, or a configuration's start model, scripted player or server.

    Progress goes to the standard error, if `logging` names the console.

    Args:
        target: a run folder, a configuration's file or name, or a configuration.
        episodes: games, each on a held-out seed; None takes `eval.episodes`.
        policy: `model`, or the name of a scripted player such as `random` or `expert`, which needs
            no model and nothing that models need. Where `rollout.engine` is `remote`, the model is
            that of the server.
        greedy: the model takes its most probable token each time.
        checkpoint: of the run: `best`, `last` or a step; None takes its final model.
        demos: play the seeds of demonstrations, which a warm start may learn from, instead of
            held-out ones.
        overrides: `key=value` settings.

    Returns:
        The environment's own metrics, `reward`, `episodes`, `void` and `seconds`; and `run`, the
        folder where the games are recorded, which `agentrl view` shows. Where a server's model
        has played, `model` is how the server calls it. Where the environment
        compares what it reads with the truth, `audit`: for each fact how often it `agreed`, `of`
        how many, and the 95% interval of that share, from `low` to `high`.

    Raises:
        ConfigError: something named does not exist, or a server that is to play does not answer.
        WorldError: not one game could be played.
    """
    config, run = open_target(target, overrides)
    count = config.eval.episodes if episodes is None else episodes
    if count < 1:
        raise ConfigError(f"episodes={count}: must be at least 1")
    config = replace(
        config,
        eval=replace(config.eval, episodes=count),
        run=replace(config.run, name=asked_name(config, overrides)),
    )
    player = None if policy == "model" else policy
    kept = checkpoint_of(run, checkpoint)
    served = player is None and is_served(config, checkpoint)
    if run is not None and player is None and not served:
        config = with_own_model(config, run, kept)
    config = transports.without_learner(config)
    plan.check_player(config, player)
    if player is None:
        check_kept(config, kept)
    if served:
        config = with_served_model(config)
    name = "run" if isinstance(target, Config) else Path(target).stem
    if run is None and player is None and not served:
        log.warning(
            "%s is no run: its start model (%s) plays, which no run has trained. "
            "Name a run's folder to evaluate a trained one.",
            name,
            config.model.path,
        )
    who = "remote" if served else _who(run, kept, player)
    folder = RunFolder.create(config, f"{'demo' if demos else 'eval'}-{who}-{name}")
    model = {"model": config.rollout.endpoint.model} if served else {}
    asked = {
        "target": str(target),
        "policy": model.get("model", policy),
        "checkpoint": checkpoint_store.step_of(kept)
        if kept is not None and player is None
        else None,
        "greedy": greedy,
    }
    step = 0 if player is not None or served else steps_of(run, kept)
    with working_in(folder.path):
        folder.write_summary(asked)  # those who look on know what is played
        found = asyncio.run(_evaluate(config, folder.path, who, step, kept, player, greedy, demos))
        folder.write_summary({**asked, **found})
    return {**found, **model, "run": str(folder.path)}


def _who(run: Path | None, kept: Path | None, player: str | None) -> str:
    """Who plays, for the folder's name."""
    if player is not None:
        return player
    if kept is not None:
        return f"step-{checkpoint_store.step_of(kept)}"
    return "start" if run is None else "model"


async def _evaluate(
    config: Config,
    folder: Path,
    who: str,
    step: int,
    kept: Path | None,
    player: str | None,
    greedy: bool,
    demos: bool,
) -> dict[str, Any]:
    count = config.eval.episodes
    needs_none = player is not None or is_served(config)
    with TemporaryDirectory(prefix="agentrl-") as scratch, _shown(config, folder) as display:
        model = None if needs_none else model_folder(config, Path(scratch), kept)
        rollouts = await open_rollouts(config, model, folder, step)
        try:
            display.stage("evaluation")
            async with watching(rollouts, display.progress, count, who):
                found = await play_held_out(
                    rollouts,
                    config,
                    count,
                    name=f"{who} greedy" if greedy else who,
                    step=step,
                    player=player,
                    greedy=greedy,
                    demos=demos,
                )
        finally:
            await rollouts.close()
            ray_cluster.leave_cluster()
    return {**found.summary(), "audit": found.audit} if found.audit else found.summary()


@contextmanager
def _shown(config: Config, folder: Path) -> Iterator[Display]:
    """Tell how far it is on the standard error: the standard output is for the result."""
    wanted = "console" in {name.removesuffix("?") for name in config.logging}
    console = Console(stderr=True) if wanted else Console(file=io.StringIO())
    display = Display(folder, Amounts(), console)
    display.stage("start")
    try:
        yield display
    finally:
        display.close()


def as_record(name: str, step: int, evaluation: Evaluation) -> dict[str, Any]:
    """One line of `evaluations.jsonl`, with every seed, so that runs can be compared in pairs."""
    record = {"name": name, "step": step, **asdict(evaluation)}
    return record if record["audit"] else {k: v for k, v in record.items() if k != "audit"}
