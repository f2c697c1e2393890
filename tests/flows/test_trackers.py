"""TensorBoard, Weights & Biases and MLflow as a user has them: killed and repeated, down, missing, misspelt."""

import http.server
import json
import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.registry import trackers
from hardtack.commands.cli import main
from hardtack.training.trackers import Tracker, tracking
from processes import start
from tiny_runs import settings, write_data

TRAIN = {"epochs": 2, "batch_size": 6, "log_every": 2}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_ALLOW_FILE_STORE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    write_data(tmp_path / "data.npz")
    return tmp_path


def train(home, track, **more):
    values = settings(home / "run", home / "data.npz", objective="standard")
    return ht.train(None, quiet=True, **{**values, "train": {**TRAIN, "track": track, **more}})


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}


def offline_runs(folder):
    """(id, history) of every run that wandb kept on disk, oldest first."""
    from wandb.proto.wandb_internal_pb2 import Record

    runs = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        data, at, history = path.read_bytes(), 7, []
        whole = b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:  # blocks of LevelDB's log
                at += 32768 - at % 32768
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            whole, at = whole + data[at + 7 : at + 7 + length], at + 7 + length
            if kind in (1, 4):  # a whole record, or the last part of one
                record, whole = Record.FromString(whole), b""
                if record.HasField("history"):
                    history.append(
                        {
                            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                            for item in record.history.item
                        }
                    )
        runs.append((path.parent.name.rpartition("-")[2], history))
    return runs


def mlflow_runs(uri):
    from mlflow.tracking import MlflowClient

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # newer versions ask for it
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("hardtack")
    return client, client.search_runs([experiment.experiment_id])


def test_a_killed_run_is_continued_by_wandb_and_mlflow(home, capsys):
    """SIGKILL in the middle, the same command again: one run each, with the loss of every step."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    track = {"epochs": 12, "batch_size": 6, "log_every": 2, "checkpoint_every_s": 0.0, "track": ["wandb", "mlflow"]}
    values = settings(home / "run", home / "data.npz", objective="standard", train=track, output="run")
    Path("tiny.yaml").write_text(yaml.safe_dump(values))
    process = start("train", "tiny.yaml", cwd=home)
    metrics, deadline = home / "run" / "metrics.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 12):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60).returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert main(["train", "tiny.yaml"]) == 0
    text = capsys.readouterr().err
    assert "wandb continues" in text and "mlflow continues" in text
    logged = losses(home / "run")
    assert len(logged) == 36

    (first, before), (second, after) = offline_runs(home)
    assert first == second == json.loads((home / "run/tracking.json").read_text())["ids"]["wandb"]
    assert after[-1]["step"] == 60 and len(before) + len(after) < 3 * len(logged)
    assert {row["step"]: row["train/loss"] for row in before + after if "train/loss" in row} == logged
    client, (run,) = mlflow_runs((home / "mlruns").as_uri())
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {metric.step: metric.value for metric in history} == logged and run.info.status == "FINISHED"
    assert run.data.params["objective.name"] == "standard" and run.data.params["train.epochs"] == "12"

    client.delete_run(run.info.run_id)  # as a person does on the server's page
    assert main(["train", "tiny.yaml", "train.track=[mlflow]", "train.epochs=13"]) == 0
    assert mlflow_runs((home / "mlruns").as_uri())[1][0].info.run_id != run.info.run_id


# ---------------------------------------------------------------- a server


class Server(http.server.ThreadingHTTPServer):
    """The part of MLflow's REST API that a client of ours uses; with `down` it answers 500."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.down, self.metrics, self.statuses, self.params = False, [], [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.uri = f"http://somebody:secret@127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or "{}")
        server, (name,) = self.server, [self.path.partition("?")[0].partition("/mlflow/")[2]]
        code, reply = 200, {}
        info = {"run_id": "abc1", "run_uuid": "abc1", "experiment_id": "7", "status": "RUNNING", "artifact_uri": "a"}
        if server.down:
            code, reply = 500, {"error_code": "INTERNAL_ERROR", "message": "out of order"}
        elif name == "experiments/get-by-name":
            code, reply = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"}
        elif name == "experiments/create":
            reply = {"experiment_id": "7"}
        elif name in ("runs/create", "runs/get"):
            reply = {"run": {"info": info, "data": {}}}
        elif name == "runs/update":
            server.statuses.append(body["status"])
            reply = {"run_info": info}
        elif name == "runs/log-batch":
            server.metrics += body.get("metrics", [])
            server.params += body.get("params", [])
        text = json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = answer

    def log_message(self, *_):
        pass


