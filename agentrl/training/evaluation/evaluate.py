"""Evaluate a model or a scripted player on held-out seeds."""

import io
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np
from rich.console import Console

from agentrl import event_loop
from agentrl.config import Config, parse_loggers
from agentrl.data.reward_inputs import ROW
from agentrl.data.row_columns import cell
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.extension_points import LOGGER
from agentrl.files import StrPath, lock_folder
from agentrl.intervals import estimate, student_estimate
from agentrl.notebook_html import table
from agentrl.rollout.collector import requests_of_step
from agentrl.rollout.reward_audit import sum_sight
from agentrl.rollout.workers.rollouts import Rollouts
from agentrl.runs.job_failure import recorded_failure
from agentrl.runs.run_folder import RunFolder
from agentrl.runs.run_start import record_start
from agentrl.text import pluralize
from agentrl.training import env_seeds
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.evaluation.shared_rollouts import SharedRollouts
from agentrl.training.model_to_play import (
    check_checkpoint,
    checkpoint_of,
    is_served,
    model_of_run,
    trained_steps,
    with_served_model,
)
from agentrl.training.monitoring.loggers.console import ConsoleDisplay
from agentrl.training.monitoring.progress import (
    PlannedWork,
    show_engine_start,
    show_progress,
)
from agentrl.training.plan.job_plan import plan_model_play, plan_scripted_play
from agentrl.training.playable_target import check_names_env, job_name, open_target, overridden_name
from agentrl.training.stop_signals import acknowledge_stop_signals
from agentrl.types import ScoredEpisode, Split

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, frozen=True)
class Evaluation:
    """Result of playing episodes on held-out seeds."""

    metrics: dict[str, float]
    """Means over the valid episodes: `reward`, `turns` and the environment's own metrics; and
    `unscored`, the share of episodes whose reward function failed, if there are any."""
    episodes: int
    """Number of valid episodes."""
    void: int
    """Number of episodes that failed and are in no mean."""
    seconds: float
    """How long it took."""
    by_seed: dict[int, dict[str, float]]
    """Metrics by seed; means if a seed is played several times."""
    void_causes: dict[str, int] = field(default_factory=dict)
    """Number of failed episodes by cause, including those that were played again."""
    context_full: int = 0
    """Number of episodes that ended because their context was full."""
    audit: dict[str, dict[str, float]] = field(default_factory=dict)
    """Agreement of an environment's screen reading with the truth. Each fact has how often it
    `agreed`, `of` how many, and the 95% interval of that share, from `low` to `high`."""
    run: Path | None = None
    """Folder with the recorded episodes, for `agentrl.replay.open`."""
    model: str | None = None
    """The model's name on the server, if a server's model played."""
    samples: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    """Metrics of each valid episode, by its seed."""
    categories: dict[int, str] = field(default_factory=dict)
    """The category of each seed that has one."""

    def __repr__(self) -> str:
        means = ", ".join(
            f"{name} {self.metrics[name]:.3g}"
            for name in ("reward", "success", "accuracy")
            if name in self.metrics
        )
        void = f", {self.void} void" if self.void else ""
        if unscored := self.metrics.get("unscored"):
            void += f", {unscored:.1%} unscored"
        return f"Evaluation({means}, {pluralize(self.episodes, 'episode')}{void})"

    def _repr_html_(self) -> str:
        """A table of the metrics, each with its 95% confidence interval over the seeds."""
        rows: list[Sequence[Any]] = [("", "mean", "95% interval")]
        intervals = self.intervals()
        for name, mean in self.metrics.items():
            rows.append((name, mean, " to ".join(f"{end:.4g}" for end in intervals.get(name, ()))))
        where = "" if self.run is None else f", recorded in {self.run}"
        return f"<p>{escape(f'{self!r}{where}')}</p>{table(rows)}"

    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95% confidence intervals of the means over the seeds, where there is one."""
        found = {}
        for name in self.metrics:
            values = [seed[name] for seed in self.by_seed.values() if name in seed]
            of = estimate if name in ("success", "accuracy") else student_estimate
            one = of(values) if values else None
            if one is not None and one.low is not None and one.high is not None:
                found[name] = one.low, one.high
        return found

    def summary(self) -> dict[str, Any]:
        """The means and counts without the results per seed, as written to `summary.json`."""
        counts = {"episodes": self.episodes, "void": self.void, "seconds": round(self.seconds, 1)}
        causes = {f"void/{cause}": count for cause, count in self.void_causes.items()}
        full = {"context_full": self.context_full} if self.context_full else {}
        return {**{k: round(v, 4) for k, v in self.metrics.items()}, **counts, **causes, **full}

    def warn(self, name: str) -> None:
        """Log what a reader of the means should know about the episodes behind them."""
        if self.void_causes:
            causes = ", ".join(f"{count} x {cause}" for cause, count in self.void_causes.items())
            log.warning(
                "%s: %s episodes were void (%s); %d of them could not be replayed and are missing",
                name,
                sum(self.void_causes.values()),
                causes,
                self.void,
            )
        if self.context_full:
            log.warning(
                "%s: %d episodes ended because their context was full: raise rollout.max_context, "
                "or set a shorter env.history",
                name,
                self.context_full,
            )

    def record(self, name: str, step: int) -> dict[str, Any]:
        """One line of `evaluations.jsonl`, with results per seed for paired comparisons of runs."""
        left_out = {"run", "model", "samples", "categories"}
        if not self.audit:
            left_out.add("audit")
        kept = {key: value for key, value in asdict(self).items() if key not in left_out}
        return {"name": name, "step": step, **kept}


def episode_metrics(scored: ScoredEpisode) -> dict[str, float]:
    """Metrics of one episode: return, length, and `info["metrics"]` of its last turn.

    If the reward has several components, each is included, unweighted, as `reward/NAME`.
    """
    turns = scored.episode.turns
    own = turns[-1].info.get("metrics", {}) if turns else {}
    unreadable = sum(t.parse_error is not None for t in turns)
    components = {f"reward/{name}": float(sum(v)) for name, v in scored.components.items()}
    return {
        "reward": scored.reward,
        "turns": float(len(turns)),
        "unreadable": unreadable / max(1, len(turns)),
        **{str(k): float(v) for k, v in own.items()},
        **(components if len(components) > 1 else {}),
    }


def mean_metrics(episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
    """The mean of each metric over the valid episodes; empty if there are none."""
    return _means([episode_metrics(e) for e in episodes if not e.episode.outcome.void])


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}


async def play_held_out(
    rollouts: Rollouts,
    chosen: Sequence[int],
    *,
    split: Split = "eval",
    name: str = "eval",
    step: int = 0,
    player: str | None = None,
    greedy: bool = False,
    mixture: Mapping[str, float] = MappingProxyType({"": 1.0}),
    samples: int = 1,
    category: str | None = None,
    check: Callable[[Sequence[ScoredEpisode]], None] = lambda played: None,
) -> Evaluation:
    """Play episodes on held-out seeds; a player's random draws are the same each time.

    Args:
        rollouts: play them.
        chosen: the seed of each episode.
        split: of the seeds: `eval`, or `demo` for those of the demonstrations.
        name: distinguishes this evaluation from others of the same step; part of episode ids.
        step: number of training steps that the model has had.
        player: a scripted player; None for the model.
        greedy: the model always takes its most probable token.
        mixture: the weight of each environment (`Config.mixture_weights`), all of which are played
            on the same seeds.
        samples: how often each seed is played.
        category: of seeds; a column of the data set, or a key of the environment's first info.
        check: called with the episodes; raises if they are unusable.

    Raises:
        WorldError: more than half of the episodes are void, or no phone is left.
    """
    started = time.perf_counter()
    label = name.replace(" ", "-")
    seeds = [*chosen] * len(mixture)
    envs = [name for name in mixture for _ in chosen]
    requests = requests_of_step(split, step, seeds, samples, label, envs=envs)
    played = await rollouts.collect(requests, player, greedy)
    check(played)
    size = len(chosen) * samples
    found = _evaluation(played[:size], category)
    if len(mixture) > 1:
        starts = range(0, len(played), size)
        each = [_evaluation(played[start : start + size], category) for start in starts]
        found = _combined(dict(zip(mixture, each, strict=True)), mixture)
    audit = sum_sight(scored.episode for scored in played).summary()
    progress = rollouts.progress
    found = replace(
        found,
        seconds=time.perf_counter() - started,
        audit=audit,
        metrics={**found.metrics, **progress.unscored_metrics()},
        void_causes=dict(progress.void),
        context_full=progress.context_full,
    )
    found.warn(name)
    return found


def _evaluation(played: Sequence[ScoredEpisode], category: str | None) -> Evaluation:
    valid = [e for e in played if not e.episode.outcome.void]
    by_seed: dict[int, list[dict[str, float]]] = {}
    for scored in valid:
        by_seed.setdefault(scored.episode.seed, []).append(episode_metrics(scored))
    return Evaluation(
        metrics=mean_metrics(played),
        episodes=len(valid),
        void=len(played) - len(valid),
        seconds=0.0,
        by_seed={seed: _means(rows) for seed, rows in by_seed.items()},
        samples=by_seed,
        categories={} if category is None else _categories(valid, category),
    )


def _combined(found: Mapping[str, Evaluation], weights: Mapping[str, float]) -> Evaluation:
    """The evaluation of a mixture: weighted means, and each environment's under `env/NAME/`."""
    seeds = dict.fromkeys(seed for one in found.values() for seed in one.by_seed)
    return Evaluation(
        metrics=_weighted({name: one.metrics for name, one in found.items()}, weights),
        episodes=sum(one.episodes for one in found.values()),
        void=sum(one.void for one in found.values()),
        seconds=0.0,
        by_seed={
            seed: _weighted(
                {name: one.by_seed[seed] for name, one in found.items() if seed in one.by_seed},
                weights,
            )
            for seed in seeds
        },
    )


