"""What mkdocs is told beside mkdocs.yml: generated pages, notebooks, and files of the repository that pages link to."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```)", re.M | re.S)
SHOWN = {".py": "python", ".yaml": "yaml", ".cff": "yaml"}


@cache
def _part(name: str) -> ModuleType:
    """A module of this folder."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not in docs/: reference, notebooks, and source that pages link to."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(ROOT / "src"))  # the reference is that of this checkout
    texts: dict[str, str | bytes] = {**_part("reference").pages(), **_part("papers").pages()}
    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        text, pictures = _part("notebook_pages").notebook_page(notebook)
        texts[f"notebooks/{notebook.stem}.md"] = text
        texts |= {f"notebooks/{name}": picture for name, picture in pictures.items()}
    pages = {page: (DOCS / page).read_text(encoding="utf-8") for page in _own_pages()}
    for page, text in [*pages.items(), *texts.items()]:
        if isinstance(text, str):
            texts |= {uri: _content(path) for path, uri in _linked(page, text)}
    for uri, content in sorted(texts.items()):
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository lead to their copies in the site; links to its folders become text."""
    uri = page.file.src_uri
    return "".join(
        part if part.startswith("```") else OUTSIDE.sub(lambda match: _in_the_site(uri, match), part)
        for part in FENCE.split(markdown)
    )


def _own_pages() -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "_site" not in path.parts)


def _target(page: str, link: str) -> Path | None:
    """The file or folder outside docs/ that a link of a page names."""
    # a generated page stands in docs/FOLDER/, as its links say
    path = (DOCS / posixpath.dirname(page) / link).resolve()
    return path if path.exists() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS) else None


def _linked(page: str, text: str) -> list[tuple[Path, str]]:
    """The files outside docs/ that a page links to, with their places in the site."""
    links = (match[2] for part in FENCE.split(text) if not part.startswith("```") for match in OUTSIDE.finditer(part))
    targets = [path for link in links if (path := _target(page, link)) is not None and path.is_file()]
    return [(path, _uri(path)) for path in targets]


def _uri(path: Path) -> str:
    """`repository/src/hardtack/threats/balls.py.md`; files that are not shown as text keep their names."""
    return f"repository/{path.relative_to(ROOT).as_posix()}{'.md' if path.suffix in SHOWN else ''}"


def _content(path: Path) -> str | bytes:
    if path.suffix not in SHOWN:
        return path.read_bytes()
    name = path.relative_to(ROOT).as_posix()
    search = "---\nsearch:\n  exclude: true\n---\n"
    return f"{search}# {name}\n\n````{SHOWN[path.suffix]}\n{path.read_text(encoding='utf-8')}\n````\n"


def _in_the_site(page: str, match: re.Match[str]) -> str:
    text, link, anchor = match[1], match[2], match[3] or ""
    path = _target(page, link)
    if path is None:
        return match[0]  # of docs/ itself, or dead: mkdocs says so
    if path.is_dir():
        return text
    if path == ROOT / "README.md":
        return f"[{text}]({posixpath.relpath('index.md', posixpath.dirname(page))})"
    return f"[{text}]({posixpath.relpath(_uri(path), posixpath.dirname(page) or '.')}{anchor})"
