"""Notebooks as pages: their text, their code, and the outputs that are stored in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def notebook_page(file: Path) -> tuple[str, dict[str, bytes]]:
    """Markdown of a notebook, and its pictures by their file names."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    pictures: dict[str, bytes] = {}
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "](../"))
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            for output in cell["outputs"]:
                parts += _output(output, f"{file.stem}-{len(pictures) + 1}.png", pictures)
    note = f"*This is [examples/{file.name}](../../examples/{file.name}) with the outputs that are stored in it.*"
    parts.insert(1, note)
    return "\n\n".join(parts) + "\n", pictures


def _output(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        yield f"![{''.join(data.get('text/plain', 'a figure')).strip('<>')}]({name})"
        return
    text = "".join(output.get("text", data.get("text/plain", "")))
    if text.strip():
        yield f"```text\n{text.rstrip()}\n```"
