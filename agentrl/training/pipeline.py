"""Runs jobs in sequence, each on the previous job's model: `agentrl pipeline`."""

import json
import logging
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

import agentrl
from agentrl import config as configuration
from agentrl import replay
from agentrl.config import Config
from agentrl.errors import ConfigError, with_short_mistakes
from agentrl.files import StrPath, lock_folder, write_durably, write_json
from agentrl.replay import preference_pairs, tables_export
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import history_of, resolve_env
from agentrl.runs.run_folder import RunFolder
from agentrl.text.formatting import quoted
from agentrl.text.name_suggestions import did_you_mean, known_names
from agentrl.training.job import Job, run_job
from agentrl.training.learner.learner_settings import LearnerSettings
from agentrl.training.offline.finetuning_methods import (
    PreferenceTraining,
    RewardModelTraining,
    SupervisedFinetuning,
)
from agentrl.training.pipeline_results import stage_row
from agentrl.training.plan.job_plan import check_learner
from agentrl.training.trainer.train import Reinforcement

log = logging.getLogger(__name__)

JOBS: dict[str, type[Job[Any]]] = {
    "train": Reinforcement,
    "sft": SupervisedFinetuning,
    "dpo": PreferenceTraining,
    "train-reward-model": RewardModelTraining,
}
"""Kinds of jobs by the name of the command that runs them on their own."""
_SECTIONS = {"sft": "sft", "dpo": "dpo", "train-reward-model": "reward_model"}
_SETTINGS = tuple(section.name for section in fields(Config))
_OWN = ("name", "job", "config", "data")
"""Keys of a stage that are not settings of the stage's job."""
_TYPES = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_FOR_SFT: dict[str, type] = {"from": str, "success": bool, "min_reward": float}
_FOR_PAIRS: dict[str, type] = {"from": str, "by": str, "min_gap": float, "per_group": int}
"""Keys of `data`, and their types."""
_PACKAGED = Path(agentrl.__file__).parent / "configs" / "pipelines"
_FILE = "pipeline.yaml"
_SUMMARY = "pipeline.json"
_EARLIER = "${stage:"


@dataclass(slots=True, kw_only=True, frozen=True)
class StageData:
    """Data of a stage, made from the recorded episodes of an earlier stage."""

    source: str
    """Name of the earlier stage."""
    success: bool | None = None
    """Filter for fine-tuning data: only successful (true) or only unsuccessful (false) episodes."""
    min_reward: float | None = None
    """Filter for fine-tuning data: the minimum reward."""
    pairs: preference_pairs.PairSettings = field(default_factory=preference_pairs.PairSettings)
    """Settings of pairs for preference training and reward models."""


@dataclass(slots=True, kw_only=True, frozen=True)
class Stage:
    """One job of a pipeline."""

    name: str
    job: str
    base: str | None
    """Configuration that the settings are added to, if any."""
    settings: Mapping[str, Any]
    data: StageData | None

    @property
    def follows(self) -> list[str]:
        """The earlier stages whose results this stage's settings refer to."""
        text = _as_text(self.settings)
        named = [piece.partition("}")[0] for piece in text.split(_EARLIER)[1:]]
        return named if self.data is None else [*named, self.data.source]


