"""Evaluates models and scripted players on suites, and resumes interrupted evaluations."""

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
from agentrl.config import RewardConfig
from agentrl.data.reward_inputs import ROW
from agentrl.errors import ConfigError
from agentrl.extension_points import SUITE
from agentrl.files import lock_folder, write_json
from agentrl.policies.models.model_source import local_folder
from agentrl.rollout.environments.resolved_env import ResolvedEnv, resolve_env
from agentrl.rollout.rollout_plan import PlayTask
from agentrl.runs.file_reading import load_json
from agentrl.runs.run_folder import RunFolder
from agentrl.text.name_suggestions import known_names
from agentrl.training.chosen_policy import MODEL, ChosenPolicy, choose_policy
from agentrl.training.command_target import open_target
from agentrl.training.evaluation.evaluate import EvaluationJob, play_evaluations
from agentrl.training.evaluation.held_out_evaluation import Evaluation, category_of
from agentrl.training.evaluation.suite import SuiteTask, tasks_of
from agentrl.training.evaluation.suite_results import (
    RESULT,
    RESULTS,
    TaskResult,
    result_of,
    tree_of,
)

log = logging.getLogger(__name__)

COMMAND = "suite.json"
"""File in the evaluation's folder that lists the evaluated suites and targets."""
_ROWS_SEARCHED = 20


@dataclass(slots=True, kw_only=True, frozen=True)
class SuiteCommand:
    """Targets and suites of an evaluation; saved in its folder so that it can be resumed."""

    targets: list[str]
    """Runs, model folders, models on the Hugging Face Hub, or configurations."""
    suites: list[str] = field(default_factory=list)
    """Names, files, `module:Class` or `path/file.py:Class`; if empty, `eval.suite` is used."""
    policies: list[str] = field(default_factory=lambda: ["model"])
    """`model`, and scripted players."""
    checkpoints: list[str] = field(default_factory=list)
    """Checkpoints of the runs: `best`, `last` or steps; if empty, their final models are used."""
    greedy: bool = False
    episodes: int | None = None
    """Number of episodes per task; None uses each task's setting."""
    samples: int | None = None
    """Number of samples per episode; None uses each task's setting."""
    overrides: list[str] = field(default_factory=list)
    """`key=value` settings."""

    def check(self) -> None:
        """Check the numbers of episodes and samples.

        Raises:
            ConfigError: a number is below 1.
        """
        for name in ("episodes", "samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")

    def applied_to(self, task: SuiteTask) -> SuiteTask:
        """Return the task with this command's numbers of episodes and samples."""
        return replace(
            task, episodes=self.episodes or task.episodes, samples=self.samples or task.samples
        )


@dataclass(slots=True, kw_only=True, frozen=True)
class _Suite:
    """A suite's tasks at the start of the evaluation."""

    name: str
    folder: str | None
    tasks: Sequence[SuiteTask]


@dataclass(slots=True, kw_only=True, frozen=True)
class _TaskJob:
    """A checked task of one policy, with the names and settings to write with its result."""

    job: EvaluationJob
    task: SuiteTask
    model: str
    """The policy's name in results."""
    settings: str
    run: str
    """Folder of the task's episodes, relative to the evaluation's folder."""


def evaluate_suites(
    command: SuiteCommand, begun: Callable[[Path], None] = lambda folder: None
) -> tuple[Path, list[TaskResult]]:
    """Play all tasks of some suites with some models; each model is loaded only once.

    Args:
        command: targets and suites to play.
        begun: called with the folder once everything has been checked.

    Returns:
        The folder of the evaluation, with `results.json` and a folder of recorded episodes for each
        task and model, and the results.

    Raises:
        ConfigError: a task names something that does not exist; nothing has been played.
        WorldError: see `agentrl.evaluate`.
    """
    command.check()
    policies = _policies(command)
    target = next(iter(policies.values())).target
    names = command.suites or [s for s in [target.config.eval.suite] if s is not None]
    if not names:
        raise ConfigError(
            "eval.suite is not set; set it to the name of a suite (agentrl list suite)"
        )
    suites = [
        _Suite(
            name=_name_of(name),
            folder=SUITE.resolve(name).folder,
            tasks=[command.applied_to(task) for task in tasks_of(name)],
        )
        for name in names
    ]
    # Check everything with all models first, because a mistake in the last task would cost hours.
    jobs = _checked(command, suites, policies)
    stem = "-".join(_plain(suite.name) for suite in suites)[:60]
    place = replace(target.config.run, name=target.run_name)
    folder = RunFolder.create(place, f"suite-{stem}").path
    played = {"command": asdict(command), "suites": [asdict(suite) for suite in suites]}
    write_json(folder / COMMAND, {**played, "models": _stamps(jobs)})
    begun(folder)
    return folder, _play_unfinished(folder, jobs)


