"""What stands between the driver and a process group on a Ray cluster; Ray itself is not needed."""

from hardtack.base.progress import Meter, told_to
from hardtack.engine.executors.ray_group import FolderKeeper
from hardtack.engine.packing import versions


def test_a_process_with_other_versions_is_refused_and_both_are_named():
    keeper = FolderKeeper({})
    keeper.join(0, versions(), "a")
    assert not keeper.refused()
    keeper.join(1, {**versions(), "torch": "1.0"}, "b")
    assert keeper.refused()
    message = keeper.take()["refused"]
    assert f"the Ray worker on b has other versions: torch 1.0 there, {versions()['torch']} here" in message


def test_a_group_that_starts_again_gets_what_came_back():
    keeper = FolderKeeper({"old": b"1", "gone": b"2"})
    keeper.put({"old": b"3", "gone": None, "new": b"4"})
    assert keeper.files() == {"old": b"3", "new": b"4"}
    assert keeper.take()["changes"] == {"old": b"3", "gone": None, "new": b"4"}
    assert keeper.take()["changes"] == {}, "each change is taken once"
    assert keeper.files() == {"old": b"3", "new": b"4"}


def test_starts_are_counted_by_the_first_process():
    keeper = FolderKeeper({})
    for rank in (0, 1, 1, 0):
        keeper.join(rank, versions(), "a")
    assert keeper.take()["starts"] == 2


def test_the_first_mistake_is_kept():
    keeper = FolderKeeper({})
    keeper.refuse("no such file")
    keeper.refuse("another")
    assert keeper.take()["refused"] == "no such file"


def test_meters_tell_a_listener_unless_they_are_quiet(capsys):
    heard = []

    class Listener:
        def note(self, text, share):
            heard.append((text.split()[0], share))

        def say(self, line):
            heard.append(line)

    with told_to(Listener()):
        meters = [Meter("loud", total=4), Meter("quiet", total=4, quiet=True)]
    outside = Meter("outside", total=4)
    for meter in [*meters, outside]:
        meter.advance(1)
        meter.say("a line")
    assert heard == [("1/4", 0.25), "a line"]
    assert capsys.readouterr().err == "a line\n", "only the meter outside the block prints"