class StagedRun:
    """The stages of a pipeline file, each with its own run.

    Args:
        tree: the file's content: `stages`, and settings that all stages share.
        overrides: `key=value` for all stages, or `STAGE.key=value` for one stage.
        where: path of the file, for messages; modules and files are looked up in its folder.

    Raises:
        ConfigError: a stage is invalid.
    """

    def __init__(self, tree: Any, overrides: Sequence[str], where: Path) -> None:
        if not isinstance(tree, dict) or not isinstance(tree.get("stages"), list):
            raise ConfigError(f"{where}: must have a list of stages")
        self._tree, self._where, self._overrides = tree, where, overrides
        self._shared = {key: value for key, value in tree.items() if key != "stages"}
        # Only a stage's own settings may refer to results, because only a stage has earlier stages.
        for given in (self._shared, *overrides):
            if _EARLIER in _as_text(given):
                raise ConfigError(
                    f"{where}: {_EARLIER}NAME}} can only be used in the settings of a single stage "
                    "in the file, not in settings for all stages or on the command line; move it "
                    "there"
                )
        self.stages = [self._stage(entry) for entry in tree["stages"]]
        names = [stage.name for stage in self.stages]
        if not names or len({*names}) < len(names):
            raise ConfigError(f"{where}: stages must have different names, such as sft and rl")
        for first in (text.partition(".")[0].partition("=")[0] for text in overrides):
            if first not in (*names, *_SETTINGS):
                hint = did_you_mean(first, [*names, *_SETTINGS])
                raise ConfigError(
                    f"{first}: is neither a stage nor a section of the configuration{hint}. "
                    f"Stages: {', '.join(names)}"
                )
        for number, stage in enumerate(self.stages):
            for name in stage.follows:
                if name not in names[:number]:
                    raise ConfigError(
                        f"{where}: stage {stage.name} uses the result of {name!r}, which is not an "
                        f"earlier stage{did_you_mean(name, names[:number])}"
                    )
            source = None if stage.data is None else names.index(stage.data.source)
            if source is not None and self.stages[source].job != "train":
                raise ConfigError(
                    f"{where}: stage {stage.name}: data.from={names[source]}: this stage does not "
                    "record episodes; use a stage with job: train"
                )

    def _stage(self, entry: Any) -> Stage:
        where = f"{self._where}: stages"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ConfigError(f"{where}: each stage must be a mapping with a name and settings")
        name, job, base = entry["name"], entry.get("job", "train"), entry.get("config")
        if not re.fullmatch(r"[\w-]{1,64}", name):
            raise ConfigError(
                f"{where}: name={quoted(name)}: must consist of at most 64 letters, digits, - and _"
            )
        if name in _SETTINGS:
            raise ConfigError(
                f"{where}: name={name}: is also the name of a section of the configuration; choose "
                "a different name"
            )
        if not isinstance(base, str | None):
            raise ConfigError(
                f"{where}: {name}: config={base!r}: must be a file or the name of a packaged "
                "configuration"
            )
        if not isinstance(job, str) or job not in JOBS:
            hint = known_names(str(job), JOBS)
            raise ConfigError(f"{where}: {name}: job={job!r}: no such job{hint}")
        data = self._data(name, entry.get("data"))
        if data is not None and job not in _SECTIONS:
            raise ConfigError(
                f"{where}: {name}: data: only jobs that train on data sets accept it; remove it"
            )
        # Prefer a file in the pipeline file's folder, regardless of the current folder.
        if base is not None and (file := self._where.parent / base).is_file():
            base = str(file)
        return Stage(
            name=name,
            job=job,
            base=base,
            settings={key: value for key, value in entry.items() if key not in _OWN},
            data=None if data is None else _stage_data(f"{where}: {name}: data", data, job),
        )

    def _data(self, name: str, data: Any) -> Any:
        """Return a stage's `data` with overrides applied; null removes a key."""
        if not isinstance(data, dict | None):
            return data
        for text in self._overrides:
            if text.startswith(own := f"{name}.data."):
                given = (data or {}) | configuration.arguments([text.removeprefix(own)])
                data = {key: value for key, value in given.items() if value is not None}
        return data

    @property
    def run(self) -> Config:
        """Section `run` of the first stage, which determines where the pipeline is stored."""
        return self._config(self.stages[0], {})

    def _config(self, stage: Stage, given: Mapping[str, Any]) -> Config:
        """Return a stage's configuration, with `given` in place of the shared settings."""
        names = {other.name for other in self.stages}
        # The previous stage's model overrides settings for all stages.
        made = ("model.path=",) if "model" in given else ()
        own = []
        for text in self._overrides:
            first, dot, rest = text.partition(".")
            if first == stage.name and dot:
                own += [] if rest.startswith("data.") else [rest]
            elif first not in names and not text.startswith(made):
                own.append(text)
        # A stage's folder is inside the pipeline's folder.
        if "run" in given:
            own = [text for text in own if not text.startswith(("run.name=", "run.dir="))]
        trees = [self._shared, given, stage.settings]
        return configuration.load_merged(stage.base, trees, own, self._where)

    def check(self, started: Collection[str] = ()) -> dict[str, Config]:
        """Check each stage in the same way as its command, as far as its inputs already exist.

        Returns:
            The configuration of each stage that was checked.

        Raises:
            ConfigError: something is missing or invalid.
        """
        checked = {}
        for stage in self.stages:
            if stage.name in started:
                continue
            made = {"run": {"name": None}}
            config = self._config(replace(stage, settings=_without_results(stage)), made)
            checked[stage.name] = config
            try:
                # A stage that needs results of other stages is checked as far as possible without
                # them.
                if not stage.follows:
                    JOBS[stage.job](config).plan(restored=False)
                    continue
                if _EARLIER not in _as_text(stage.settings.get("model")):
                    check_learner(LearnerSettings.of(config), config.logging)
                    config.validate_for_training()
                if stage.job == "train":
                    open_translator(resolve_env(config.env))
            except ConfigError as error:
                raise ConfigError(f"{self._where}: stage {stage.name}: {error}") from error
        return checked

    def continued(self, folder: Path, overrides: Sequence[str]) -> "StagedRun":
        """Return this pipeline with changed and checked settings of stages that have not started.

        Raises:
            ConfigError: an override is for a started stage or for all stages, or a setting is
                invalid.
        """
        started = {n for n, run in self.runs(folder).items() if (run / "config.yaml").is_file()}
        for text in overrides:
            name = text.partition("=")[0].partition(".")[0]
            if name not in self.runs(folder) or name in started:
                later = [stage.name for stage in self.stages if stage.name not in started]
                raise ConfigError(
                    f"{text!r}: with --resume, only settings of stages that have not started can "
                    f"be changed (STAGE.key=value): {', '.join(later) or 'no such stages'}"
                )
        found = StagedRun(self._tree, [*self._overrides, *overrides], self._where)
        found.check(started)
        return found

    def store(self, folder: Path) -> None:
        """Write the file from which `--resume` continues."""
        kept = {
            "where": str(self._where), "overrides": [*self._overrides], "file": self._tree
        }  # fmt: skip
        write_durably(folder / _FILE, yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))

    def runs(self, folder: Path) -> dict[str, Path]:
        """Return the folder of each stage's run, by stage name."""
        return {
            stage.name: folder / f"{number}-{stage.name}"
            for number, stage in enumerate(self.stages, 1)
        }

    def run_stages(
        self, folder: Path, begun: Callable[[Stage, Path], None]
    ) -> list[dict[str, Any]]:
        """Run the unfinished stages.

        Returns:
            A row per stage; see `report`.
        """
        runs, model = self.runs(folder), None
        for stage in self.stages:
            run = runs[stage.name]
            if not (run / "config.yaml").is_file():
                # Remove the folder of a process that was killed while creating it.
                shutil.rmtree(run, ignore_errors=True)
            if not _is_finished(JOBS[stage.job], run):
                begun(stage, run)
                self._run(stage, run, runs, model)
                write_json(folder / _SUMMARY, self.report(folder))
            # A reward model is not a policy, so the next stage continues with the model before it.
            if stage.job != "train-reward-model":
                model = run / "model"
        return self.report(folder)

    def _run(self, stage: Stage, run: Path, runs: Mapping[str, Path], model: Path | None) -> None:
        job = JOBS[stage.job]
        if (run / "config.yaml").is_file():
            run_job(job, "", (), run, lambda _: None, is_stage=True)
            return
        given: dict[str, Any] = {"run": {"dir": str(run.parent), "name": run.name}}
        if model is not None:
            given["model"] = {"path": str(model)}
        if stage.data is not None:
            file = run.with_name(f"{run.name}-data.jsonl")
            try:
                _write_data(stage, replay.open(runs[stage.data.source]), file)
            except ConfigError as error:
                raise ConfigError(
                    f"stage {stage.name}: cannot make data from the episodes of "
                    f"{stage.data.source}: {error}"
                ) from error
            given[_SECTIONS[stage.job]] = {"train": {"data": str(file)}}
        settings = _with_results(stage.settings, runs)
        run_section = {**settings.get("run", {}), **given["run"]}
        config = self._config(replace(stage, settings={**settings, "run": run_section}), given)
        run_job(job, config, (), None, lambda _: None, is_stage=True)

    def report(self, folder: Path) -> list[dict[str, Any]]:
        """Return a row per finished stage; see `stage_row`."""
        runs = self.runs(folder)
        rows = [stage_row(stage.name, stage.job, runs[stage.name]) for stage in self.stages]
        return [row for row in rows if row is not None]


