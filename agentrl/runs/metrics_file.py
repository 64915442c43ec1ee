"""Read a run's `stage` file and its `metrics.jsonl`, a JSON object per step of a stage."""

import json
import os
from pathlib import Path
from typing import Any

from agentrl.errors import ConfigError
from agentrl.files import open_regular
from agentrl.runs.file_reading import as_integer, as_object
from agentrl.runs.jsonl import JsonlTail, read_lines

METRICS_FILE = "metrics.jsonl"
STAGE_FILE = "stage"
"""File with the name of a running job's current stage."""
TRAINING = "reinforcement"
TRAINING_STAGES = (TRAINING, "fine-tuning", "preference training", "reward model training")
"""Stages whose steps count as the job's training steps."""
EVALUATION = "evaluation"
"""Stage of evaluations during training."""
_TAIL = 1 << 16
"""Number of bytes at the end of the file to search for the last training step."""


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the logged entries, each with its `stage` and `step`; skip damaged lines.

    Raises:
        ConfigError: the file is not a regular file, or cannot be read.
    """
    return read_lines(run / METRICS_FILE, "stage")


def first_entry(run: Path) -> dict[str, Any]:
    """Return the first logged entry; empty if missing or damaged."""
    try:
        return next(JsonlTail(run / METRICS_FILE).new(), {})
    except ConfigError:
        return {}


def last_training_step(run: Path) -> int:
    """Return the last logged training step, or 0; a killed job may not have saved it."""
    try:
        with open(run / METRICS_FILE, "rb", opener=open_regular) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            entry = as_object(json.loads(line))
        # The first line may be cut off at its start, and a killed writer's last line at its end.
        except (ValueError, RecursionError):
            continue
        if entry.get("stage") in TRAINING_STAGES:
            return as_integer(entry.get("step")) or 0
    return 0
