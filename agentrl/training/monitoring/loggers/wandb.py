"""Logs to Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.training.monitoring.logger import Logger, check_account, plain_name
from agentrl.training.monitoring.progress import PlannedWork


class WandbLogger(Logger):
    """Logs to Weights & Biases; `WANDB_MODE=offline` needs neither account nor network."""

    library = "wandb"
    install = "pip install 'agentrl-screens[wandb]'"

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        import wandb

        self._run: Any = wandb.init(
            project="agentrl", name=run.name, id=plain_name(run.name), dir=str(run), resume="allow"
        )
        self._stages: set[str] = set()

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log a step in one call; each stage has its own step axis."""
        tag = plain_name(stage)
        if tag not in self._stages:
            self._stages.add(tag)
            self._run.define_metric(f"{tag}/*", step_metric=f"{tag}/step")
        self._run.log({f"{tag}/step": step, **{f"{tag}/{k}": v for k, v in metrics.items()}})

    def close(self) -> None:
        """Send the remaining metrics."""
        self._run.finish()

    @classmethod
    def check_login(cls) -> list[str]:
        """See `Logger.check_login`."""
        return check_account("wandb", netrc_file="~/.netrc", default_mode="online")