@with_short_mistakes
def run_pipeline(
    source: StrPath,
    *,
    overrides: Sequence[str] = (),
    resume: StrPath | None = None,
    begun: Callable[[Stage, Path], None] = lambda stage, run: None,
) -> Path:
    """Run the stages of a pipeline file in sequence, or continue a pipeline.

    Args:
        source: a YAML file with `stages`, or the name of a packaged pipeline.
        overrides: `key=value` for all stages, or `STAGE.key=value` for one stage; with `resume`,
            only for stages that have not started.
        resume: the folder of an earlier pipeline; finished stages are kept.
        begun: called with each stage that starts or continues, and its run.

    Returns:
        The folder of the pipeline, with a run for each stage.

    Raises:
        ConfigError: a stage is invalid; nothing has been started.
    """
    if resume is not None:
        folder = Path(resume).absolute()
        pipeline = stored_pipeline(folder)
    else:
        where = _found(source)
        pipeline = StagedRun(_read(where), overrides, where)
        pipeline.check()
        folder = RunFolder.create(pipeline.run.run, where.stem).path.absolute()
        pipeline.store(folder)
    with lock_folder(folder):
        if resume is not None and overrides:
            pipeline = pipeline.continued(folder, overrides)
            pipeline.store(folder)
        try:
            pipeline.run_stages(folder, begun)
        except BaseException:
            log.warning("stopped; resume with: agentrl pipeline --resume %s", folder)
            raise
    return folder


