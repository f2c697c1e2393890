"""The bound of an audit stands with its number; facts of a stranger's folder that make no sense are left out."""

import pytest

import hardtack as ht
from hardtack.commands.cli import main
from hardtack.results.audit_bound import audit_of
from tiny_runs import Linear, images

FACTS = {
    "threat": "linf:0.1", "attacks": ["square", "apgd"], "survivors": 241, "sample": 60, "broken": 0,
    "escalation": "none", "confidence": 0.95, "bound": 0.041, "broken_by_escalation": 0,
}  # fmt: skip


def test_the_bound_stands_with_the_number(tmp_path):
    x = images(16)
    ht.evaluate(
        Linear(), (x, Linear()(x).argmax(dim=1)), suite="autoattack", tier="fast", threat="linf:0.001", quiet=True,
        folder=tmp_path / "run",
    )  # fmt: skip
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "audit: at most 0.0% of these breakable" in page and "sampled images that remain correct" in page


def test_only_the_threat_of_the_number():
    words, line = audit_of({"audit": [FACTS]}, "linf:0.1")
    assert words == "audit: at most 4.1% of these breakable" and line.startswith("audit linf:0.1: 0 of 60")
    assert audit_of({"audit": [FACTS]}, "linf:0.2") == audit_of({"audit": [FACTS]}, None) == ("", "")
    escalated = FACTS | {"escalation": "full", "broken_by_escalation": 7}
    assert audit_of({"audit": [escalated]}, "linf:0.1")[0] == "audit: 7 more were broken"


@pytest.mark.parametrize(
    "audit",
    [
        None, 5, "x", {}, [None], [5], [{}], [FACTS | {"bound": "<b>"}], [FACTS | {"attacks": 3}],
        [FACTS | {"sample": []}], [FACTS | {"escalation": "full", "broken_by_escalation": "many"}],
    ],
)  # fmt: skip
def test_facts_that_make_no_sense_are_left_out(audit):
    words, line = audit_of({"audit": audit}, "linf:0.1")
    assert "<" not in words and (not words or line)