def resume_suites(folder: Path) -> tuple[Path, list[TaskResult]]:
    """Resume an interrupted evaluation; finished tasks are not played again.

    Args:
        folder: folder returned by `evaluate_suites`.

    Returns:
        See `evaluate_suites`.

    Raises:
        ConfigError: the folder does not contain an evaluation of suites, or a model has changed.
        WorldError: see `agentrl.evaluate`.
    """
    try:
        tree = load_json(folder / COMMAND)
        command = SuiteCommand(**tree["command"])
        suites = [_suite_of(one) for one in tree["suites"]]
        stamps = dict(tree["models"])
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{folder} cannot be resumed, because it is not the folder of a suite evaluation or "
            f"its {COMMAND} is damaged ({error})"
        ) from error
    policies = _policies(command)
    jobs = _checked(command, suites, policies)
    for model, stamp in _stamps(jobs).items():
        if stamp != stamps.get(model):
            raise ConfigError(
                f"{folder} cannot be resumed, because {model} has changed in the meantime; start a "
                "new evaluation"
            )
    return folder, _play_unfinished(folder, jobs)


def _suite_of(tree: Mapping[str, Any]) -> _Suite:
    tasks = [
        SuiteTask(**{**t, "rewards": t["rewards"] and [RewardConfig(**r) for r in t["rewards"]]})
        for t in tree["tasks"]
    ]
    return _Suite(name=tree["name"], folder=tree["folder"], tasks=tasks)


def _policies(command: SuiteCommand) -> dict[str, ChosenPolicy]:
    """Return the models and scripted players by their names in results."""
    policies: dict[str, ChosenPolicy] = {}
    for text in command.targets:
        target = open_target(text, command.overrides, may_be_model=True)
        for chosen in command.policies:
            is_model = chosen == MODEL
            for checkpoint in (command.checkpoints or (None,)) if is_model else (None,):
                name = text if is_model else chosen
                if not is_model and len(command.targets) > 1:
                    name = f"{chosen} ({text})"
                name = name if checkpoint is None else f"{name}@{checkpoint}"
                if name in policies:
                    raise ConfigError(f"{name} is listed twice")
                policies[name] = choose_policy(target, chosen, checkpoint)
    return policies


def _checked(
    command: SuiteCommand, suites: Sequence[_Suite], policies: Mapping[str, ChosenPolicy]
) -> list[_TaskJob]:
    """Check all tasks with all policies before playing any."""
    jobs: list[_TaskJob] = []
    for model, policy in policies.items():
        for suite in suites:
            for task in suite.tasks:
                names = [suite.name] if len(suites) > 1 else []
                names += [model[-40:]] if len(policies) > 1 else []
                run = "-".join(map(_plain, [f"{len(jobs) + 1:02d}", *names, task.name]))
                try:
                    job = _job(command, suite, task, policy)
                except ConfigError as error:
                    raise ConfigError(f"{suite.name}, task {task.name!r}: {error}") from error
                settings = _settings(job.plan.tasks[""], task)
                jobs.append(_TaskJob(job=job, task=task, model=model, settings=settings, run=run))
    # Results are not comparable if settings that a task takes from the job differ between models.
    first = {(one.job.suite, one.task.name): one for one in reversed(jobs)}
    for one in jobs:
        if one.settings != (other := first[one.job.suite, one.task.name]).settings:
            raise ConfigError(
                f"{one.job.suite}, task {one.task.name!r}: {other.model} and {one.model} would "
                f"play with different settings: {other.settings} and {one.settings}. Set them in "
                "the task, or for both models (KEY=VALUE)"
            )
    return jobs


def _job(
    command: SuiteCommand, suite: _Suite, task: SuiteTask, policy: ChosenPolicy
) -> EvaluationJob:
    target = policy.target
    if task.env is None:
        if target.is_model and not target.overrides_key("env.id"):
            raise ConfigError(
                f"the task has no environment, and {target.text} is only a model; add env.id=..."
            )
        target.check_names_env()
    greedy = policy.scripted is None and (command.greedy or task.temperature == 0)
    config = task.applied_to(target.config, greedy)
    # Workers on other nodes also need a suite file's folder, which may contain rewards and
    # environments.
    if suite.folder is not None and suite.folder not in config.run.search_path:
        paths = [*config.run.search_path, suite.folder]
        config = replace(config, run=replace(config.run, search_path=paths))
    config = configuration.resolve(config)
    if task.category is not None:
        _check_category(resolve_env(config.env), task.category)
    return EvaluationJob(
        policy=policy,
        plan=policy.plan(config),
        greedy=greedy,
        samples=task.samples,
        category=task.category,
        suite=suite.name,
        task=task.name,
    )


