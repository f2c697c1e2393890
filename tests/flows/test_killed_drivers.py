"""The command itself is killed, or started twice: verdicts are the same, and finished pieces are not computed again."""

from hostile_pieces import check_hostile
from stopped_command import blocking, check_killed_and_repeated, said, wait_for

__all__ = ["blocking"]  # a fixture


def test_a_killed_command_with_workers_goes_on_when_repeated(blocking):
    check_killed_and_repeated(blocking, "workers=2")


def test_of_two_commands_one_works_and_the_other_uses_its_result(blocking):
    first = blocking.start("run", "workers=2")
    blocking.wait_until_the_rest_is_finished("run")
    second = blocking.start("run", "workers=2")
    wait_for(lambda: "already being computed" in said(second))
    blocking.go()
    results = [first.wait(), second.wait()]
    assert [result.returncode for result in results] == [0, 0], results
    assert results[0].stdout == results[1].stdout, "both print the same result"
    assert set(blocking.computed().values()) == {1}, "every piece was computed once"


def test_nothing_in_a_run_folder_is_unpickled_by_workers(tmp_path):
    check_hostile(tmp_path, "workers=2")
