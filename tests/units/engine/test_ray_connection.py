"""The connection to a Ray cluster, with a pretended Ray; tests/flows/test_ray.py has the real one."""

import signal
import socket
import sys
from types import SimpleNamespace

import pytest

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.engine.executors import ray_connection
from hardtack.engine.executors.ray import RayExecutor, RaySettings
from hardtack.engine.executors.ray_connection import Connection


class FakeRay:
    """Counts what is called; `begun` says whether the script has called `ray.init` itself."""

    exceptions = SimpleNamespace()

    def __init__(self, *, begun=False):
        self.begun, self.addresses, self.ended = begun, [], 0

    def is_initialized(self):
        return self.begun

    def init(self, address, **settings):
        self.addresses.append(address)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as Ray does
        self.begun = True

    def shutdown(self):
        self.begun = False
        self.ended += 1

    def cluster_resources(self):
        return {"CPU": 2.0}


@pytest.fixture
def fake(monkeypatch):
    def install(**settings):
        made = FakeRay(**settings)
        monkeypatch.setattr(ray_connection, "_module", lambda: made)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        return made

    before = signal.getsignal(signal.SIGTERM)
    yield install
    signal.signal(signal.SIGTERM, before)


def test_a_session_of_the_script_is_not_ended(fake):
    ray = fake(begun=True)
    Connection(None).close()
    assert ray.begun and ray.addresses == [] and ray.ended == 0


def test_our_own_session_is_ended_once(fake):
    ray = fake()
    connection = Connection("local")
    connection.close()
    connection.close()
    assert ray.addresses == ["local"] and ray.ended == 1


def test_settings_that_the_cluster_cannot_have_leave_no_session(fake):
    ray = fake()
    with pytest.raises(UserError, match="has 2 CPU cores"):
        RayExecutor(Runtime(device="cpu"), RaySettings(address="local", cpus=3.0))
    assert not ray.begun


@pytest.fixture
def left_address(tmp_path, monkeypatch):
    """An address that `ray start` has left on this machine, and a server that answers there until it is closed."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(address)
    yield address, server
    server.close()


@pytest.mark.parametrize("typed", [None, "auto"])
def test_a_cluster_of_this_machine_that_answers_is_left_to_ray(fake, left_address, typed):
    """Where Ray finds the address itself, it sends the token that `ray start` has made."""
    ray = fake()
    Connection(typed).close()
    assert ray.addresses == [typed]


@pytest.mark.parametrize("typed", [None, "auto"])
def test_a_cluster_that_was_killed_is_refused_at_once(fake, left_address, typed):
    """Ray itself would try for more than five minutes."""
    ray = fake()
    address, server = left_address
    server.close()
    with pytest.raises(UserError, match=rf"cluster {address}, .*does not answer; `ray stop` .*--on ray:local"):
        Connection(typed)
    assert ray.addresses == []
    Connection("local").close()
    assert ray.addresses == ["local"], "the way out that the message names"


def test_a_cluster_that_may_want_a_token_is_refused_with_the_variable(fake, left_address, monkeypatch):
    ray = fake()

    def refuse(address, **settings):
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(UserError, match=r"Failed to connect to Ray cluster; .*RAY_AUTH_MODE=token"):
        Connection(left_address[0])


def test_sigterm_is_answered_as_ctrl_c_is_until_the_session_ends(fake):
    fake()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = Connection("local")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    connection.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("begun", [False, True])
def test_a_handler_of_the_script_is_kept(fake, begun):
    fake(begun=begun)
    received = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    connection = Connection("local")
    signal.raise_signal(signal.SIGTERM)
    connection.close()
    signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM] * 2
