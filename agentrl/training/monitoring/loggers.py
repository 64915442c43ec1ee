"""Destinations of a job's metrics, one class each. Third-party libraries are imported on use."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Protocol, TextIO

from agentrl.errors import ConfigError
from agentrl.files import write_durably
from agentrl.text import did_you_mean
from agentrl.training.monitoring.console import ConsoleDisplay
from agentrl.training.monitoring.progress import TRAINING, PlannedWork

METRICS_FILE = "metrics.jsonl"
EVALUATION = "evaluation"
_COUNTED = (TRAINING, EVALUATION)


class Logger(Protocol):
    """One destination of metrics."""

    def stage(self, name: str) -> None:
        """A new stage of the job begins, such as `warm start` or `reinforcement`."""

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step of one stage."""

    def progress(self, done: float, total: float, note: str) -> None:
        """Progress of the current stage or step: `done` of `total`."""

    def rewind(self, step: int) -> None:
        """A resumed job repeats what came after this step."""

    def finish(self, results: Mapping[str, Any]) -> None:
        """The job is complete; `results` of all players and stages."""

    def close(self) -> None:
        """No more metrics will come."""


class _Quiet:
    """Ignores the calls that most destinations do not need."""

    def rewind(self, step: int) -> None:
        """Ignored: repeated steps are logged twice."""

    def finish(self, results: Mapping[str, Any]) -> None:
        """Ignored: results were also passed to `log`."""

    def stage(self, name: str) -> None:
        """Ignored: `log` is given the stage."""

    def progress(self, done: float, total: float, note: str) -> None:
        """Ignored: progress is only shown on the console."""


