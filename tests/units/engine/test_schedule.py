"""Which piece is next: long ones first, needs before those who need them, lost ones again, but not for ever."""

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import ATTEMPTS, Schedule

SPANS = [Span(0, 1), Span(1, 5), Span(5, 7)]


def drain(schedule):
    order = []
    while (span := schedule.take()) is not None:
        order.append(span)
        schedule.finish(span)
    return order


def test_long_pieces_come_first():
    assert drain(Schedule(SPANS)) == [Span(1, 5), Span(5, 7), Span(0, 1)]
    assert drain(Schedule(SPANS, expected=lambda span: -span.rows)) == [Span(0, 1), Span(5, 7), Span(1, 5)]


def test_a_piece_waits_for_what_it_needs():
    schedule = Schedule([Span(row, row + 1) for row in range(4)], needs=lambda span: [3] if span.start == 0 else [])
    taken = [schedule.take() for _ in range(4)]
    assert taken == [Span(1, 2), Span(2, 3), Span(3, 4), None], "row 0 waits for row 3"
    schedule.finish(Span(3, 4))
    assert schedule.take() == Span(0, 1)


def test_needs_that_were_finished_before_do_not_count():
    schedule = Schedule([Span(5, 6)], needs=lambda span: [0])
    assert schedule.take() == Span(5, 6)


def test_pieces_that_need_each_other_are_a_fault_not_a_wait():
    schedule = Schedule([Span(0, 1), Span(1, 2)], needs=lambda span: [1 - span.start])
    with pytest.raises(RuntimeError, match="need each other"):
        schedule.take()


def test_a_lost_piece_is_next_and_counted():
    schedule = Schedule(SPANS)
    first = schedule.take()
    schedule.take()
    schedule.lose(first, "it was killed")
    assert schedule.take() == first and schedule.losses == {first: 1}
    assert not schedule.done


def test_a_piece_lost_too_often_stops_the_job():
    schedule = Schedule([Span(3, 6)])
    with pytest.raises(UserError, match=rf"rows 3 to 5 were lost {ATTEMPTS} times.*out of memory.*are kept"):
        for _ in range(ATTEMPTS):
            schedule.lose(schedule.take(), "out of memory")


def test_a_piece_that_works_for_hours_may_be_lost_more_often():
    schedule, now = Schedule([Span(0, 1)]), [0.0]
    schedule.clock = lambda: now[0]
    for _ in range(20):  # as a training that goes on from its last checkpoint
        span = schedule.take()
        now[0] += 3600
        schedule.lose(span, "its machine was taken away")
    with pytest.raises(UserError, match="lost 24 times"):
        for _ in range(ATTEMPTS):
            schedule.lose(schedule.take(), "out of memory")
