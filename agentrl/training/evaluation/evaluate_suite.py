"""Evaluate models and scripted players on evaluation suites, and continue where that stopped."""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.config import Config, EnvConfig, ModelConfig, RewardConfig, model_target
from agentrl.config.bounds import path_of
from agentrl.data.reward_inputs import ROW
from agentrl.errors import ConfigError
from agentrl.extension_points import SUITE
from agentrl.files import lock_folder, write_json
from agentrl.rollout.environments.resolved_env import ResolvedEnv, resolve_env
from agentrl.runs.run_files import load_json
from agentrl.runs.run_folder import RunFolder
from agentrl.text import known_names
from agentrl.training.evaluation.evaluate import (
    Evaluation,
    EvaluationJob,
    category_of,
    check_evaluation,
    play_evaluations,
)
from agentrl.training.evaluation.suite import SuiteTask, tasks_of
from agentrl.training.evaluation.suite_results import (
    RESULT,
    TaskResult,
    result_of,
    write_results,
)
from agentrl.training.playable_target import (
    check_names_env,
    open_target,
    overridden_name,
    playable_target,
)

log = logging.getLogger(__name__)

COMMAND = "suite.json"
"""File of the evaluated suites and targets, in the folder of the evaluation."""
_ROWS_SEARCHED = 20


