"""Create a run's folder, and read and write its job's files."""

import json
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from agentrl.config import Config, RunConfig, read_yaml, to_yaml
from agentrl.config.loading import RESTORE, RUN_PROMPT
from agentrl.data.prompt_templates import find_template
from agentrl.errors import ConfigError
from agentrl.files import write_durably, write_json
from agentrl.runs.file_reading import as_object, load_json, read_object, read_text
from agentrl.runs.job_failure import JOB_LOG
from agentrl.runs.jsonl import read_lines
from agentrl.runs.metrics_file import METRICS_FILE
from agentrl.runs.resume_state import ResumeState
from agentrl.text.name_suggestions import did_you_mean

log = logging.getLogger(__name__)

CONFIG_FILE = "config.yaml"
COMMAND_FILE = "command"
STATE_FILE = "state.json"
SUMMARY_FILE = "summary.json"
EVALUATIONS_FILE = "evaluations.jsonl"
_EVAL = "agentrl eval"
PLAY_COMMAND = "agentrl play"
"""Command stored with recorded games, to distinguish them from training runs."""
TIME_SUFFIX = r"-[0-9]{4}-[0-9]{6}(-[0-9]+)?"
"""Pattern of the time at the end of a generated run name."""
MODEL_STEP = "model_step"
"""Key of a run's summary for the exported model's step, if it is not the last step."""
SAVING = "saving"
"""Name in a summary's times for saving checkpoints and exporting the model."""


def known_runs() -> list[str]:
    """Return the paths of runs in the folder `runs`, such as `runs/NAME`."""
    return [str(file.parent) for file in sorted(Path("runs").glob(f"*/{CONFIG_FILE}"))]


def missing_run(path: Path | str) -> ConfigError:
    """Return the error for a run folder that does not exist."""
    hint = did_you_mean(str(path), known_runs()) or "; expected a folder such as runs/NAME"
    return ConfigError(f"{path}: no such run{hint}; agentrl runs lists all runs")


def _already_exists(path: Path) -> ConfigError:
    folder = RunFolder(path)
    if (plays := folder.plays) is not None:
        return ConfigError(
            f"{path} already exists and is a recording of {plays}; choose another run.name"
        )
    command = folder.command or "agentrl train"
    for file, group_command in (("pipeline.yaml", "agentrl pipeline"), ("suite.json", _EVAL)):
        if (path / file).is_file():
            command = group_command
    return ConfigError(
        f"{path} already exists; resume it with {command} --resume {shlex.quote(str(path))}, or "
        "choose another run.name"
    )


