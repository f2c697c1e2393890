"""The page of `hardtack watch` in a real browser, while jobs begin, go on and end; and the command itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
from looks import SCREENS
from test_report_page import HOSTILE_NAME, browser  # noqa: F401

from test_watch import write_training  # isort: skip  # beside run_folders, which test_report_page finds

from hardtack.base.lock import JobLock
from hardtack.engine import PieceResult, PieceStore, Span
from hardtack.report.watch import Watcher, WatchServer


@pytest.fixture
def server(tmp_path):
    started = WatchServer(Watcher([tmp_path / "runs"], every_s=0), port=0)
    threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield started
    started.shutdown()
    started.server_close()


@pytest.mark.parametrize("width, scheme", SCREENS)
def test_jobs_appear_go_on_and_end(browser, server, tmp_path, width, scheme):  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.address)
    page.get_by_text("No run yet").wait_for()

    run = tmp_path / "runs" / HOSTILE_NAME
    lock = JobLock(run / ".training.lock")
    lock.acquire(patience_s=1)
    write_training(run)
    page.evaluate("ask()")
    card = page.locator("article.job", has_text=HOSTILE_NAME)
    card.locator(".badge", has_text="running").wait_for()
    facts = card.locator(".facts").inner_text()
    assert "4 of 10 epochs" in facts and "30 s left" in facts and "64 images per second" in facts
    assert card.get_by_role("progressbar").get_attribute("aria-valuenow") == "40"
    assert card.locator("polyline.curve").count() == 5
    assert "validation, attacked 30.0%" in card.locator(".key").inner_text()
    points = card.locator("polyline.curve").first.get_attribute("points")
    write_training(run, upto=6)
    page.evaluate("ask()")
    page.wait_for_function("document.querySelector('.facts').textContent.includes('6 of 10')")
    assert card.locator("polyline.curve").first.get_attribute("points") != points

    store = PieceStore(tmp_path / "runs" / "eval" / "verdicts", "autoattack-0123456789ab")
    store.announce("evaluate autoattack", "img", total=40, done=0)
    store.write(Span(0, 10), PieceResult(columns={"clean_correct": [True] * 10, "robust": [True] * 4 + [False] * 6}))
    page.evaluate("ask()")
    evaluation = page.locator("article.job", has_text="evaluate autoattack")
    evaluation.locator(".badge", has_text="evaluation not running").wait_for()
    assert "10 of 40 images" in evaluation.inner_text() and "Robust accuracy so far 40.0%" in evaluation.inner_text()
    assert page.locator("#summary").inner_text() == "1 running · 1 not running and not finished"

    lock.release()
    write_training(run, upto=10)
    page.evaluate("ask()")
    page.locator("#finished tbody tr", has_text=HOSTILE_NAME).wait_for()
    assert page.locator("article.job").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth") and not page.evaluate("window.hacked")
    assert complaints == []
    server.shutdown()
    server.server_close()
    page.locator("#lost").wait_for(timeout=8000)
    context.close()


def test_a_page_of_another_name_reaches_nothing(browser, server, tmp_path):  # noqa: F811
    """DNS rebinding: a name of somebody else's that leads to this machine."""
    write_training(tmp_path / "runs" / "one")
    page = browser.new_page()
    answer = page.goto(f"http://rebound.localhost:{server.server_port}/state")
    assert answer.status == 403 and "one" not in page.content()
    page.close()


def test_ctrl_c_ends_with_one_line(tmp_path):
    (tmp_path / "runs").mkdir()
    command = [sys.executable, "-m", "hardtack", "watch", "runs", "--port", "0"]
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=restore
    )
    first = process.stdout.readline()
    address = re.fullmatch(r"watching runs: (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", first)[1]
    assert b"hardtack" in urllib.request.urlopen(address, timeout=10).read()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert rest.strip() == "watch: ended; the jobs go on" and process.returncode == 0


@pytest.mark.parametrize(
    "words, said",
    [
        (["watch", "rusn"], "there is no folder rusn (did you mean 'runs'?)"),
        (["watch", "file.txt"], "is a file"),
        (["watch", "no/such"], "there is no folder"),
        (["watch", "runs", "--port", "80x"], "--port"),
        (["leaderboard"], "name a folder of runs"),
        (["leaderboard", "runs"], "holds no run"),
        (["leaderboard", "rusn"], "there is no folder rusn (did you mean 'runs'?)"),
        (["leaderboard", "--reported", "nowhere.json"], "there is no file or folder nowhere.json"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, said):
    from hardtack.commands.cli import main

    (tmp_path / "runs").mkdir()
    (tmp_path / "file.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "site").exists()
