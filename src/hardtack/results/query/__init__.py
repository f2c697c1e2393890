"""Queries over run folders in SQL: `hardtack query "SELECT …" runs/` and `ht.query("SELECT …", runs="runs/")`.

The folders are read in place, as tables (`database.TABLES`); nothing is imported into a database before, and nothing
can be written. Needs duckdb (`pip install 'hardtack[query]'`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hardtack.results.query.answer import Answer
from hardtack.results.query.database import TABLES, run_sql
from hardtack.results.query.named_queries import NamedQuery, is_sql, named_queries, read_named_query

__all__ = ["TABLES", "Answer", "NamedQuery", "named_queries", "query", "read_named_query"]


def query(sql: str, runs: str | Path | Iterable[str | Path] = "runs", **parameters: Any) -> Answer:
    """The answer to a query over run folders, or folders of run folders.

    `sql` is one SELECT statement, the name of a query (`hardtack query --list`) or a file NAME.sql. `parameters` are
    the values of its parameters (`$threat`). What cannot be read is left out and named in `answer.problems`.

        ht.query("SELECT run, value FROM results WHERE metric = 'robust_accuracy' AND trusted ORDER BY value DESC")
        ht.query("ranking", runs=["runs/a", "runs/b"], threat="linf:8/255").to_frame()
    """
    if not is_sql(sql):
        named = read_named_query(sql)
        sql, defaults = named.sql, {name: default for name, (default, _) in named.parameters.items()}
        parameters = {**defaults, **parameters}
    return run_sql(sql, runs, parameters)
