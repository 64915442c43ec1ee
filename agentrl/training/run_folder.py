"""A run's folder: what is in it, and how its state survives any end."""

import itertools
import json
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from agentrl import config as configuration
from agentrl.config import Config
from agentrl.data.prompt_templates import find_template
from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.training.monitoring.loggers import read_metrics


@dataclass(slots=True, kw_only=True)
class State:
    """What a resumed run needs to know, beside the learner's own state."""

    step: int = 0
    """The last finished training step."""
    warm: bool = False
    """Whether the warm start is done (or there is none)."""
    results: dict[str, Any] = field(default_factory=dict)
    """What stands in `summary.json` so far."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time by stage."""
    void: dict[str, int] = field(default_factory=dict)
    """Void episodes of the whole run by cause."""
    best: float | None = None
    """The best evaluation during training."""
    kl_coefficient: float | None = None
    """Of the divergence, where it is adapted."""


def _fresh(parent: Path, name: str) -> Path:
    """A new folder with the time in its name; numbered where another job was quicker."""
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
    def create(cls, config: Config, name: str) -> "RunFolder":
        """A new folder below `run.dir`, with the configuration in it.

        Raises:
            ConfigError: it exists already, or cannot be made.
        """
        path = Path(config.run.dir)
        try:
            if config.run.name is None:
                path = _fresh(path, name)
            else:
                path /= config.run.name
                path.mkdir(parents=True)
        except FileExistsError:
            raise ConfigError(
                f"{path} exists: continue it with --resume {path}, or choose another run.name"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"run.dir={config.run.dir}: cannot be written: {error}") from error
        folder = cls(path)
        folder.save_config(folder.with_own_prompt(config))
        return folder

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """The folder of an earlier run.

        Raises:
            ConfigError: there is none, or its configuration is not whole.
        """
        if not path.is_dir():
            raise ConfigError(f"{path}: no such run; it should be a folder such as runs/NAME")
        file = path / "config.yaml"
        if not file.is_file():
            raise ConfigError(f"{path}: is no run (it has no config.yaml)")
        try:
            tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}") from error
        # A run keeps the whole tree: defaults in place of what is lost would be another job.
        lost = [f.name for f in fields(Config) if not isinstance(tree, dict) or f.name not in tree]
        if lost:
            raise ConfigError(
                f"{file}: is not whole, it has no {', '.join(lost)}. Bring back the file, or "
                "train anew."
            )
        return cls(path)

    @property
    def start(self) -> Path:
        """The model's folder as the run began."""
        return self.path / "start"

    @property
    def model(self) -> Path:
        """The final model, an ordinary Hugging Face folder."""
        return self.path / "model"

    def with_own_prompt(self, config: Config) -> Config:
        """The same configuration with a copy of its prompt template, which then stays as it is."""
        if config.env.prompt is None:
            return config
        shutil.copy(find_template(config.env.prompt), self.path / "prompt.jinja")
        own = str(self.path.absolute() / "prompt.jinja")
        return replace(config, env=replace(config.env, prompt=own))

    def save_config(self, config: Config) -> None:
        """Keep the whole tree, as it is used from now on."""
        write_durably(self.path / "config.yaml", configuration.to_yaml(config))

    @property
    def has_begun(self) -> bool:
        """Whether an earlier process has finished a stage of this run."""
        return (self.path / "state.json").is_file()

    def save_state(self, state: State) -> None:
        """Keep the state, atomically."""
        write_durably(self.path / "state.json", json.dumps(asdict(state), indent=1))

    def load_state(self) -> State:
        """The state as it was last kept; a fresh one if the run died before.

        Raises:
            ConfigError: the file is broken, or of another version.
        """
        file = self.path / "state.json"
        if not file.is_file():
            return State()
        try:
            state = State(**json.loads(file.read_text()))
            state.step, state.results = int(state.step), dict(state.results)
            state.seconds = {stage: float(spent) for stage, spent in state.seconds.items()}
            state.void = {cause: int(count) for cause, count in state.void.items()}
        except (OSError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{file}: cannot be read as the state of a run: {error}. Bring back the file, or "
                "train anew."
            ) from error
        return state

    def add_evaluation(self, record: dict[str, Any]) -> None:
        """Keep one evaluation with all its seeds, in place of one of the same name and step."""
        key = record["name"], record["step"]
        kept = [entry for entry in self._evaluations() if (entry["name"], entry["step"]) != key]
        self._write_evaluations([*kept, record])

    def rewind(self, step: int) -> None:
        """Drop the evaluations of later steps: a run that goes on after this one repeats them."""
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
