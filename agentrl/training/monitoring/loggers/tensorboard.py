"""Logs to TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.training.monitoring.logger import Logger, plain_name
from agentrl.training.monitoring.progress import PlannedWork


class TensorBoardLogger(Logger):
    """Writes TensorBoard events below `RUN/tensorboard`."""

    library = "tensorboard"
    install = "pip install 'agentrl-screens[tensorboard]'"

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), flush_secs=10)

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write a scalar for each metric, grouped by stage."""
        for key, value in metrics.items():
            self._writer.add_scalar(f"{plain_name(stage)}/{key}", value, step)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