@dataclass(slots=True, kw_only=True, frozen=True)
class SuiteCommand:
    """Targets and suites of an evaluation; kept in its folder, to continue it."""

    targets: list[str]
    """Runs, model folders, models of the Hugging Face Hub, or configurations."""
    suites: list[str] = field(default_factory=list)
    """Names, files, `module:Class` or `path/file.py:Class`; none takes `eval.suite`."""
    policies: list[str] = field(default_factory=lambda: ["model"])
    """`model`, and scripted players."""
    checkpoints: list[str] = field(default_factory=list)
    """Checkpoints of the runs: `best`, `last` or steps; none takes their final models."""
    greedy: bool = False
    episodes: int | None = None
    """Number of episodes of each task; None takes the task's own."""
    samples: int | None = None
    """Number of samples of each task; None takes the task's own."""
    overrides: list[str] = field(default_factory=list)
    """`key=value` settings."""

    def check(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: one is below 1.
        """
        for name in ("episodes", "samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")

    def applied_to(self, task: SuiteTask) -> SuiteTask:
        """The task, with the numbers of this command."""
        return replace(
            task, episodes=self.episodes or task.episodes, samples=self.samples or task.samples
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class _Suite:
    """The tasks of a suite, as they are when the evaluation begins."""

    name: str
    folder: str | None
    tasks: Sequence[SuiteTask]


@dataclass(slots=True, kw_only=True, frozen=True)
class _Player:
    """A model or a scripted player, which plays all tasks."""

    name: str
    target: str
    config: Config
    run: Path | None
    checkpoint: str | None
    player: str | None


@dataclass(slots=True, kw_only=True, frozen=True)
class _TaskJob:
    """One task of one player, checked."""

    suite: str
    task: SuiteTask
    player: _Player
    job: EvaluationJob
    settings: str
    run: str
    """Folder of its episodes, relative to that of the evaluation."""


def evaluate_suites(
    command: SuiteCommand, begun: Callable[[Path], None] = lambda folder: None
) -> tuple[Path, list[TaskResult]]:
    """Play each task of some suites with some models; each model is loaded once.

    Args:
        command: what to play.
        begun: called with the folder, when everything has been checked.

    Returns:
        The folder of the evaluation, with `results.json` and a folder of recorded episodes for each
        task and model; and the results.

    Raises:
        ConfigError: something that a task names does not exist; nothing is played then.
        WorldError: see `agentrl.evaluate`.
    """
    command.check()
    players = _players(command)
    names = command.suites or [s for s in [players[0].config.eval.suite] if s is not None]
    if not names:
        raise ConfigError("eval.suite is not set: name a suite (agentrl list suite)")
    suites = [
        _Suite(
            name=_name_of(name),
            folder=SUITE.resolve(name).folder,
            tasks=[command.applied_to(task) for task in tasks_of(name)],
        )
        for name in names
    ]
    jobs = _checked(command, suites, players)
    stem = "-".join(_plain(suite.name) for suite in suites)[:60]
    config = players[0].config
    name = overridden_name(config.run.name, command.overrides)
    folder = RunFolder.create(replace(config.run, name=name), f"suite-{stem}").path
    played = {"command": asdict(command), "suites": [asdict(suite) for suite in suites]}
    stamps = {player.name: _stamp(player, jobs) for player in players}
    write_json(folder / COMMAND, {**played, "models": stamps})
    begun(folder)
    return folder, _play(folder, jobs)


def resume_suites(folder: Path) -> tuple[Path, list[TaskResult]]:
    """Continue an evaluation that was interrupted; finished tasks are not played again.

    Args:
        folder: as returned by `evaluate_suites`.

    Returns:
        As `evaluate_suites`.

    Raises:
        ConfigError: it is not such a folder, or a model has changed since.
        WorldError: see `agentrl.evaluate`.
    """
    try:
        tree = load_json(folder / COMMAND)
        command = SuiteCommand(**tree["command"])
        suites = [_suite_of(one) for one in tree["suites"]]
        stamps = dict(tree["models"])
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{folder} cannot be continued: it is not the folder of an evaluation of suites, or "
            f"its {COMMAND} is damaged ({error})"
        ) from error
    players = _players(command)
    jobs = _checked(command, suites, players)
    for player in players:
        if _stamp(player, jobs) != stamps.get(player.name):
            raise ConfigError(
                f"{folder} cannot be continued: {player.name} has changed since; start a new "
                "evaluation"
            )
    return folder, _play(folder, jobs)


def _suite_of(tree: Mapping[str, Any]) -> _Suite:
    tasks = [
        SuiteTask(**{**t, "rewards": t["rewards"] and [RewardConfig(**r) for r in t["rewards"]]})
        for t in tree["tasks"]
    ]
    return _Suite(name=tree["name"], folder=tree["folder"], tasks=tasks)


def _players(command: SuiteCommand) -> list[_Player]:
    """Everything that plays, each under a name of its own."""
    players = []
    for target in command.targets:
        config, run = open_target(playable_target(target, may_be_model=True), command.overrides)
        for policy in command.policies:
            is_model = policy == "model"
            for checkpoint in (command.checkpoints or (None,)) if is_model else (None,):
                name = target if is_model else policy
                if not is_model and len(command.targets) > 1:
                    name = f"{policy} ({target})"
                players.append(
                    _Player(
                        name=name if checkpoint is None else f"{name}@{checkpoint}",
                        target=target, config=config, run=run, checkpoint=checkpoint,
                        player=None if is_model else policy,
                    )
                )  # fmt: skip
    names = [player.name for player in players]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{twice} is named twice")
    return players


def _checked(
    command: SuiteCommand, suites: Sequence[_Suite], players: Sequence[_Player]
) -> list[_TaskJob]:
    """Check all tasks with all players, before any is played."""
    jobs: list[_TaskJob] = []
    for player in players:
        for suite in suites:
            for task in suite.tasks:
                number = len(jobs) + 1
                names = [suite.name] if len(suites) > 1 else []
                names += [player.name[-40:]] if len(players) > 1 else []
                run = "-".join(map(_plain, [f"{number:02d}", *names, task.name]))
                try:
                    job = _job(command, suite, task, player)
                except ConfigError as error:
                    raise ConfigError(f"{suite.name}, task {task.name!r}: {error}") from error
                own = job.config
                by_reward = task.metric is None or task.metric.startswith("reward")
                rewards = own.rewards if by_reward else []
                settings = _settings(own.env, own.eval.first_seed, rewards)
                jobs.append(
                    _TaskJob(
                        suite=suite.name, task=task, player=player, job=job, settings=settings,
                        run=run,
                    )
                )  # fmt: skip
    first = {(one.suite, one.task.name): one for one in reversed(jobs)}
    for one in jobs:
        if one.settings != (other := first[one.suite, one.task.name]).settings:
            raise ConfigError(
                f"{one.suite}, task {one.task.name!r}: {other.player.name} and {one.player.name} "
                f"would not play the same: {other.settings} and {one.settings}. Set it in the "
                "task, or for both (KEY=VALUE)"
            )
    return jobs


def _job(command: SuiteCommand, suite: _Suite, task: SuiteTask, player: _Player) -> EvaluationJob:
    config = player.config
    names_env = any(override.startswith("env.id=") for override in command.overrides)
    if task.env is None and not names_env and model_target(player.target) is not None:
        raise ConfigError(
            f"it names no environment, and {player.target} is only a model; add env.id=..."
        )
    if task.env is None:
        check_names_env(player.config, player.target, command.overrides)
    greedy = player.player is None and (command.greedy or task.temperature == 0)
    config = task.applied_to(config, greedy)
    if suite.folder is not None and suite.folder not in config.run.search_path:
        paths = [*config.run.search_path, suite.folder]
        config = replace(config, run=replace(config.run, search_path=paths))
    config = configuration.resolve(config)
    if task.category is not None:
        _check_category(resolve_env(config.env), task.category)
    job = check_evaluation(
        config, player.run, player.target, player.player, greedy, player.checkpoint
    )
    return replace(job, samples=task.samples, category=task.category)


def _check_category(env: ResolvedEnv, category: str) -> None:
    """Check that a data set has the column; only its first rows are read."""
    infos = [one.info for one in islice(env.first_observations(), _ROWS_SEARCHED)]
    if infos and all(category_of(info, category) is None for info in infos):
        known = infos[0].get(ROW) or infos[0]
        hint = known_names(category, known, label="There are")
        raise ConfigError(f"category={category}: no row has it{hint}")


def _settings(env: EnvConfig, first_seed: int, rewards: Sequence[RewardConfig]) -> str:
    """Return a key of what was played, without the model and the number of episodes."""
    played = {
        "env": env.id,
        "kwargs": env.kwargs,
        "max_turns": env.max_turns,
        "first_seed": first_seed,
        "rewards": [asdict(reward) for reward in rewards],
    }
    return json.dumps(played, sort_keys=True, default=str)


def _stamp(player: _Player, jobs: Sequence[_TaskJob]) -> str:
    """Identifies the weights that play, by the names, sizes and times of their files."""
    job = next(one.job for one in jobs if one.player is player)
    evaluated = job.evaluated
    if player.player is not None or evaluated.served:
        return ""
    folders = [evaluated.checkpoint] if evaluated.checkpoint else []
    folders += _local_folder(job.config.model)
    files = sorted(file for folder in folders for file in folder.glob("*") if file.is_file())
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    settings = job.config.model, job.config.seed, stats
    return hashlib.sha256(str(settings).encode()).hexdigest()[:16]


def _local_folder(model: ModelConfig) -> list[Path]:
    return [folder for folder in [path_of(model.path, "model.path")] if folder.is_dir()]


def _play(folder: Path, jobs: Sequence[_TaskJob]) -> list[TaskResult]:
    """Play what is not finished, one player after the other, and write the results of all."""
    with lock_folder(folder):
        results = {one.run: _finished(folder / one.run) for one in jobs}
        if done := sum(found is not None for found in results.values()):
            log.warning("%s: %d of %d tasks were finished already", folder, done, len(jobs))
        by_player: dict[str, list[_TaskJob]] = {}
        for one in jobs:
            if results[one.run] is None:
                by_player.setdefault(one.player.name, []).append(one)
        for left in by_player.values():
            _play_player(folder, left, results)
        found = [result for result in results.values() if result is not None]
        write_results(folder, found)
    return found


def _play_player(
    folder: Path, left: Sequence[_TaskJob], results: dict[str, TaskResult | None]
) -> None:
    if model_target(left[0].player.target) is None:
        left[0].job.warn_if_untrained()
    for one in left:  # a part of its episodes, without a result
        shutil.rmtree(folder / one.run, ignore_errors=True)

    def ended(number: int, found: Evaluation) -> None:
        one = left[number]
        result = result_of(
            one.task, found, model=one.player.name, suite=one.suite, settings=one.settings,
            run=one.run,
        )  # fmt: skip
        write_json(folder / one.run / RESULT, result.to_json())
        results[one.run] = result

    play_evaluations([(_placed(folder, one), _header(one)) for one in left], ended)


def _placed(folder: Path, one: _TaskJob) -> EvaluationJob:
    run = replace(one.job.config.run, dir=str(folder), name=one.run)
    return replace(one.job, config=replace(one.job.config, run=run))


def _header(one: _TaskJob) -> dict[str, str]:
    return {"suite": one.suite, "task": one.task.name}


def _finished(run: Path) -> TaskResult | None:
    """The result of a finished task; None if there is none that can be read."""
    try:
        return TaskResult.from_json(load_json(run / RESULT))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _name_of(suite: str) -> str:
    """A suite's name in reports: a file's without its folder."""
    return Path(suite).stem if SUITE.is_yaml(suite) else suite.rpartition("/")[2]


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