def test_a_server_that_is_down_for_a_while_gets_everything(home, monkeypatch, capsys):
    pytest.importorskip("mlflow")
    server = Server()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(tracking, "RETRY_S", 0.0)

    def outage(event):
        server.down = 3 <= event.step <= 7

    values = settings(home / "run", home / "data.npz", objective="standard")
    ht.train(None, on_step=outage, **{**values, "train": {**TRAIN, "track": "mlflow"}})
    logged = losses(home / "run")
    assert {int(row["step"]): row["value"] for row in server.metrics if row["key"] == "train/loss"} == logged
    assert server.statuses == ["RUNNING", "FINISHED"] and {"key": "name", "value": "tiny"} in server.params
    text = "".join(capsys.readouterr())
    assert text.count("mlflow failed") == 1 and "training goes on" in text and "secret" not in text
    server.shutdown()


def test_a_server_that_is_not_there_is_one_line(home, monkeypatch, capsys):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://u:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    Path("tiny.yaml").write_text(yaml.safe_dump(settings(home / "run", home / "data.npz")))
    assert main(["train", "tiny.yaml", "train.track=mlflow"]) == 2
    text = capsys.readouterr().err
    assert "train.track=mlflow: no run could be opened at http://127.0.0.1:9" in text and "secret" not in text
    assert text.count("\n") == 1


# ---------------------------------------------------------------- names, packages, trackers of one's own


@pytest.mark.parametrize(
    "name, module", [("wandb", "wandb"), ("mlflow", "mlflow.tracking"), ("tensorboard", "torch.utils.tensorboard")]
)
def test_a_package_that_is_missing_is_one_sentence(home, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"train\.track={name} needs .*: pip install 'hardtack\[track\]'"):
        train(home, name)


def test_a_misspelt_tracker_and_the_older_setting(home, capsys):
    recipe = settings(home / "run", home / "data.npz", train={**TRAIN, "tensorboard": True})
    Path("tiny.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["train", "tiny.yaml", "train.track=wandbb"]) == 2
    assert "there is no tracker 'wandbb' (did you mean 'wandb'?)" in capsys.readouterr().err
    assert ht.training.read_recipe("tiny.yaml").train.track == ("tensorboard",)


def test_a_tracker_of_one_s_own_and_how_a_run_ends(home, monkeypatch):
    opened, written, ended = [], [], []

    class Mine(Tracker):
        def __init__(self, run):
            opened.append((run.id, run.step))
            self.id = run.id or f"mine-{len(opened)}"

        def write(self, values, step):
            written.append((step, values))

        def close(self, outcome):
            ended.append(outcome)

    monkeypatch.setattr(trackers, "_entries", dict(trackers._entries))
    trackers.register("mine")(Mine)

    def stop(event):
        if event.step == 7:
            raise KeyboardInterrupt

    values = settings(home / "run", home / "data.npz", objective="standard")
    words = {**values, "train": {**TRAIN, "track": "mine", "checkpoint_every_s": 0.0}}
    with pytest.raises(KeyboardInterrupt):
        ht.train(None, quiet=True, on_step=stop, **words)
    ht.train(None, quiet=True, **words)
    ht.train(None, quiet=True, **{**words, "train": {**words["train"], "epochs": 3}})  # extends the finished run
    assert opened == [(None, 0), ("mine-1", 6), ("mine-1", 10)] and ended == ["stopped", "finished", "finished"]
    assert {step: values["train/loss"] for step, values in written if "train/loss" in values} == losses(home / "run")
    (home / "run" / "checkpoints" / "state.pt").unlink()
    ht.train(None, quiet=True, **{**words, "optimiser": {"name": "adamw", "lr": 0.02}})
    assert opened[-1] == (None, 0), "another recipe in the folder is another run"
    monkeypatch.setitem(sys.modules, "wandb", None)
    ended.clear()
    other = settings(home / "other", home / "data.npz", train={**TRAIN, "track": ["mine", "wandb"]})
    with pytest.raises(UserError, match="pip install"):
        ht.train(None, quiet=True, **other)
    assert ended == ["failed"], "a tracker that was opened is closed where another one cannot be used"
    (home / "run" / "tracking.json").write_text("{")
    with pytest.raises(UserError, match=r"tracking\.json is damaged; delete it"):
        ht.train(None, quiet=True, **{**words, "optimiser": {"name": "adamw", "lr": 0.02}})
