"""Logs to MLflow."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from agentrl.files import write_durably
from agentrl.training.monitoring.logger import Logger, plain_name
from agentrl.training.monitoring.progress import PlannedWork


class MLflowLogger(Logger):
    """Logs to MLflow: to `MLFLOW_TRACKING_URI`, or by default into `RUN/mlflow.db`.

    A resumed run continues the same MLflow run, whose id is stored in `RUN/mlflow.run`.
    """

    library = "mlflow"
    install = "pip install 'agentrl-screens[mlflow]'"

    def __init__(self, run: Path, amounts: PlannedWork) -> None:
        from mlflow import MlflowClient

        # Use a client, because `mlflow.start_run` supports one run per process.
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
        """Log a step in one call, grouped by stage."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        numbers = [Metric(f"{plain_name(stage)}/{k}", v, now, step) for k, v in metrics.items()]
        self._client.log_batch(self._id, numbers)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)

    @classmethod
    def check_login(cls) -> list[str]:
        """See `Logger.check_login`."""
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not server.startswith(("http", "databricks")):
            return []
        return [f"whether MLFLOW_TRACKING_URI={server} can be reached and accepts the login"]
