"""Every flag that the source raises is described, in `hardtack describe` and in docs/trust.md."""

import ast
from pathlib import Path

from hardtack.base.flag_meanings import FLAGS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hardtack"


def raised():
    """Codes in calls of `flag(level, code, …)` and `_flag(code, …)`, and in mappings with a level and a code."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                place = {"flag": 1, "_flag": 0}.get(name)
                if place is not None and len(node.args) > place:
                    yield from (item.value for item in ast.walk(node.args[place]) if isinstance(item, ast.Constant))
            elif isinstance(node, ast.Dict):
                keys = {key.value: value for key, value in zip(node.keys, node.values, strict=True)
                        if isinstance(key, ast.Constant)}  # fmt: skip
                if {"level", "code", "message"} <= keys.keys() and isinstance(keys["code"], ast.Constant):
                    yield keys["code"].value


def test_every_flag_that_is_raised_is_described():
    codes = set(raised())
    assert len(codes) > 20 and not codes - FLAGS.keys(), (
        f"{sorted(codes - FLAGS.keys())}: say what it means in base/flag_meanings.py"
    )
    assert {row.level for row in FLAGS.values()} == {"red", "yellow"}


def test_the_documentation_has_the_same_table():
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    rows = [f"| `{row.code}` | {row.level} | {row.means} | {row.action} |" for row in FLAGS.values()]
    missing = [row for row in rows if row not in page]
    assert not missing, "docs/trust.md lacks:\n" + "\n".join(missing)
