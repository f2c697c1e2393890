"""What `hardtack watch` reads and serves: jobs in every state, folders of strangers, and who is answered."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time

import numpy as np
import pytest
import torch
import yaml
from run_folders import HOSTILE_NAME, make_run

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.lock import JobLock
from hardtack.engine import PieceResult, PieceStore, Span
from hardtack.evaluation import measure
from hardtack.report.watch import Watcher, WatchServer, status_lines
from hardtack.report.watch import log as watch_log
from hardtack.report.watch.log import GrowingLog
from hardtack.report.wording import attack_name
from hardtack.results import Result, append_results, read_verdicts
from hardtack.results.unfinished import unfinished_jobs


def write_training(folder, *, epochs=10, upto=4, every=10):
    folder.mkdir(parents=True, exist_ok=True)
    config = {"name": folder.name, "model": {"name": "vit_digits"}, "data": {"name": "digits"}}
    config |= {"objective": {"name": "trades"}, "train": {"epochs": epochs, "batch_size": 32}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = []
    for step in range(every, upto * 10 * every // 10 + 1, every):
        about = {"kind": "train", "step": step, "epoch": step / 10, "images_per_s": 64.0, "lr": 0.01}
        lines.append({**about, "loss": 2.0 / step, "accuracy": 0.5, "robust_accuracy": 0.25})
        if step % 20 == 0:
            about = {"kind": "validation", "step": step, "epoch": step // 10}
            lines.append({**about, "clean_accuracy": 0.8, "robust_accuracy": 0.3})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def jobs(*paths):
    return {job["name"]: job for job in Watcher(paths, every_s=0).state()["jobs"]}


def test_a_training_is_followed_from_its_start_to_its_end(tmp_path):
    runs = tmp_path / "runs"
    watcher = Watcher([runs], every_s=0)
    assert watcher.state()["jobs"] == [] and "no job below" in status_lines(watcher.state())[0]
    lock = JobLock(runs / "one" / ".training.lock")
    assert lock.acquire(patience_s=1)
    try:
        job = watcher.state()["jobs"][0]
        assert (job["state"], job["epoch"], job["left_s"]) == ("running", 0.0, None)
        write_training(runs / "one")
        job = watcher.state()["jobs"][0]
        assert (job["state"], job["epoch"], job["epochs"], job["share"]) == ("running", 4.0, 10, 0.4)
        assert job["about"] == "vit_digits on digits, trades"
        assert job["left_s"] == pytest.approx(6 * 10 * 32 / 64)  # epochs × steps × images over images per second
        assert job["last"] == {
            "loss": 0.05, "accuracy": 0.5, "robust": 0.25, "validation": 0.8, "validation_robust": 0.3,
        }  # fmt: skip
        assert [point[0] for point in job["curves"]["validation"]] == [2.0, 4.0]
    finally:
        lock.release()
    assert watcher.state()["jobs"][0]["state"] == "stopped"
    write_training(runs / "one", upto=10)
    job = watcher.state()["jobs"][0]
    assert (job["state"], job["share"], job["left_s"]) == ("finished", 1.0, None)
    assert "training finished, epoch 10 of 10" in status_lines(watcher.state())[0]


def test_a_finished_run_shows_the_numbers_that_a_report_shows_first(tmp_path):
    """The newest robust accuracy comes before certified accuracies and corruptions, however many of these there are."""
    common = {"n": 20, "data": "digits/test", "run": "run", "model": "vit_digits"}
    lines = [
        ("robust_accuracy", "pgd", "linf:0.1", "pgd steps=20", 1),
        ("robust_accuracy", "pgd", "linf:0.1", "mim", 2),
    ]
    lines += [("certified_accuracy", "smoothing", f"l2:{radius}", "smoothing sigma=0.25", 3) for radius in (0.25, 0.5)]
    words = "15 common types × 5 severities"
    lines += [
        ("mean_corrupted_accuracy", "corruptions", None, words, 4),
        ("mean_corruption_error", "corruptions", None, words, 4),
    ]
    for number, (metric, suite, threat, attack, day) in enumerate(lines):
        about = {"suite": suite, "threat": threat, "attack": attack, "created": f"2026-03-0{day}T00:00:00+00:00"}
        append_results(
            tmp_path / "run", [Result(metric=metric, value=0.25, evaluation=f"e-{number}", **common, **about)]
        )
    told = jobs(tmp_path)["run"]["results"]
    assert [text.partition("%")[0] for text in told] == [
        "Robust accuracy 25.0",
        "Robust accuracy 25.0",
        "Certified accuracy 25.0",
    ]
    assert "(mim, ℓ∞ ≤ 0.1, digits/test)" in told[0] and "(pgd, " in told[1]
    assert attack_name(words, "corruptions") == words and attack_name("10 types", "perturbations") == "10 types"


def test_the_time_left_follows_from_what_was_seen(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    from hardtack.report.watch.trainings import TrainingFolder

    folder = TrainingFolder(write_training(tmp_path / "run", upto=2))
    assert folder.snapshot(running=True)["left_s"] == pytest.approx(40.0)  # 8 epochs, as the log's speed says
    now[0] += 60
    write_training(tmp_path / "run", upto=5)  # three epochs took a minute: validation takes most of the time
    assert folder.snapshot(running=True)["left_s"] == pytest.approx(100.0)
    now[0] += 30
    assert folder.snapshot(running=True)["left_s"] == pytest.approx(70.0)


def test_a_log_is_read_as_it_grows_and_thinned(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    log = GrowingLog(path)
    log.read()
    assert log.last == {}
    with path.open("w") as file:
        for step in range(1, 3000):
            file.write(json.dumps({"kind": "train", "step": step, "epoch": step / 10, "loss": 1 / step}) + "\n")
        file.write('{"kind": "train", "step": 3000, "epoch": 300.0, "lo')
    log.read()
    assert log.last["train"]["step"] == 2999 and 250 < len(log.curves["loss"]) <= 600
    with path.open("a") as file:
        file.write(
            'ss": 0.5}\n{"kind": "train", "epoch": NaN, "loss": 1}\nnonsense\n{"kind": "warning", "epoch": 300.0, '
        )
        file.write('"warning": "catastrophic_overfitting"}\n')
    log.read()
    assert log.last["train"] == {"kind": "train", "step": 3000, "epoch": 300.0, "loss": 0.5}
    assert log.warnings == ["catastrophic overfitting"]
    epochs = [point[0] for point in log.curves["loss"]]
    assert epochs == sorted(epochs)
    monkeypatch.setattr(watch_log, "_BLOCK", 1000)
    again = GrowingLog(path)
    again.read()
    assert (again.last, again.curves) == (log.last, log.curves), "a long log is read to its end in one call"
    path.write_text('{"kind": "train", "step": 1, "epoch": 0.1, "loss": 3.0}\n')  # begun again
    log.read()
    assert log.curves["loss"] == [[0.1, 3.0]] and log.warnings == []


def test_an_evaluation_shows_its_pieces_and_what_is_robust_so_far(tmp_path, monkeypatch):
    """A real evaluation that is stopped in its second piece."""
    monkeypatch.setattr(measure, "NOTE_EVERY_S", -1.0)
    run = tmp_path / "run"

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(48, 10)

        def forward(self, x):
            if list(run.glob("verdicts/.*/0*.parquet")) and list(run.glob("verdicts/.*/0*.part")):
                raise KeyboardInterrupt
            return self.head(x.flatten(1))

    torch.manual_seed(0)
    model = ht.wrap(Model(), mean=(0.0,) * 3, std=(1.0,) * 3)
    x = torch.rand(24, 3, 4, 4)
    with torch.no_grad():
        y = model(x).argmax(dim=1)
    settings = {"suite": "pgd", "threat": "linf:0.05", "chunk_size": 8, "quiet": True}
    ht.evaluate(model, (x, y), folder=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        ht.evaluate(model, (x, y), folder=run, **settings)
    [job] = unfinished_jobs(run, lambda path: False)
    assert (job.title, job.total, job.running, job.unit) == ("evaluate pgd", 24, False, "img")
    assert (job.rows, job.pieces, job.correct, job.under_way) == (8, 1, 8, 8) and 0 <= job.standing <= 8
    verdicts = read_verdicts(next((tmp_path / "whole" / "verdicts").glob("*.parquet")))
    assert job.robust == int(verdicts["robust"][:8].sum())
    shown = jobs(tmp_path)["run"]
    assert shown["state"] == "stopped" and shown["facts"][1] == f"{job.rows} of 24 images"
    assert shown["results"][0].startswith("Clean accuracy so far 100.0% (")
    assert shown["results"][1].startswith(f"Robust accuracy so far {100 * job.robust / job.rows:.1f}% (")
    assert jobs(tmp_path)["whole"]["state"] == "finished"


def test_folders_of_strangers_are_named_and_stop_nothing(tmp_path):
    runs = tmp_path / "runs"
    write_training(runs / HOSTILE_NAME)
    (tmp_path / "secret.jsonl").write_text('{"kind": "train", "epoch": 1, "loss": 4242.25}\n')
    (runs / "link").mkdir()
    (runs / "link" / "config.yaml").write_text("train: {epochs: .inf}\n")
    (runs / "link" / "metrics.jsonl").symlink_to(tmp_path / "secret.jsonl")
    odd = write_training(runs / "odd")
    (odd / "config.yaml").write_text("train: {epochs: [1], batch_size: {a: 1}}\nmodel: 7\n")
    with (odd / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "epoch": 1e308, "step": 1e308, "images_per_s": 1e-308, "loss": 1e308}\n')
    make_run(runs / "results")
    (runs / "results" / "results.jsonl").write_text("{broken\n")
    store = PieceStore(runs / "pieces" / "verdicts", "pgd-0123456789ab", root=runs / "pieces")
    store.announce("evaluate pgd", "img", total=24, done=0)
    store.write(Span(0, 8), PieceResult(columns={"clean_correct": np.ones(8, bool), "robust": np.zeros(8, bool)}))
    (store.folder / "00000008-00000016.parquet").write_text("not parquet")
    (store.folder / "00000016-00000024.part").write_text("not npz")
    other = PieceStore(runs / "lies" / "verdicts", "pgd-0123456789ab", root=runs / "lies")
    other.announce("x", "img", total=8, done=0)
    (other.folder / "job.json").write_text(
        '{"total": -1, "done": 1e400, "began": "<b>", "title": ["' + "x" * 500 + '"]}'
    )
    (runs / "pieces" / "verdicts" / ".pgd-ffffffffffff").symlink_to(tmp_path)
    (runs / "loop").symlink_to(runs)
    (runs / os.fsdecode(b"\xff\xfe")).mkdir()
    (runs / os.fsdecode(b"\xff\xfe") / "metrics.jsonl").write_text("")
    state = Watcher([runs], every_s=0).state()
    json.dumps(state, allow_nan=False).encode("utf-8")
    shown = {job["name"]: job for job in state["jobs"]}
    assert shown[HOSTILE_NAME]["state"] == "stopped" and "link" not in shown and "4242.25" not in json.dumps(state)
    assert shown["odd"]["epochs"] is None and shown["odd"]["share"] is None
    assert shown["pieces"]["facts"][:2] == ["1 piece done", "8 of 24 images"]
    assert shown["lies"]["share"] is None and len(shown["lies"]["about"]) <= 90
    assert any("corrupt" in text for text in shown["results"]["results"])


@pytest.fixture
def server(tmp_path):
    write_training(tmp_path / "runs" / "one")
    started = WatchServer(Watcher([tmp_path / "runs"], every_s=0), port=0)
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()


def ask(server, path="/state", *, method="GET", host=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    host = f"127.0.0.1:{server.server_port}" if host is None else host
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host, **headers}.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer, body


def test_only_pages_of_this_address_are_answered(server):
    assert server.server_address[0] == "127.0.0.1"
    port = server.server_port
    answer, body = ask(server)
    assert answer.status == 200 and json.loads(body)["jobs"][0]["name"] == "one"
    assert ask(server, host=f"LOCALHOST:{port}")[0].status == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.evil:{port}",
        "",
    ):
        answer, body = ask(server, host=host)
        assert (answer.status, "one" in body) == (403, False), host
        assert ask(server, "/", host=host)[0].status == 403
    assert ask(server, Sec_Fetch_Site="cross-site")[0].status == 403
    assert ask(server, Sec_Fetch_Site="same-origin")[0].status == 200
    assert ask(server, "/", Sec_Fetch_Site="cross-site")[0].status == 200  # a link to the page may be followed
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, method=method)[0].status >= 400
    for path in ("/../one/config.yaml", "/one/metrics.jsonl", "/state?x=1", "//etc/passwd", "/%2e%2e/"):
        assert ask(server, path)[0].status == 404
    answer, body = ask(server, "/")
    assert answer.headers["X-Frame-Options"] == "DENY" and answer.headers["Cache-Control"] == "no-store"
    assert (
        "script-src 'sha256-" in answer.headers["Content-Security-Policy"] and "Access-Control-Allow-Origin" not in body
    )
    answer, body = ask(server, method="HEAD")
    assert answer.status == 200 and body == ""


def test_a_port_that_is_taken_is_said(server):
    with pytest.raises(UserError, match=f"port {server.server_port} cannot be used"):
        WatchServer(server.watcher, port=server.server_port)
