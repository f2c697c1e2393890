"""How a Slurm task ended: what Slurm did to it counts before the exit code that its shell could still write."""

import pytest

from hardtack.engine.slurm.outcome import Outcome


@pytest.mark.parametrize(
    ("code", "state", "words", "final", "mistake"),
    [
        (143, "CANCELLED", "CANCELLED", True, False),
        (None, "CANCELLED", "CANCELLED", True, False),
        (137, "OUT_OF_MEMORY", "OUT_OF_MEMORY", True, False),
        (1, "FAILED", "exit code 1", True, False),
        (143, "", "exit code 143", True, False),
        (2, "CANCELLED", "exit code 2", True, True),
        (0, "COMPLETED", "ended without an error, but its result is not there", False, False),
        (None, "", "no longer in the queue", False, False),
    ],
)
def test_an_outcome_in_words(code, state, words, final, mistake):
    outcome = Outcome(code, state)
    assert str(outcome) == words and outcome.is_final == final and outcome.is_mistake == mistake
