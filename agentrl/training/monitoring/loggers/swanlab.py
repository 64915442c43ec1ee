"""Logs to SwanLab."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.training.monitoring.logger import Logger, check_account, plain_name
from agentrl.training.monitoring.progress import PlannedWork


class SwanLabLogger(Logger):
    """Logs to SwanLab in `RUN/swanlab`; `SWANLAB_MODE=online` sends the logs to an account."""

    library = "swanlab"
    install = "pip install 'agentrl-screens[swanlab]'"

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        import swanlab

        folder = run / "swanlab"
        folder.mkdir(exist_ok=True)
        # SwanLab must neither prompt on the terminal nor replace the display's output streams.
        self._run: Any = swanlab.init(
            project="agentrl", name=run.name, log_dir=str(folder), reinit=True,
            mode=os.environ.get("SWANLAB_MODE", "offline"), id=plain_name(run.name), resume="allow",
            settings=swanlab.Settings(interactive=False, terminal={"proxy_type": "none"}),
        )  # fmt: skip

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log a step in one call, grouped by stage."""
        self._run.log({f"{plain_name(stage)}/{key}": v for key, v in metrics.items()}, step=step)

    def close(self) -> None:
        """Send the remaining metrics."""
        self._run.finish()

    @classmethod
    def check_login(cls) -> list[str]:
        """See `Logger.check_login`."""
        return check_account("swanlab", netrc_file="~/.swanlab/.netrc", default_mode="offline")
