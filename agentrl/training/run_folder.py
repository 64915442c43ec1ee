"""The folder of a run: its files, the state that a resumed run continues from, and opening it."""

import itertools
import json
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from agentrl import config as configuration
from agentrl.config import Config, EnvConfig, RunConfig, missing_run
from agentrl.config.loading import RUN_PROMPT
from agentrl.data.prompt_templates import find_template
from agentrl.errors import ConfigError
from agentrl.files import StrPath, write_durably
from agentrl.training.monitoring.metrics_file import JOB_LOG, METRICS_FILE, read_metrics

log = logging.getLogger(__name__)

_COMMAND = "command"
_EVAL = "agentrl eval"
PLAY_COMMAND = "agentrl play"
"""Written by recordings of games, whose other files could be those of a training."""
_PLAIN_NAMES = {"", "config", "configs", "settings", "tmp", "train", "training"}
"""Names of files and folders that describe no job."""
_TIME_SUFFIX = r"-[0-9]{4}-[0-9]{6}(-[0-9]+)?"
"""Suffix of a derived run name."""
MODEL_STEP = "model_step"
"""Key of a run's summary: the step of the exported model, if it is not the last one."""
SAVING = "saving"
"""The stage of checkpoints and of the exported model, in the times of a summary."""


@dataclass(slots=True, kw_only=True)
class RunState:
    """State that a resumed run needs besides the learner's checkpoint."""

    step: int = 0
    """The last finished training step."""
    warm: bool = False
    """Whether the warm start is done, or not configured."""
    results: dict[str, Any] = field(default_factory=dict)
    """The results for `summary.json` so far."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time by stage."""
    void: dict[str, int] = field(default_factory=dict)
    """Number of void episodes of the whole run, by cause."""
    best: float | None = None
    """The best result of an evaluation during training: its mean reward, or its loss."""
    stale: int = 0
    """Evaluations since the best one (`sft.patience`)."""
    skipped: int = 0
    """Steps of training on a data set whose loss or gradient was not finite."""
    kl_coefficient: float | None = None
    """The adapted KL coefficient; None without `algorithm.kl.target`."""
    audit: list[list[int]] = field(default_factory=list)
    """Counts of the running audit of the reward; see `RunningAudit`."""
    restarts: list[dict[str, Any]] = field(default_factory=list)
    """Restarts after a failure, each with its `time` (seconds since 1970), the last finished
    `step`, the step that it was `resumed_from`, and the `error`."""
    sampler: dict[str, Any] = field(default_factory=dict)
    """State of the task sampler at the last checkpoint."""
    tasks_taken: dict[str, int] = field(default_factory=dict)
    """Groups that each environment gave a new task or row until then (`TaskPool.state`)."""
    files: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Versions of each file of the user's code, by its path: the last step before its first use,
    and its digest."""

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add to the time of a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the time of a block that succeeds to that of a stage."""
        started = time.perf_counter()
        yield
        self.add_seconds(stage, time.perf_counter() - started)

    def record_files(self, digests: Mapping[str, str]) -> list[str]:
        """Record the user's files as they are used from now on.

        Returns:
            those whose content has changed.
        """
        edited = []
        for file, digest in digests.items():
            versions = self.files.setdefault(file, [])
            if versions and versions[-1][1] != digest:
                edited.append(file)
            if not versions or file in edited:
                versions.append((self.step, digest))
        return edited


def _already_exists(path: Path) -> ConfigError:
    folder = RunFolder(path)
    if (plays := folder.plays) is not None:
        return ConfigError(f"{path} exists, a recording of {plays}: choose another run.name")
    command = folder.command or "agentrl train"
    for file, group_command in (("pipeline.yaml", "agentrl pipeline"), ("suite.json", _EVAL)):
        if (path / file).is_file():
            command = group_command
    return ConfigError(
        f"{path} exists: resume it with {command} --resume {shlex.quote(str(path))}, or choose "
        "another run.name"
    )


def _is_writable(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def job_name(source: Config | StrPath, config: Config) -> str:
    """The first part of the names of a job's runs.

    Args:
        source: a configuration, or its file or packaged name. A file with a name that says nothing,
            such as `config.yaml`, gives the name of its folder.
        config: the job, whose environment or data set names it where that says nothing, either.
    """
    if not isinstance(source, Config):
        path = Path(source)
        for name in (path.stem, path.absolute().parent.name):
            if name.lower() not in _PLAIN_NAMES:
                return re.sub(f"{_TIME_SUFFIX}$", "", name)
    id = config.only_learns_from or config.env.id
    name = re.sub(r"-v\d+$", "", re.split(r"[/:]", id)[-1])
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name)).lower() or "run"


def runs_of(config: RunConfig, name: str) -> list[Path]:
    """The folders of all runs that `RunFolder.create` has made with the same arguments."""
    with_time = re.escape(name) + _TIME_SUFFIX
    own = re.compile(with_time if config.name is None else re.escape(config.name))
    folders = (file.parent for file in Path(config.dir).glob("*/config.yaml"))
    return [folder for folder in folders if own.fullmatch(folder.name)]


