"""`hardtack query`: SQL over run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.base.registry import verbs
from hardtack.commands.words import console, say, split_folders

DEFAULT_RUNS = "runs"
_SUFFIXES = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_TEXT = ("", ".txt", ".md")  # the table as it is printed


@dataclass(frozen=True, kw_only=True)
class QueryWords:
    """The settings of `query`; others are parameters of the query, such as threat=linf:8/255.

    format   table for the screen, csv, json or parquet; by default what the name of `output` ends with, else table
    output   the file to write; without it the answer is printed
    """

    format: Literal["table", "csv", "json", "parquet"] | None = None
    output: str | None = None


@verbs.register("query", settings="hardtack.commands.query:QueryWords")
def query_words(
    words: Annotated[
        list[str] | None, typer.Argument(metavar='"SELECT …"|NAME [RUNS]... [KEY=VALUE]...', help="SQL, runs, settings")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="show the named queries and the tables; with a name, what it holds")
    ] = False,
) -> None:
    """Ask run folders in SQL: [bold]hardtack query "SELECT run, value FROM results WHERE trusted" runs/[/bold].

    Instead of SQL, the name of a query ([bold]hardtack query ranking runs/[/bold]) or a file NAME.sql; --list shows
    names, tables and columns. Without RUNS the folder runs/ is read. format=csv, json or parquet and output=FILE
    write the answer. Nothing in a run folder can be changed by a query.
    """
    from hardtack.results.query import query, read_named_query
    from hardtack.results.query.named_queries import is_sql

    words = list(words or [])
    if show:
        say(listing(words))
        return
    if not words:
        raise UserError('name a query or write one: hardtack query "SELECT * FROM runs" runs/ (or --list)')
    if not is_sql(words[0]):
        read_named_query(words[0])  # a mistake in its name is said before one in the folders
    runs, settings = split_folders(words[1:])
    values = _values(settings)
    chosen = _settings(values)
    _check_parameters(words[0], values)
    answer = query(words[0], runs or _default_runs(), **values)
    for problem in answer.problems:
        _note(problem)
    if chosen.output is not None:
        written = answer.write(_outside(local_path(chosen.output), runs or [DEFAULT_RUNS]), str(chosen.format))
        say(f"{len(answer):,} row{'' if len(answer) == 1 else 's'}: {written}")
    elif chosen.format == "table":
        console.print(answer.text(), highlight=False, markup=False, no_wrap=True, overflow="ignore", crop=False)
    else:
        say((answer.csv() if chosen.format == "csv" else answer.json()).rstrip("\n"))


def _values(words: list[str]) -> dict[str, Any]:
    from hardtack.base.config import parse_words

    values = parse_words(words)
    nested = next((key for key, value in values.items() if isinstance(value, Mapping)), None)
    if nested is not None:
        raise UserError(f"'{nested}.…' is no setting of a query: parameters have one word, such as threat=linf:8/255")
    return values


def _settings(values: dict[str, Any]) -> QueryWords:
    """The settings of the command, which are taken out of `values`; what is left are the query's parameters."""
    own = {item.name: values.pop(item.name) for item in fields(QueryWords) if item.name in values}
    output = None if own.get("output") is None else str(own["output"])
    ending = Path(output or "").suffix.lower()
    if not own.get("format") and ending not in (*_SUFFIXES, *_TEXT):
        raise UserError(f"output={output}: no format ends in {ending}; take {', '.join(_SUFFIXES)}, or give format=csv")
    format: Any = own.get("format") or _SUFFIXES.get(ending, "table")
    known = ["table", *_SUFFIXES.values()]
    if format not in known:
        raise UserError(f"format={format} is unknown{did_you_mean(str(format), known)}; known: {', '.join(known)}")
    if format == "parquet" and output is None:
        raise UserError("format=parquet needs a file: output=answer.parquet")
    return QueryWords(format=format, output=output)


def _check_parameters(query: str, values: Mapping[str, Any]) -> None:
    """A misspelt setting is not taken for a parameter of the query."""
    for name in values:
        near = did_you_mean(name, [item.name for item in fields(QueryWords)])
        if near and f"${name}" not in query and " " in query:
            raise UserError(f"query has no setting '{name}'{near}, and this query no parameter ${name}")


def _default_runs() -> list[str]:
    if not Path(DEFAULT_RUNS).is_dir():
        raise UserError('name the run folders: hardtack query "SELECT …" RUNS (there is no folder runs/ here)')
    return [DEFAULT_RUNS]


def _outside(output: Path, runs: list[str]) -> Path:
    """Refuse an output inside a run folder: its files are the evidence."""
    from hardtack.results import find_runs

    for run in find_runs(runs):
        if output.resolve().is_relative_to(run.resolve()):
            raise UserError(f"output={output} lies in the run folder {run}, in which a query changes nothing")
    return output


def _note(problem: str) -> None:
    import warnings

    warnings.warn(f"left out: {problem}", stacklevel=2)


def listing(words: list[str]) -> str:
    """The named queries and tables; the columns of one table; the SQL of one query."""
    from hardtack.results.query import TABLES, named_queries, read_named_query

    if words and words[0] in TABLES:
        about, columns = TABLES[words[0]]
        rows = [(column.name, column.sql_type.lower(), column.sentence) for column in columns]
        return f"{words[0]}: {about}\n{_aligned(rows)}"
    if words and (words[0] in named_queries() or words[0].endswith(".sql")):
        return read_named_query(words[0]).sql.rstrip()
    if words:
        near = did_you_mean(words[0], [*TABLES, *named_queries()])
        raise UserError(f"there is no table or named query '{words[0]}'{near}; hardtack query --list shows all")
    queries = [read_named_query(name) for name in named_queries()]
    named = [(query.name, query.question, " ".join(f"{key}=" for key in query.parameters)) for query in queries]
    tables = [(name, f"{about}: {', '.join(c.name for c in columns)}") for name, (about, columns) in TABLES.items()]
    return f"named queries, with their parameters\n{_aligned(named)}\n\ntables\n{_aligned(tables)}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line}".rstrip() for line in lines)
