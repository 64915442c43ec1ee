"""Passes a job's stages, metrics and results to its loggers and health checks."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console

from agentrl.runs.job_failure import JOB_LOG
from agentrl.runs.metrics_file import EVALUATION, TRAINING_STAGES, read_metrics
from agentrl.runs.rings import ring_metrics
from agentrl.text_tables import flatten_results
from agentrl.training.monitoring.guarded_logger import GuardedLogger, open_guarded
from agentrl.training.monitoring.learning_curve import draw_curve
from agentrl.training.monitoring.logger import open_loggers
from agentrl.training.monitoring.loggers.console import ConsoleDisplay
from agentrl.training.monitoring.progress import PlannedWork
from agentrl.training.monitoring.resource_usage import ResourceUsage
from agentrl.training.monitoring.training_health import HealthChecks

log = logging.getLogger(__name__)

_LOG_WIDTH = 120


class _LogFileDisplay(ConsoleDisplay):
    """Appends the console's plain lines to the job's log."""

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        (run / JOB_LOG).parent.mkdir(parents=True, exist_ok=True)
        self._file = (run / JOB_LOG).open("a", encoding="utf-8")
        console = Console(file=self._file, width=_LOG_WIDTH, force_jupyter=False)
        super().__init__(run, amounts, console)

    def close(self) -> None:
        """Stop drawing and close the file."""
        with self._file:
            super().close()


class Reporter:
    """Reports the progress and metrics of a job.

    Args:
        loggers: entries as in `logging`, such as `console` and `file`.
        compares_states: see `HealthChecks`.
        max_new_tokens: see `HealthChecks`.

    Raises:
        ConfigError: a logger does not exist, is not installed or cannot be opened.
    """

    def __init__(
        self,
        run: Path,
        loggers: Sequence[Any],
        amounts: PlannedWork,
        *,
        compares_states: bool = False,
        max_new_tokens: int | None = None,
    ) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._run = run
        self._loggers = open_loggers(run, loggers, amounts, open_guarded)
        # Every job keeps its own log, regardless of `logging`.
        self._loggers.append(GuardedLogger(JOB_LOG, lambda: _LogFileDisplay(run, amounts)))
        self._stage = "start"
        self._step = 0
        self._closed = False
        self._new_health = partial(
            HealthChecks, compares_states=compares_states, max_new_tokens=max_new_tokens
        )
        self._health = self._new_health()
        self._resources = ResourceUsage()

    def stage(self, name: str) -> None:
        """Report that a stage begins or continues: `warm start`, `reinforcement`, ..."""
        self._stage = name
        for logger in self._loggers:
            logger.stage(name)

    def rewind(self, step: int) -> None:
        """Report that a resumed job repeats all after this training step.

        -1 includes its warm start.
        """
        self._step = max(0, step)
        for logger in self._loggers:
            logger.rewind(step)
        # The checks average over the steps that are kept.
        self._health = self._new_health()
        self._health.restore(read_metrics(self._run))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the metrics of one step of the current stage."""
        if self._stage in TRAINING_STAGES:
            self._step = step
            symptoms, warnings = self._health.check_step(metrics)
            metrics = {**metrics, **symptoms, **self._resources.measure()}
            for warning in warnings:
                log.warning("step %d: %s", step, warning)
        self._log(self._stage, step, metrics)

    def warm_start(self, step: int, metrics: Mapping[str, float], total: int = 0) -> None:
        """Report the metrics of one step of the warm start, out of `total` steps."""
        self._log(self._stage, step, metrics)
        if total:
            self.progress(step, total, "")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the metrics of an evaluation during training, sampled as in rollouts."""
        if "reward" in metrics:
            self._health.add_evaluation(metrics["reward"])
        self._log(EVALUATION, step, {f"sampled/{key}": value for key, value in metrics.items()})

    def result(self, name: str, result: Mapping[str, Any]) -> None:
        """Report results of a scripted player, or of the model before or after training.

        Args:
            name: name of a scripted player, or `before` or `after`.
            result: the player's metrics, or the model's `sampled` and `greedy` metrics.
        """
        for row, numbers in flatten_results({name: result}).items():
            label = row.rpartition(" ")[2]
            metrics = {f"{label}/{key}": value for key, value in numbers.items()}
            self._log(EVALUATION, self._step, metrics)
        for metrics in ring_metrics(name, result):
            self._log(EVALUATION, self._step, metrics)

    def progress(self, done: float, total: float, note: str = "") -> None:
        """Report progress of the current stage or step: `done` of `total`."""
        for logger in self._loggers:
            logger.progress(done, total, note)

    def note(self, text: str) -> None:
        """Show a sentence about the job."""
        for logger in self._loggers:
            logger.note(text)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Report that the job is complete, and show all results."""
        for logger in self._loggers:
            logger.finish(results)

    def close(self) -> None:
        """Close the loggers and draw the learning curve; may be called twice."""
        if self._closed:
            return
        self._closed = True
        for logger in self._loggers:
            logger.close()
        try:
            draw_curve(self._run)
        except OSError as error:
            log.warning("the learning curve could not be drawn: %s", error)
        except Exception:
            # Don't raise: a failure here must not hide how the run itself ended.
            log.exception("the learning curve could not be drawn")

    def _log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        numbers = {key: float(value) for key, value in metrics.items()}
        for logger in self._loggers:
            logger.log(stage, step, numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
