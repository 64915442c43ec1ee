"""The file of a run's metrics, `metrics.jsonl`: one JSON object per step of a stage."""

import json
import sys
from pathlib import Path
from typing import Any, TypeGuard

METRICS_FILE = "metrics.jsonl"
STAGE_FILE = "stage"
"""The file with the name of a running job's current stage."""
JOB_LOG = "logs/job.log"
"""The file with a job's console output."""
TRAINING = "reinforcement"
TRAINING_STAGES = (TRAINING, "fine-tuning", "preference training", "reward model training")
"""The stages whose steps count toward a job's."""
EVALUATION = "evaluation"
"""The stage of evaluations during training."""


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


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number; a file may hold anything."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # neither NaN nor infinite
    )
