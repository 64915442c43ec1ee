"""Checks of a logger, a class of `logging`; settings are its keyword arguments."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentrl.check.extension_catalog import reference
from agentrl.runs.metrics_file import EVALUATION, TRAINING
from agentrl.training.monitoring.logger import Logger, check_loggers, open_loggers
from agentrl.training.monitoring.progress import PlannedWork

USAGE = "logging=[console,file,{}]"
"""The setting that adds this logger."""
_SLOW_S = 1.0
_STEPS = 3
_FIRST = {"train/reward": 0.5, "learner/loss": 0.25, "rollout/tokens_per_s": 900.0}


def check_installed(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger's library is installed, and the constructor accepts the keyword arguments."""
    check_loggers([_entry(target, settings)])


def check_ends_at_once(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger survives a job that ends before its first step."""
    with _opened(target, settings):
        pass


def check_whole_job(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger survives a whole job: warm start, training, evaluations and results."""
    with _opened(target, settings) as logger:
        logger.stage("warm start")
        logger.progress(0, 10, "")
        logger.log("warm start", 1, {"loss": 2.0})
        for step in range(1, _STEPS + 1):
            logger.stage(TRAINING)
            logger.progress(1, 2, "step: 5 turns")
            logger.log(TRAINING, step, _FIRST)
        logger.log(EVALUATION, _STEPS, {"sampled/success": 0.8})
        logger.finish({"after": {"sampled": {"success": 0.8}}, "seconds": {"train": 3.0}})


def check_any_metrics(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger accepts metrics that come and go, and values that are not finite."""
    with _opened(target, settings) as logger:
        logger.stage(TRAINING)
        logger.log(TRAINING, 1, _FIRST)
        logger.log(TRAINING, 2, {"train/reward": math.nan, "train/other (1)": math.inf})
        logger.log(TRAINING, 3, {})


def check_resumed(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger continues in the folder of a resumed job, which repeats steps."""
    with TemporaryDirectory(prefix="agentrl-check-") as folder:
        for first in (1, 2):
            with _opened(target, settings, Path(folder)) as logger:
                if first > 1:
                    logger.rewind(first - 1)
                logger.stage(TRAINING)
                for step in range(first, _STEPS + 1):
                    logger.log(TRAINING, step, _FIRST)


def check_metrics_unchanged(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """The logger does not change the metrics, which other loggers get as well."""
    given = dict(_FIRST)
    with _opened(target, settings) as logger:
        logger.stage(TRAINING)
        logger.log(TRAINING, 1, given)
    assert given == _FIRST, f"log() was given {_FIRST} and left {given}; work on a copy"


def check_speed(target: type[Logger], settings: Mapping[str, Any]) -> None:
    """Logging a step, which blocks the job, takes less than a second."""
    with _opened(target, settings) as logger:
        logger.stage(TRAINING)
        seconds = []
        for step in range(1, _STEPS + 1):
            started = time.perf_counter()
            logger.log(TRAINING, step, _FIRST)
            seconds.append(time.perf_counter() - started)
    # The first call may open a connection, and the machine may be busy.
    fastest = min(seconds)
    assert fastest < _SLOW_S, f"log() took {fastest:.1f} s; do slow work in a thread"


def _entry(target: type[Logger], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": reference(target), "kwargs": dict(settings)}


@contextmanager
def _opened(
    target: type[Logger], settings: Mapping[str, Any], run: Path | None = None
) -> Iterator[Logger]:
    """Open and close the logger as a job does, in a temporary folder unless `run` is given."""
    with TemporaryDirectory(prefix="agentrl-check-") as folder:
        plan = PlannedWork(steps=_STEPS)
        (logger,) = open_loggers(run or Path(folder), [_entry(target, settings)], plan)
        try:
            yield logger
        finally:
            logger.close()