def check_pipeline(source: StrPath, overrides: Sequence[str] = ()) -> dict[str, Config]:
    """Check the stages of a file without running them; return their configurations by name.

    Raises:
        ConfigError: see `run_pipeline`.
    """
    where = _found(source)
    pipeline = StagedRun(_read(where), overrides, where)
    return pipeline.check()


def stored_pipeline(folder: Path) -> StagedRun:
    """Read a stored pipeline as it was started.

    Raises:
        ConfigError: the folder has no pipeline, or the pipeline's file is damaged.
    """
    if not (folder / _FILE).is_file():
        raise ConfigError(f"{folder}: no such pipeline; give its folder, such as runs/NAME")
    stored = _read(folder / _FILE)
    try:
        return StagedRun(stored["file"], [*stored["overrides"]], Path(stored["where"]))
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / _FILE}: is damaged: {error!r}. Restore it.") from error


def _as_text(tree: Any) -> str:
    return json.dumps(tree, default=str, ensure_ascii=False)


def _found(source: StrPath) -> Path:
    """Find a pipeline file by its path, or a packaged pipeline by its name."""
    packaged = _PACKAGED / f"{source}.yaml"
    is_name = Path(source).name == str(source) and not Path(source).exists()
    return packaged if is_name and packaged.is_file() else Path(source).absolute()


def _read(file: Path) -> Any:
    if not file.exists():
        known = sorted(path.stem for path in _PACKAGED.glob("*.yaml"))
        hint = known_names(file.stem, known, label="Pipelines by name")
        raise ConfigError(f"{file}: no such file{hint}")
    return configuration.read_yaml(file)


def _stage_data(where: str, data: Any, job: str) -> StageData:
    known = _FOR_SFT if job == "sft" else _FOR_PAIRS
    if not isinstance(data, dict) or not isinstance(data.get("from"), str):
        raise ConfigError(f"{where}: must refer to an earlier stage: {{from: STAGE}}")
    if other := next((key for key in data if key not in known), None):
        raise ConfigError(f"{where}.{other}: unknown key{known_names(str(other), known)}")
    for key, value in data.items():
        # An int is also a valid float, but a bool is neither.
        kinds = (float, int) if known[key] is float else (known[key],)
        if type(value) not in kinds:
            raise ConfigError(f"{where}.{key}={value!r}: must be {_TYPES[known[key]]}")
    settings = {key: value for key, value in data.items() if key != "from"}
    if job == "sft":
        return StageData(source=data["from"], **settings)
    pairs = preference_pairs.PairSettings(**settings)
    pairs.validate()
    return StageData(source=data["from"], pairs=pairs)


def _write_data(stage: Stage, run: replay.Run, file: Path) -> None:
    """Make a stage's data from an earlier stage's episodes, excluding evaluations."""
    data = stage.data
    assert data is not None
    history = history_of(configuration.load(run.path / "config.yaml").env)
    if stage.job == "sft":
        where = replay.Filter(success=data.success, min_reward=data.min_reward, held_out=False)
        tables_export.write(run, "conversations", file, where, history)
        return
    preference_pairs.write(run, file, replay.Filter(held_out=False), history, data.pairs)


def _is_finished(job: type[Job[Any]], run: Path) -> bool:
    if not (run / "config.yaml").is_file():
        return False
    summary = RunFolder(run).final_summary()
    if summary is None:
        return False
    return job(configuration.load(run / "config.yaml")).is_finished(summary)


def _with_results(settings: Any, runs: Mapping[str, Path]) -> Any:
    """Return settings with `${stage:NAME}` replaced by the folder of that stage's run."""
    if isinstance(settings, dict):
        return {key: _with_results(value, runs) for key, value in settings.items()}
    if isinstance(settings, list):
        return [_with_results(value, runs) for value in settings]
    if isinstance(settings, str):
        for name, run in runs.items():
            settings = settings.replace(f"{_EARLIER}{name}}}", str(run))
    return settings


def _without_results(stage: Stage) -> dict[str, Any]:
    """Return a stage's settings, with placeholders for the results of earlier stages."""
    settings = _with_results(dict(stage.settings), {name: Path("stage") for name in stage.follows})
    if stage.data is not None:
        section = _SECTIONS[stage.job]
        own = settings.get(section) or {}
        if not isinstance(own, dict) or not isinstance(own.get("train") or {}, dict):
            raise ConfigError(f"stage {stage.name}: {section}: must be a mapping of settings")
        settings[section] = {**own, "train": {"data": "data.jsonl", **(own.get("train") or {})}}
    found: dict[str, Any] = settings
    return found