def _check_category(env: ResolvedEnv, category: str) -> None:
    """Check that a data set has the category column, by reading only its first rows."""
    infos = [one.info for one in islice(env.first_observations(), _ROWS_SEARCHED)]
    if infos and all(category_of(info, category) is None for info in infos):
        known = infos[0].get(ROW) or infos[0]
        hint = known_names(category, known, label="There are")
        raise ConfigError(f"category={category}: no row has this column{hint}")


def _settings(played: PlayTask, task: SuiteTask) -> str:
    """Return a key of all settings that must be equal for results to be comparable."""
    env = played.train.settings
    # Other metrics come from the environment and do not depend on rewards.
    by_reward = task.metric is None or task.metric.startswith("reward")
    key = {
        "env": env.id,
        "kwargs": env.kwargs,
        "max_turns": env.max_turns,
        "first_seed": played.eval.first_seed,
        "rewards": [asdict(reward) for reward in played.rewards] if by_reward else [],
    }
    return json.dumps(key, sort_keys=True, default=str)


def _stamps(jobs: Sequence[_TaskJob]) -> dict[str, str]:
    """Identify the weights of each model by the names, sizes and times of their files."""
    stamps: dict[str, str] = {}
    for one in jobs:
        plan, policy = one.job.plan, one.job.policy
        if one.model in stamps or not policy.needs_model:
            stamps.setdefault(one.model, "")
            continue
        folders = [local_folder(plan.settings.model)]
        folders += [policy.checkpoint] if policy.checkpoint else []
        # Use size and modification time, because hashing a 7B model's weights would take minutes.
        files = sorted(file for folder in folders for file in folder.glob("*") if file.is_file())
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        settings = plan.settings.model, plan.settings.seed, stats
        stamps[one.model] = hashlib.sha256(str(settings).encode()).hexdigest()[:16]
    return stamps


def _play_unfinished(folder: Path, jobs: Sequence[_TaskJob]) -> list[TaskResult]:
    """Play unfinished tasks, one policy after another, and write all results."""
    with lock_folder(folder):
        results = {one.run: _finished(folder / one.run) for one in jobs}
        if done := sum(found is not None for found in results.values()):
            log.warning("%s: %d of %d tasks were already finished", folder, done, len(jobs))
        by_model: dict[str, list[_TaskJob]] = {}
        for one in jobs:
            if results[one.run] is None:
                by_model.setdefault(one.model, []).append(one)
        for left in by_model.values():
            _play_model(folder, left, results)
        found = [result for result in results.values() if result is not None]
        write_json(folder / RESULTS, tree_of(found))
    return found


def _play_model(
    folder: Path, left: Sequence[_TaskJob], results: dict[str, TaskResult | None]
) -> None:
    if not left[0].job.policy.target.is_model:
        left[0].job.warn_if_untrained()
    jobs = []
    for one in left:
        # An interrupted task leaves some episodes, but no result.
        shutil.rmtree(folder / one.run, ignore_errors=True)
        plan, settings = one.job.plan, one.job.plan.settings
        run = replace(settings.run, dir=str(folder), name=one.run)
        plan = replace(plan, settings=replace(settings, run=run))
        jobs.append(replace(one.job, plan=plan))

    def ended(number: int, found: Evaluation) -> None:
        one = left[number]
        result = result_of(
            one.task, found, model=one.model, suite=one.job.suite or "", settings=one.settings,
            run=one.run,
        )  # fmt: skip
        write_json(folder / one.run / RESULT, result.to_json())
        results[one.run] = result

    play_evaluations(jobs, ended)


def _finished(run: Path) -> TaskResult | None:
    """Return the result of a finished task; None if it is missing or unreadable."""
    try:
        return TaskResult.from_json(load_json(run / RESULT))
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _name_of(suite: str) -> str:
    """Return a suite's name in reports: a file's name without its folder."""
    return Path(suite).stem if SUITE.is_yaml(suite) else suite.rpartition("/")[2]


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