def _weighted(
    metrics: Mapping[str, Mapping[str, float]], weights: Mapping[str, float]
) -> dict[str, float]:
    """Means over the environments that have a metric, then all of them by environment."""
    means = {}
    for key in dict.fromkeys(key for own in metrics.values() for key in own):
        having = [name for name, own in metrics.items() if key in own]
        total = sum(weights[name] for name in having)
        means[key] = sum(weights[name] * metrics[name][key] for name in having) / total
    return means | {
        f"env/{n}/{key}": value for n, own in metrics.items() for key, value in own.items()
    }


def _categories(valid: Sequence[ScoredEpisode], key: str) -> dict[int, str]:
    by_seed = {e.episode.seed: category_of(e.episode.reset_info, key) for e in valid}
    return {seed: value for seed, value in by_seed.items() if value is not None}


def category_of(info: Mapping[str, Any], key: str) -> str | None:
    """The category of an episode: a cell of its data set's row, or else a value of its first info.

    Args:
        info: of the first observation.
        key: a column of the data set, or a key of the info; `a.b` is the key b of the objects in a.
    """
    row = info.get(ROW)
    for place in (row if isinstance(row, Mapping) else {}, info):
        if (value := cell(place, key)) is not None:
            return str(value)
    return None


@dataclass(slots=True, kw_only=True, frozen=True)
class _EvaluatedPolicy:
    """A scripted player, a server's model, or the model of a run or of a configuration."""

    run: Path | None
    checkpoint: Path | None
    player: str | None
    """The scripted player; None for a model."""
    served: bool
    """Whether the model is behind a server."""

    @property
    def name(self) -> str:
        """Part of the name of the evaluation's folder."""
        if self.served:
            return "remote"
        if self.player is not None:
            return self.player
        if self.checkpoint is not None:
            return f"step-{checkpoint_store.step_of(self.checkpoint)}"
        return "start" if self.run is None else "model"

    @property
    def step(self) -> int:
        """Number of training steps that the model has had."""
        if self.player is not None or self.served:
            return 0
        return trained_steps(self.run, self.checkpoint)

    @property
    def checkpoint_step(self) -> int | None:
        """The step of the checkpoint that plays, if one does."""
        if self.checkpoint is None or self.player is not None:
            return None
        return checkpoint_store.step_of(self.checkpoint)

    def warn_if_untrained(self, target: str, model_path: str) -> None:
        """Warn if the start model of a configuration plays."""
        if self.run is None and self.player is None and not self.served:
            log.warning(
                "%s is not a run: evaluating the model that it starts from (%s). To evaluate one "
                "that it has trained, name a run's folder.",
                target,
                model_path,
            )

    def checked_job(self, config: Config) -> Config:
        """The configuration with this policy's model, after checking everything that it needs."""
        if self.run is not None and self.player is None and not self.served:
            own = model_of_run(config.model, self.run, self.checkpoint)
            config = replace(config, model=own)
        config = config.without_learner()
        if self.player is None:
            plan_model_play(config)
            check_checkpoint(config.model, self.checkpoint)
        else:
            plan_scripted_play(config, [self.player])
        if self.served:
            config = replace(config, rollout=with_served_model(config.rollout))
        return config


