"""MLflow: a run of the experiment $MLFLOW_EXPERIMENT_NAME, or hardtack, at $MLFLOW_TRACKING_URI.

Without that variable runs are kept as files in the folder mlruns, which needs no database and no server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.registry import trackers
from hardtack.training.trackers.tracker import Outcome, TrackedRun, Tracker, shown

EXPERIMENT = "hardtack"
_LONGEST_VALUE, _AT_ONCE = 500, 100  # of parameters, for servers of any version
# A server that is down is tried again by tracking.py: MLflow would wait for minutes. Addresses may contain passwords.
_VARIABLES = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}  # fmt: skip
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@trackers.register("mlflow", help="MLflow: the server $MLFLOW_TRACKING_URI, or the folder mlruns")
class MLflow(Tracker):
    """A run that the server does not know (any longer), or that was deleted, is begun anew."""

    def __init__(self, run: TrackedRun) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise UserError("train.track=mlflow needs MLflow: pip install 'hardtack[track]'") from None
        uri = _address()
        for name, value in _VARIABLES.items():
            os.environ.setdefault(name, value)
        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT)
            self.id = self._known(run.id) or self._begin(run, experiment)
            self._client.update_run(self.id, status="RUNNING")
        except Exception as error:
            raise UserError(
                f"train.track=mlflow: no run could be opened at {shown(uri)} ({shown(error)}); MLFLOW_TRACKING_URI "
                "names a server or a folder; a database needs more than mlflow-skinny: pip install mlflow"
            ) from error
        self.place = f"{shown(uri)}, experiment {experiment}, run {self.id}"

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name))

    def _known(self, id: str | None) -> str | None:
        from mlflow.exceptions import MlflowException

        if id is None:
            return None
        try:
            info = self._client.get_run(id).info
            return str(info.run_id) if info.lifecycle_stage == "active" else None  # else it was deleted by a person
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise

    def _begin(self, run: TrackedRun, experiment: str) -> str:
        from mlflow.entities import Param

        id = str(self._client.create_run(experiment, run_name=run.name).info.run_id)
        settings = [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in run.settings.items()]
        for start in range(0, len(settings), _AT_ONCE):
            self._client.log_batch(id, params=settings[start : start + _AT_ONCE])
        return id

    def write(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def close(self, outcome: Outcome) -> None:
        self._client.set_terminated(self.id, _STATUS[outcome])


def _address() -> str:
    """What MLflow is told to use, else the folder mlruns; newer versions use files only if they are allowed to."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or Path("mlruns").resolve().as_uri()
    if uri.startswith("file:") or "://" not in uri:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return uri
