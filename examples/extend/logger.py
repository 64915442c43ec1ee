"""A logger of your own: a CSV file for each stage of the job.

agentrl check logger logger.py:CsvLogger digits=3
agentrl train CONFIG "logging=[console, file, {name: logger.py:CsvLogger, kwargs: {digits: 3}}]"
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from agentrl.training.monitoring.logger import Logger
from agentrl.training.monitoring.progress import PlannedWork


class CsvLogger(Logger):
    """Writes `RUN/csv/STAGE.csv`, with a column for each metric seen so far.

    Args:
        run: the run's folder.
        amounts: the planned work of the job.
        digits: number of significant digits.
    """

    def __init__(self, run: Path, amounts: PlannedWork, digits: int = 6) -> None:
        self._folder = run / "csv"
        self._folder.mkdir(exist_ok=True)
        self._digits = digits

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Add a row; new metrics add columns."""
        row = {"step": f"{step}"}
        row |= {name: f"{value:.{self._digits}g}" for name, value in metrics.items()}
        self._write(stage, [*self._rows(stage), row])

    def rewind(self, step: int) -> None:
        """Drop training steps that a resumed job will repeat."""
        stage = "reinforcement"
        if kept := [row for row in self._rows(stage) if int(row["step"]) <= step]:
            self._write(stage, kept)

    def _file(self, stage: str) -> Path:
        return self._folder / f"{stage.replace(' ', '_')}.csv"

    def _rows(self, stage: str) -> list[dict[str, str]]:
        if not self._file(stage).is_file():
            return []
        with self._file(stage).open(newline="") as file:
            return list(csv.DictReader(file))

    def _write(self, stage: str, rows: list[dict[str, str]]) -> None:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with self._file(stage).open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
