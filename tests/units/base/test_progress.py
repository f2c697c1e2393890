"""Lines of progress arrive as they were said."""

from hardtack.base.progress import Meter


def test_a_line_keeps_its_brackets_and_stays_one_line(capsys):
    line = "settings [head, blocks.[0-2]] have no effect: " + "clean_accuracy 97.9%  robust_accuracy 77.6%  " * 4
    with Meter("run [bold]", total=1) as meter:
        meter.say(line)
        meter.advance(3, note="[/odd] note")
    assert capsys.readouterr().err.splitlines()[0].strip() == line.strip()


def test_quiet_says_nothing(capsys):
    with Meter("run", total=1, quiet=True) as meter:
        meter.say("anything")
    assert capsys.readouterr().err == ""