def _fresh(parent: Path, name: str) -> Path:
    """A new folder with the time in its name; numbered if another job has just taken that name."""
    stem = f"{name}-{time.strftime('%m%d-%H%M%S')}"
    for number in itertools.count(1):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise AssertionError("there is always another number")


class RunFolder:
    """`config.yaml`, `state.json`, `metrics.jsonl`, `evaluations.jsonl`, `summary.json`,
    `episodes/`, `frames/`, `checkpoints/`, `start/` and `model/`.

    Args:
        path: the folder; it exists.
    """  # noqa: D205

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: RunConfig, name: str) -> "RunFolder":
        """Create a folder below `run.dir`; `save_config` makes it a run.

        Args:
            config: where runs are stored.
            name: the first part of the folder's name, if `run.name` is None.

        Raises:
            ConfigError: it exists already, or cannot be created.
        """
        path = Path(config.dir)
        try:
            if config.name is None:
                path = _fresh(path, name)
            else:
                path /= config.name
                path.mkdir(parents=True)
        except FileExistsError:
            raise _already_exists(path) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"run.dir={config.dir}: cannot create a run: {error}") from error
        return cls(path)

    @staticmethod
    def check_new(config: RunConfig) -> None:
        """Check, without creating anything, that a run's folder can be created.

        Raises:
            ConfigError: it exists already, or `run.dir` is not a writable folder.
        """
        path = Path(config.dir)
        if config.name is not None and (path / config.name).exists():
            raise _already_exists(path / config.name)
        path = path.absolute()
        while not path.exists():
            path = path.parent
        if not _is_writable(path):
            raise ConfigError(f"run.dir={config.dir}: {path} is not a writable folder")

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """The folder of an earlier run.

        Raises:
            ConfigError: it is not a run, or its configuration is incomplete.
        """
        if not path.is_dir():
            raise missing_run(path)
        file = path / "config.yaml"
        if not file.is_file():
            raise ConfigError(f"{path} is not a run: it has no config.yaml")
        try:
            tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            raise ConfigError(
                f"{configuration.unreadable(file, error)}. Restore the file, or start a new run."
            ) from error
        # A run stores every section: filling a missing one with defaults would change the job.
        stored = tree if isinstance(tree, dict) else {}
        lost = [one.name for one in fields(Config) if one.name not in stored]
        if lost:
            raise ConfigError(
                f"{file} is incomplete: missing {', '.join(lost)}. Restore the file, or start a "
                "new run."
            )
        return cls(path)

    def check_writable(self) -> None:
        """Check that a run can be resumed where it is.

        Raises:
            ConfigError: the folder, or one in it, is not writable.
        """
        for path in (self.path, *filter(Path.is_dir, self.path.iterdir())):
            if not _is_writable(path):
                raise ConfigError(
                    f"--resume {self.path}: {path} is not a writable folder; make it writable for "
                    "this user, or resume a copy of the run"
                )

    def remove_if_empty(self) -> None:
        """Remove the folder of a job that failed before it recorded, logged or kept anything."""
        kept = ("episodes", "checkpoints", "logs", "model")
        files = {file for name in kept for file in (self.path / name).rglob("*") if file.is_file()}
        files.discard(self.path / JOB_LOG)
        if not self.has_begun and not any(file.stat().st_size for file in files):
            shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def removed_if_empty(self) -> Iterator[None]:
        """Call `remove_if_empty` if the body fails."""
        try:
            yield
        except BaseException:
            self.remove_if_empty()
            raise

    @property
    def command(self) -> str | None:
        """Return the command that started the run; None in evaluations."""
        file = self.path / _COMMAND
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None

    @property
    def plays(self) -> str | None:
        """`agentrl eval` or `agentrl play` if it recorded the run, which then cannot be resumed."""
        if (command := self.command) is not None:
            return command if command == PLAY_COMMAND else None
        try:
            summary = json.loads((self.path / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return _EVAL if isinstance(summary, dict) and "policy" in summary else None

    def check_trains(self) -> None:
        """Check that the run is of a command that trains.

        Raises:
            ConfigError: it is a recording of `agentrl eval` or `agentrl play`.
        """
        if (plays := self.plays) is not None:
            raise ConfigError(
                f"--resume {self.path}: this is a recording of {plays}, not a training run, and "
                "cannot be resumed"
            )

    def save_command(self, command: str) -> None:
        """Write what starts and resumes the run."""
        write_durably(self.path / _COMMAND, f"{command}\n")

    @property
    def start(self) -> Path:
        """The folder of the model that the run started from."""
        return self.path / "start"

    @property
    def model(self) -> Path:
        """The final model, an ordinary Hugging Face folder."""
        return self.path / "model"

    def save_config(self, config: Config) -> None:
        """Write the whole configuration to `config.yaml`, with the run's own prompt template."""
        config = replace(config, env=self._with_own_prompt(config.env))
        write_durably(self.path / "config.yaml", configuration.to_yaml(config))

    def _with_own_prompt(self, environment: EnvConfig) -> EnvConfig:
        """Return the settings with a private copy of their prompt template."""
        if environment.prompt is None:
            return environment
        template, own = find_template(environment.prompt), self.path.absolute() / RUN_PROMPT
        if not own.exists() or not own.samefile(template):
            shutil.copy(template, own)
        return replace(environment, prompt=str(own))

    @property
    def has_begun(self) -> bool:
        """Whether a stage of this run has been finished, or a step been logged."""
        logged = self.path / METRICS_FILE
        is_logged = logged.is_file() and logged.stat().st_size > 0
        return is_logged or (self.path / "state.json").is_file()

    def save_state(self, state: RunState) -> None:
        """Write the state to `state.json`, atomically."""
        write_durably(self.path / "state.json", json.dumps(asdict(state), indent=1))

    def load_state(self) -> RunState:
        """The state as last saved; a new one if nothing was saved yet.

        Raises:
            ConfigError: the file is damaged, or of another version.
        """
        file = self.path / "state.json"
        if not file.is_file():
            return RunState()
        try:
            state = RunState(**json.loads(file.read_text()))
            state.step, state.results = int(state.step), dict(state.results)
            state.seconds = {stage: float(spent) for stage, spent in state.seconds.items()}
            state.files = {
                file: [(int(step), str(digest)) for step, digest in versions]
                for file, versions in state.files.items()
            }
            state.restarts = [dict(restart) for restart in state.restarts]
            state.audit = [[int(count) for count in one] for one in state.audit]
            state.void = {cause: int(count) for cause, count in state.void.items()}
        except (OSError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{file}: cannot be read as the state of a run: {error}. Restore the file, or "
                "start a new run."
            ) from error
        return state

    def add_evaluation(self, record: dict[str, Any]) -> None:
        """Append an evaluation with its results per seed; replace one of the same name and step."""
        key = record["name"], record["step"]
        kept = [entry for entry in self._evaluations() if (entry["name"], entry["step"]) != key]
        self._write_evaluations([*kept, record])

    def has_evaluation(self, name: str, step: int) -> bool:
        """Whether an evaluation of this name is recorded for a step."""
        return any((e["name"], e["step"]) == (name, step) for e in self._evaluations())

    def rewind(self, step: int) -> None:
        """Drop the evaluations after this step, which a resumed run repeats."""
        self._write_evaluations([entry for entry in self._evaluations() if entry["step"] <= step])

    def _evaluations(self) -> list[dict[str, Any]]:
        path = self.path / "evaluations.jsonl"
        return read_metrics(path, label="name") if path.is_file() else []

    def _write_evaluations(self, records: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_durably(self.path / "evaluations.jsonl", lines)

    def write_summary(self, results: dict[str, Any]) -> None:
        """Write `summary.json`."""
        write_durably(self.path / "summary.json", json.dumps(results, indent=2) + "\n")


def open_target(target: Config | StrPath, overrides: Sequence[str]) -> tuple[Config, Path | None]:
    """The target's configuration, and the run's folder if the target is one; paths are absolute."""
    if isinstance(target, Config) or not Path(target).is_dir():
        return configuration.with_absolute_paths(configuration.resolve(target, overrides)), None
    run = Path(target).absolute()
    RunFolder.existing(run)
    config = configuration.load(run / "config.yaml", overrides)
    return configuration.with_absolute_paths(config), run


def check_names_env(config: Config, target: Config | StrPath, overrides: Sequence[str]) -> None:
    """Check that a job that trained on a data set is not played on the default environment.

    Raises:
        ConfigError: neither its configuration nor an override names an environment.
    """
    is_given = any(override.startswith("env.id=") for override in overrides)
    if config.only_learns_from is not None and not is_given:
        name = "the configuration" if isinstance(target, Config) else target
        run = name if Path(name).is_dir() else "RUN"
        raise ConfigError(
            f"{name} learns from a data set (section {config.only_learns_from}) and names "
            "no environment to play; add env.id=..., name a configuration and the run's model "
            f"(CONFIG model.path={run}/model), or choose a suite (agentrl eval --suite)"
        )


def overridden_name(name: str | None, overrides: Sequence[str]) -> str | None:
    """`run.name` if an override sets it: the name in a run's stored configuration is taken."""
    is_set = any(override.partition("=")[0].strip() == "run.name" for override in overrides)
    return name if is_set else None


def read_summary(folder: RunFolder) -> dict[str, Any] | None:
    """The summary of a run that has exported its model; None if there is none."""
    file = folder.path / "summary.json"
    if not (file.is_file() and folder.model.is_dir()):
        return None
    try:
        summary = json.loads(file.read_text())
    except (OSError, ValueError):
        summary = None
    if not isinstance(summary, dict):
        log.warning("%s: cannot be read; it will be rewritten", file)
        return None
    return summary
