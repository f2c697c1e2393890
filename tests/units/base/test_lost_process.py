"""The failure of an exchange between processes becomes a sentence; other failures stay what they are."""

import os
import signal

import pytest

from hardtack.base.errors import UserError
from hardtack.base.lost_process import LostProcess, explain_lost_process

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:24175: Connection reset by peer"


def test_a_closed_connection_is_explained():
    told = r"another process .* Finished pieces are kept: repeat the command"
    with pytest.raises(LostProcess, match=told), explain_lost_process(2, "Finished pieces are kept"):
        raise RuntimeError(GLOO)


def test_other_errors_and_single_processes_are_left_alone():
    with pytest.raises(RuntimeError, match="shape mismatch"), explain_lost_process(2, ""):
        raise RuntimeError("shape mismatch")
    with pytest.raises(UserError, match="socket"), explain_lost_process(2, ""):
        raise UserError("a socket is no model")
    with pytest.raises(RuntimeError, match="Connection reset"), explain_lost_process(1, ""):
        raise RuntimeError(GLOO)


def test_sigterm_inside_is_a_sentence_and_the_handler_is_restored():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(LostProcess, match="stopped by SIGTERM"), explain_lost_process(2, "Kept"):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
