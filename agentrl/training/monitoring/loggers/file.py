"""Logs to `metrics.jsonl` and `stage` in the run's folder, which the viewer reads."""

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from agentrl.files import atomic_replace, naming, write_durably
from agentrl.runs.metrics_file import (
    EVALUATION,
    METRICS_FILE,
    STAGE_FILE,
    TRAINING_STAGES,
    read_metrics,
)
from agentrl.training.monitoring.logger import Logger
from agentrl.training.monitoring.progress import PlannedWork

_COUNTED = (*TRAINING_STAGES, EVALUATION)


class FileLogger(Logger):
    """Appends one JSON object per step to `metrics.jsonl`, flushed at once.

    The file `stage` contains the name of the current stage.
    """

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        self._run, self._path = run, run / METRICS_FILE
        self._stage = ""
        self._file: TextIO = self._path.open("a", encoding="utf-8")
        # Drop the incomplete last line of a killed job.
        self.rewind(sys.maxsize)

    def rewind(self, step: int) -> None:
        """Drop lines that a resumed job repeats, and the incomplete last line of a killed job."""
        kept = [entry for entry in read_metrics(self._run) if _is_before(entry, step)]
        write_durably(self._path, "".join(json.dumps(entry) + "\n" for entry in kept))
        self._file.close()
        self._file = self._path.open("a", encoding="utf-8")

    def stage(self, name: str) -> None:
        """Write the stage's name if it has changed."""
        if name != self._stage:
            self._stage = name
            with atomic_replace(self._run / STAGE_FILE) as partial:
                partial.write_text(name, encoding="utf-8")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write one line; non-finite values become null because JSON cannot express them."""
        numbers = {key: v if math.isfinite(v) else None for key, v in metrics.items()}
        entry = {"stage": stage, "step": step, "time": round(time.time(), 3), **numbers}
        with naming(self._path):
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_before(entry: Mapping[str, Any], step: int) -> bool:
    return entry["step"] <= step if entry["stage"] in _COUNTED else step >= 0