@with_short_mistakes
def evaluate(
    target: Config | StrPath,
    *,
    episodes: int | None = None,
    policy: str = "model",
    greedy: bool = False,
    checkpoint: str | None = None,
    demos: bool = False,
    overrides: Sequence[str] = (),
) -> Evaluation:
    """Evaluate the model of a run, the start model of a configuration, or a scripted player.

    Progress goes to standard error if `logging` includes `console`.

    Args:
        target: a run's folder, a configuration, or its file or name.
        episodes: number of episodes, each on its own held-out seed; None takes `eval.episodes`.
        policy: `model`, or the name of a scripted player such as `random` or `expert`, which needs
            neither a model nor an engine. With `rollout.engine=remote` the model is the server's.
        greedy: the model always takes its most probable token.
        checkpoint: of the run: `best`, `last` or a step; None takes its final model.
        demos: play the seeds of the demonstrations, which a warm start may train on, instead of
            held-out ones.
        overrides: `key=value` settings.

    Returns:
        The means of all metrics, the results per seed, and the folder of the recorded episodes.

    Raises:
        ConfigError: something named does not exist, or the server does not answer.
        WorldError: more than half of the episodes are void, or no phone is left.
    """
    if not isinstance(target, Config):
        target = os.fspath(target)
    config, run = open_target(target, overrides)
    check_names_env(config, target, overrides)
    count = config.eval.episodes if episodes is None else episodes
    if count < 1:
        raise ConfigError(f"episodes={count}: must be at least 1")
    config = replace(
        config,
        eval=replace(config.eval, episodes=count),
        run=replace(config.run, name=overridden_name(config.run.name, overrides)),
    )
    player = None if policy == "model" else policy
    job = check_evaluation(config, run, target, player, greedy, checkpoint, demos)
    if not any(text.startswith("model.path=") for text in overrides):
        job.warn_if_untrained()
    return play_evaluations([(job, {})])[0]