class FileLogger(_Quiet):
    """Appends one JSON object per step to `metrics.jsonl`, flushed at once."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        self._path = run / METRICS_FILE
        self._file: TextIO = self._path.open("a", encoding="utf-8")
        self.rewind(sys.maxsize)

    def rewind(self, step: int) -> None:
        """Drop what a resumed job repeats, and an incomplete last line of a killed one."""
        kept = [entry for entry in read_metrics(self._path) if _is_before(entry, step)]
        write_durably(self._path, "".join(json.dumps(entry) + "\n" for entry in kept))
        self._file.close()
        self._file = self._path.open("a", encoding="utf-8")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line; values that are not finite become null, as JSON cannot express them."""
        numbers = {key: v if math.isfinite(v) else None for key, v in metrics.items()}
        entry = {"stage": stage, "step": step, "time": round(time.time(), 3), **numbers}
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLogger(_Quiet):
    """Writes TensorBoard events below `RUN/tensorboard`."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), flush_secs=10)

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar per metric, grouped by stage."""
        for key, value in metrics.items():
            self._writer.add_scalar(f"{_tag(stage)}/{key}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbLogger(_Quiet):
    """Logs to Weights & Biases; `WANDB_MODE=offline` needs neither account nor network."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        import wandb

        self._run: Any = wandb.init(
            project="agentrl", name=run.name, id=_tag(run.name), dir=str(run), resume="allow"
        )
        self._stages: set[str] = set()

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """One call per step; each stage has its own step axis."""
        tag = _tag(stage)
        if tag not in self._stages:
            self._stages.add(tag)
            self._run.define_metric(f"{tag}/*", step_metric=f"{tag}/step")
        self._run.log({f"{tag}/step": step, **{f"{tag}/{k}": v for k, v in metrics.items()}})

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class SwanLabLogger(_Quiet):
    """Logs to SwanLab, in `RUN/swanlab`; `SWANLAB_MODE=online` sends it to an account."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        import swanlab

        folder = run / "swanlab"
        folder.mkdir(exist_ok=True)
        self._run: Any = swanlab.init(
            project="agentrl", name=run.name, log_dir=str(folder), reinit=True,
            mode=os.environ.get("SWANLAB_MODE", "offline"), id=_tag(run.name), resume="allow",
            settings=swanlab.Settings(interactive=False, terminal={"proxy_type": "none"}),
        )  # fmt: skip

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """One call per step, below its stage."""
        self._run.log({f"{_tag(stage)}/{key}": v for key, v in metrics.items()}, step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


class MLflowLogger(_Quiet):
    """Logs to MLflow: to `MLFLOW_TRACKING_URI`, or by default into `RUN/mlflow.db`.

    A resumed run continues the same MLflow run, whose id is stored in `RUN/mlflow.run`.
    """

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        from mlflow import MlflowClient

        own = f"sqlite:///{(run / 'mlflow.db').absolute()}"
        self._client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", own))
        known = run / "mlflow.run"
        if known.is_file():
            self._id = known.read_text().strip()
            self._client.update_run(self._id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name("agentrl")
        experiment = found.experiment_id if found else self._client.create_experiment("agentrl")
        self._id = self._client.create_run(experiment, run_name=run.name).info.run_id
        write_durably(known, self._id)

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """One call per step, below its stage."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        numbers = [Metric(f"{_tag(stage)}/{k}", v, now, step) for k, v in metrics.items()]
        self._client.log_batch(self._id, numbers)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


def read_metrics(path: Path, label: str = "stage") -> list[dict[str, Any]]:
    """The entries of a metrics file; skips incomplete lines and those without label or step."""
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get(label), str):
            entries.append(entry)
    return [entry for entry in entries if isinstance(entry.get("step"), int)]


def _is_before(entry: Mapping[str, Any], step: int) -> bool:
    return entry["stage"] not in _COUNTED or entry["step"] <= step


def _tag(name: str) -> str:
    """The name with everything but letters, digits, dots and underscores replaced."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


LOGGERS: dict[str, Callable[[Path, PlannedWork], Logger]] = {
    "console": ConsoleDisplay,
    "file": FileLogger,
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "swanlab": SwanLabLogger,
    "mlflow": MLflowLogger,
}
_LIBRARIES = {name: name for name in LOGGERS if name not in ("console", "file")}
_NETRC = {"wandb": "~/.netrc", "swanlab": "~/.swanlab/.netrc"}
"""Loggers with an account, and the file in which their `login` command stores the API key."""
_DEFAULT_MODE = {"wandb": "online", "swanlab": "offline"}
_OFFLINE = ("offline", "local", "dryrun", "disabled")


def check_loggers(names: Sequence[str]) -> None:
    """Check that all loggers exist and are installed; `NAME?` need not be installed.

    Raises:
        ConfigError: the first that is unknown or not installed, and what to do.
    """
    for given in names:
        name = given.removesuffix("?")
        if name not in LOGGERS:
            raise ConfigError(
                f"logging: no logger {name!r}{did_you_mean(name, LOGGERS)}. "
                f"Known: {', '.join(LOGGERS)}."
            )
        if name == given and not _is_installed(name):
            raise ConfigError(
                f"logging: {_LIBRARIES[name]} is not installed. Install it with pip install "
                f"'agentrl-screens[{_LIBRARIES[name]}]', or write '{name}?' to skip it where it "
                "is missing."
            )


def check_logins(names: Sequence[str]) -> list[str]:
    """Check that loggers with an account are logged in or offline; no server is contacted.

    Returns:
        What only a server can confirm, one text per logger.

    Raises:
        ConfigError: one is neither logged in nor offline.
    """
    unverified = []
    chosen = {given.removesuffix("?") for given in names}
    for name, file in _NETRC.items():
        key, mode = f"{name.upper()}_API_KEY", f"{name.upper()}_MODE"
        if name not in chosen or not _is_installed(name):
            continue
        if os.environ.get(mode, _DEFAULT_MODE[name]) in _OFFLINE:
            continue
        if not os.environ.get(key) and not _has_netrc_entry(name, file):
            raise ConfigError(
                f"logging: {name} is not logged in. Run `{name} login`, set {key}, or set "
                f"{mode}=offline to log into the run's folder"
            )
        unverified.append(f"whether {name} accepts the API key")
    server = os.environ.get("MLFLOW_TRACKING_URI", "")
    if "mlflow" in chosen and server.startswith(("http", "databricks")):
        unverified.append(f"whether MLFLOW_TRACKING_URI={server} can be reached and logged in to")
    return unverified


def _has_netrc_entry(name: str, file: str) -> bool:
    server = os.environ.get(f"{name.upper()}_BASE_URL", "")
    try:
        hosts = netrc(Path(os.environ.get("NETRC", file)).expanduser()).hosts
    except (OSError, NetrcParseError):
        return False
    return any(name in host or host in server for host in hosts)


def _is_installed(name: str) -> bool:
    return name not in _LIBRARIES or find_spec(_LIBRARIES[name]) is not None


def open_loggers(run: Path, names: Sequence[str], amounts: PlannedWork) -> list[Logger]:
    """Open the named loggers, each once; `NAME?` only if it is installed.

    Raises:
        ConfigError: one is unknown or not installed.
    """
    check_loggers(names)
    chosen = dict.fromkeys(name.removesuffix("?") for name in names)
    return [LOGGERS[name](run, amounts) for name in chosen if _is_installed(name)]