def _is_writable(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


def runs_of(config: RunConfig, name: str) -> list[Path]:
    """Return the folders of all runs created by `RunFolder.create` with these arguments."""
    with_time = re.escape(name) + TIME_SUFFIX
    own = re.compile(with_time if config.name is None else re.escape(config.name))
    folders = (file.parent for file in Path(config.dir).glob("*/config.yaml"))
    return [folder for folder in folders if own.fullmatch(folder.name)]


def _fresh(parent: Path, name: str) -> Path:
    """Create a folder with the time in its name, numbered if that name was just taken."""
    stem = f"{name}-{time.strftime('%m%d-%H%M%S')}"
    path, number = parent / stem, 1
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
            path = parent / f"{stem}-{number}"


class RunFolder:
    """Folder of one run.

    It contains `config.yaml`, `state.json`, `metrics.jsonl`, `evaluations.jsonl`, `summary.json`,
    `episodes/`, `frames/`, `checkpoints/`, `start/` and `model/`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: RunConfig, name: str) -> "RunFolder":
        """Create a folder below `run.dir`; `save_config` makes it a run.

        Args:
            config: the section `run`, which defines where runs are stored.
            name: the first part of the folder's name if `run.name` is None.

        Raises:
            ConfigError: the folder already exists, or cannot be created.
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
            ConfigError: the folder already exists, or `run.dir` is not a writable folder.
        """
        path = Path(config.dir)
        if config.name is not None and (path / config.name).exists():
            raise _already_exists(path / config.name)
        # Missing folders are created later, so the nearest existing folder must be writable.
        path = path.absolute()
        while not path.exists():
            path = path.parent
        if not _is_writable(path):
            raise ConfigError(f"run.dir={config.dir}: {path} is not a writable folder")

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """Return the folder of an earlier run.

        Raises:
            ConfigError: the folder is not a run, or its configuration is incomplete.
        """
        if not path.is_dir():
            raise missing_run(path)
        file = path / CONFIG_FILE
        if not file.is_file():
            raise ConfigError(f"{path} is not a run: it has no config.yaml")
        # A run stores every section. Filling in a missing one with defaults would change the job.
        stored = cls(path).load_config()
        lost = [one.name for one in fields(Config) if one.name not in stored]
        if lost:
            raise ConfigError(f"{file} is incomplete: missing {', '.join(lost)}. {RESTORE}.")
        return cls(path)

    def check_writable(self) -> None:
        """Check that a run can be resumed in its folder.

        Raises:
            ConfigError: the folder or a folder in it is not writable.
        """
        for path in (self.path, *filter(Path.is_dir, self.path.iterdir())):
            if not _is_writable(path):
                raise ConfigError(
                    f"--resume {self.path}: {path} is not a writable folder; make it writable for "
                    "this user, or resume a copy of the run"
                )

    def remove_if_empty(self) -> None:
        """Remove the folder of a job that failed before it recorded, logged or saved anything."""
        kept = ("episodes", "checkpoints", "logs", "model")
        files = {file for name in kept for file in (self.path / name).rglob("*") if file.is_file()}
        # The job's log contains only the error, which was also printed.
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
        """The command that started the run; None in evaluations."""
        text = read_text(self.path / COMMAND_FILE)
        return None if text is None else text.strip()

    @property
    def plays(self) -> str | None:
        """The command if it is `agentrl eval` or `agentrl play`, whose runs cannot be resumed."""
        if (command := self.command) is not None:
            return command if command == PLAY_COMMAND else None
        return _EVAL if "policy" in self.read_summary() else None

    def check_trains(self) -> None:
        """Check that the run was started by a command that trains.

        Raises:
            ConfigError: the run is a recording of `agentrl eval` or `agentrl play`.
        """
        if (plays := self.plays) is not None:
            raise ConfigError(
                f"--resume {self.path}: this is a recording of {plays}, not a training run, and "
                "cannot be resumed"
            )

    def save_command(self, command: str) -> None:
        """Write the command that starts and resumes the run."""
        write_durably(self.path / COMMAND_FILE, f"{command}\n")

    @property
    def start(self) -> Path:
        """Folder of the model that the run started from."""
        return self.path / "start"

    @property
    def teacher(self) -> Path:
        """Folder of the teacher's model, exported from a checkpoint (`algorithm.teacher`)."""
        return self.path / "teacher"

    @property
    def model(self) -> Path:
        """Folder of the final model in the Hugging Face format."""
        return self.path / "model"

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Write the whole configuration to `config.yaml`, and copy its prompt template."""
        if (prompt := config["env"]["prompt"]) is not None:
            template, own = find_template(prompt), self.path.absolute() / RUN_PROMPT
            if not own.exists() or not own.samefile(template):
                shutil.copy(template, own)
            config = {**config, "env": {**config["env"], "prompt": str(own)}}
        write_durably(self.path / CONFIG_FILE, to_yaml(config))

    def load_config(self) -> dict[str, Any]:
        """Return the settings in `config.yaml` by section, as they were written.

        Raises:
            ConfigError: the file cannot be read.
        """
        return as_object(read_yaml(self.path / CONFIG_FILE, RESTORE))

    def read_config(self) -> dict[str, Any]:
        """Return the settings in `config.yaml`; empty if missing or damaged."""
        with suppress(ConfigError):
            if (self.path / CONFIG_FILE).is_file():
                return self.load_config()
        return {}

    @property
    def has_begun(self) -> bool:
        """Whether this run has finished a stage or logged a step."""
        logged = self.path / METRICS_FILE
        is_logged = logged.is_file() and logged.stat().st_size > 0
        return is_logged or (self.path / STATE_FILE).is_file()

    def save_state(self, state: ResumeState) -> None:
        """Write the state to `state.json`, atomically."""
        write_json(self.path / STATE_FILE, asdict(state))

    def load_state(self) -> ResumeState:
        """Return the last saved state, or a new state if none was saved yet.

        Raises:
            ConfigError: the file is damaged, or belongs to a different version.
        """
        file = self.path / STATE_FILE
        if not file.is_file():
            return ResumeState()
        try:
            return ResumeState.from_json(load_json(file))
        except (OSError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{file}: cannot be read as the state of a run: {error}. {RESTORE}."
            ) from error

    def read_state(self) -> dict[str, Any]:
        """Return the object in `state.json`; empty if missing or damaged."""
        return read_object(self.path / STATE_FILE)

    def add_evaluation(self, record: dict[str, Any]) -> None:
        """Append an evaluation with its results per seed, replacing any with its name and step."""
        key = record["name"], record["step"]
        kept = [entry for entry in self.evaluations() if (entry["name"], entry["step"]) != key]
        self._write_evaluations([*kept, record])

    def has_evaluation(self, name: str, step: int) -> bool:
        """Return whether an evaluation with this name is recorded for a step."""
        return any((e["name"], e["step"]) == (name, step) for e in self.evaluations())

    def rewind(self, step: int) -> None:
        """Drop evaluations after this step, as a resumed run repeats them."""
        self._write_evaluations([entry for entry in self.evaluations() if entry["step"] <= step])

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the recorded evaluations, each with its `name` and `step`."""
        return read_lines(self.path / EVALUATIONS_FILE, "name")

    def _write_evaluations(self, records: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_durably(self.path / EVALUATIONS_FILE, lines)

    def write_summary(self, results: dict[str, Any]) -> None:
        """Write `summary.json`."""
        write_json(self.path / SUMMARY_FILE, results)

    def load_summary(self) -> dict[str, Any]:
        """Return the results in `summary.json`; empty until the job has written the file.

        Raises:
            ConfigError: the file cannot be read.
        """
        file = self.path / SUMMARY_FILE
        try:
            return as_object(load_json(file)) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read: {error}") from error

    def read_summary(self) -> dict[str, Any]:
        """Return the results in `summary.json`; empty if missing or damaged."""
        return read_object(self.path / SUMMARY_FILE)

    def final_summary(self) -> dict[str, Any] | None:
        """Return the summary if the run has exported its model, else None."""
        file = self.path / SUMMARY_FILE
        if not (file.is_file() and self.model.is_dir()):
            return None
        if not (summary := self.read_summary()):
            log.warning("%s: cannot be read; it will be rewritten", file)
        return summary or None