@dataclass(slots=True, kw_only=True, frozen=True)
class EvaluationJob:
    """One evaluation, checked and ready to be played."""

    config: Config
    target: str
    name: str
    """Name of the target without its folder; part of the name of the evaluation's folder."""
    evaluated: _EvaluatedPolicy
    split: Split
    greedy: bool
    samples: int = 1
    """How often each seed is played."""
    category: str | None = None
    """See `play_held_out`."""

    def warn_if_untrained(self) -> None:
        """Warn if the start model of a configuration plays."""
        self.evaluated.warn_if_untrained(self.name, self.config.model.path)


def check_evaluation(
    config: Config,
    run: Path | None,
    target: Config | StrPath,
    player: str | None,
    greedy: bool = False,
    checkpoint: str | None = None,
    demos: bool = False,
) -> EvaluationJob:
    """Check everything that an evaluation needs.

    Args:
        config: the job, with `eval.episodes` to be played.
        run: the run's folder, if the target is one.
        target: see `evaluate`.
        player: a scripted player; None for a model.
        greedy: see `evaluate`.
        checkpoint: see `evaluate`.
        demos: see `evaluate`.

    Raises:
        ConfigError: see `evaluate`.
    """
    kept = checkpoint_of(run, checkpoint)
    served = player is None and is_served(config.rollout, checkpoint)
    evaluated = _EvaluatedPolicy(run=run, checkpoint=kept, player=player, served=served)
    return EvaluationJob(
        config=evaluated.checked_job(config),
        target=str(target),
        name=job_name(target, config) if run is None else run.name,
        evaluated=evaluated,
        split="demo" if demos else "eval",
        greedy=greedy,
    )


