"""Control characters from files are shown, not obeyed by the terminal."""

import pytest

from hardtack.base.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\x1b]0;title\x07", "a\\x1b[31mb\\x1b]0;title\\x07"),
        ("a\rb\x08c\x00", "a\\x0db\\x08c\\x00"),
        ("a\x9b31m", "a\\x9b31m"),
        ("a\u202eb\u2066c\u200b", "a\\u202eb\\u2066c\\u200b"),
        ("\ud800", "\\ud800"),
        ("two\nlines\tand é → 的 ×", "two\nlines\tand é → 的 ×"),
        (3, "3"),
    ],
)
def test_control_characters_are_shown(text, shown):
    assert printable(text) == shown