def play_evaluations(
    jobs: Sequence[tuple[EvaluationJob, Mapping[str, Any]]],
    ended: Callable[[int, Evaluation], None] = lambda number, found: None,
) -> list[Evaluation]:
    """Play and record evaluations of one policy, one after the other; its model is loaded once.

    Args:
        jobs: each with what is added to its summary. They differ in their environments, rewards,
            evaluation settings and folders.
        ended: called after each with its index and result.

    Raises:
        ConfigError: a folder exists already, or cannot be created.
        WorldError: see `evaluate`.
        SystemExit: with status 143, after SIGTERM.
    """
    return event_loop.run(_play_all(jobs, ended))


async def _play_all(
    jobs: Sequence[tuple[EvaluationJob, Mapping[str, Any]]],
    ended: Callable[[int, Evaluation], None],
) -> list[Evaluation]:
    evaluated = jobs[0][0].evaluated
    with acknowledge_stop_signals(), TemporaryDirectory(prefix="agentrl-") as scratch:
        rollouts = SharedRollouts(
            Path(scratch),
            needs_model=evaluated.player is None and not evaluated.served,
            checkpoint=evaluated.checkpoint,
            version=evaluated.step,
        )
        found = []
        try:
            for number, (job, header) in enumerate(jobs):
                found.append(await _play_and_record(rollouts, job, header))
                ended(number, found[-1])
        finally:
            await rollouts.close()
    return found


async def _play_and_record(
    rollouts: SharedRollouts, job: EvaluationJob, header: Mapping[str, Any]
) -> Evaluation:
    """Play one evaluation and write its summary; a folder without any episode is removed."""
    config, evaluated = job.config, job.evaluated
    folder = RunFolder.create(config.run, f"{job.split}-{evaluated.name}-{job.name}")
    folder.save_config(config.to_dict())
    model = config.rollout.endpoint.model if evaluated.served else None
    summary = {
        "target": job.target,
        "policy": model or evaluated.player or "model",
        "checkpoint": evaluated.checkpoint_step,
        "greedy": job.greedy,
        **header,
    }
    with lock_folder(folder.path):
        record_start(folder.path)
        folder.write_summary(summary)  # the viewer shows it while episodes are played
        with recorded_failure(folder.path), folder.removed_if_empty():
            found = await _evaluate(rollouts, job, folder.path, header.get("task"))
        audit = {"audit": found.audit} if found.audit else {}
        folder.write_summary({**summary, **found.summary(), **audit})
    return replace(found, run=folder.path, model=model)


async def _evaluate(
    rollouts: SharedRollouts, job: EvaluationJob, folder: Path, task: str | None
) -> Evaluation:
    config, evaluated = job.config, job.evaluated
    count, name = config.eval.episodes, evaluated.name
    chosen = (
        env_seeds.demonstration_seeds(config.seed, count)
        if job.split == "demo"
        else env_seeds.evaluation_seeds(config.eval, count)
    )
    # Demonstrations are of the job's own environment.
    mixture = {"": 1.0} if job.split == "demo" else config.mixture_weights()
    with _shown(config.logging, folder) as display:
        try:
            opened = await rollouts.open(config, folder)
            if evaluated.player is None:
                engine = config.rollout.engine
                with show_engine_start(engine, opened.engines.count, display.progress):
                    await opened.engines.start()
            display.stage("evaluation" if task is None else f"evaluation: {task}")
            total = len(chosen) * job.samples * len(mixture)
            async with show_progress(opened, display.progress, total, name):
                found = await play_held_out(
                    opened,
                    chosen,
                    split=job.split,
                    name=f"{name} greedy" if job.greedy else name,
                    step=evaluated.step,
                    player=evaluated.player,
                    greedy=job.greedy,
                    mixture=mixture,
                    samples=job.samples,
                    category=job.category,
                )
        except BaseException:
            await rollouts.close()  # also of actors that have died
            raise
        await rollouts.finish()
    return found


@contextmanager
def _shown(loggers: Sequence[Any], folder: Path) -> Iterator[ConsoleDisplay]:
    """Show progress on standard error; standard output is for the result."""
    classes = [LOGGER.resolve(logger.name) for logger in parse_loggers(loggers)]
    is_shown = any(issubclass(cls, ConsoleDisplay) for cls in classes)
    console = Console(stderr=True) if is_shown else Console(file=io.StringIO())
    display = ConsoleDisplay(folder, PlannedWork(), console)
    display.stage("start")
    try:
        yield display
    finally:
        display.close()
