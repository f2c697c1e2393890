"""SQL over run folders, read in place: the tables that a statement names, in a database that can touch no file.

The database lives in memory. Before the user's SQL runs, its access to files, to the network and to extensions is
closed and its settings are locked, and only one statement that reads is accepted: nothing that is typed here, or that a
run folder holds, can change a run.
"""

from __future__ import annotations

import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import shorten
from hardtack.results.query.answer import Answer
from hardtack.results.query.columns import Column, make_table, to_text
from hardtack.results.query.folders import Folder, read_folders
from hardtack.results.query.metrics_table import FIRST, metrics_table
from hardtack.results.query.result_columns import EVIDENCE, FLAGS, RESULTS, ROW, Measured, flags_rows, measured
from hardtack.results.query.run_columns import PROBLEMS, RUNS, SETTINGS, settings_rows
from hardtack.results.query.verdict_files import VERDICTS, VIEWS, verdict_groups, verdicts_sql, views_sql

TABLES: dict[str, tuple[str, list[Column]]] = {
    "runs": ("a row for each run folder", RUNS),
    "settings": ("a row for each setting of each run", SETTINGS),
    "results": ("a row for each number", [*RESULTS, *EVIDENCE]),
    "flags": ("a row for each warning on a number", FLAGS),
    "verdicts": ("a row for each image and threat of an evaluation", VERDICTS),
    "views": ("a row for each image and each further value: corruptions, patches, sequences, analyses", VIEWS),
    "metrics": ("a row for each line of a training's metrics, and a column for each key that any has", FIRST),
    "problems": ("a row for each thing that could not be read and was left out", PROBLEMS),
}
_MISSING = "queries need duckdb, which is not installed: pip install 'hardtack[query]'"
# SQL cannot read or write a file, fetch an extension, see Python's variables, or undo any of this
_CLOSED = (
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET python_enable_replacements=false",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)
_NO_SUCH_COLUMN = re.compile(r'Referenced column "(.*?)" not found|does not have a column named "(.*?)"', re.DOTALL)
_NO_SUCH_TABLE = re.compile(r"Table with name (.*?) does not exist", re.DOTALL)
_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_HINT = "hardtack query --list shows all tables and columns"


def run_sql(sql: str, runs: str | Path | Iterable[str | Path], values: Mapping[str, Any]) -> Answer:
    """The answer to one statement over these runs; `values` are those of its parameters, `$threat`."""
    duckdb = _duckdb()
    if _SHOW_TABLES.fullmatch(sql):
        sql = f'SELECT * FROM (VALUES {", ".join(map(_listed, TABLES))}) AS tables (name, "one row")'
    _check_statement(duckdb, sql, values)
    folders = list(read_folders(runs))
    try:
        table = _run(duckdb, sql, folders, values, check_all=False)
    except duckdb.Error as error:
        if not _names(sql, "verdicts", "views") or _mistake(error, sql) is not None:
            raise _said(error, sql) from None
        try:  # a verdict file whose footer is right and whose rows are not
            table = _run(duckdb, sql, folders, values, check_all=True)
        except duckdb.Error as error:
            raise _said(error, sql) from None
    problems = [f"{folder.label}: {text}" for folder in folders for text in folder.problems]
    return Answer(table, problems)


def _listed(table: str) -> str:
    sentence = TABLES[table][0].replace("'", "''")
    return f"('{table}', '{sentence}')"


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise UserError(_MISSING) from None
    return duckdb


def _check_statement(duckdb: Any, sql: str, values: Mapping[str, Any]) -> None:
    """One statement that reads, with all of its parameters given."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _said(error, sql) from None
    if len(statements) != 1:
        raise UserError(f"a query is one statement, found {len(statements)}; WITH … joins several steps into one")
    kind = str(statements[0].type).rpartition(".")[2]
    if kind not in ("SELECT", "EXPLAIN"):
        raise UserError(f"a query only reads: SELECT …, found {kind}; output=FILE writes its answer to a file")
    wanted = set(statements[0].named_parameters)
    for name in values:
        if name not in wanted:
            known = f"; it takes {', '.join(sorted(wanted))}" if wanted else "; it takes none"
            raise UserError(f"this query has no parameter '{name}'{did_you_mean(name, wanted) or known}")
    missing = sorted(wanted - set(values))
    if missing:
        raise UserError(f"this query needs a value for {', '.join(missing)}: {missing[0]}=VALUE")


def _names(sql: str, *tables: str) -> list[str]:
    """The tables that a statement may name: every one whose name is a word of it."""
    words = set(re.findall(r"\w+", sql.lower()))
    return [table for table in tables if table in words]


def _run(duckdb: Any, sql: str, folders: list[Folder], values: Mapping[str, Any], *, check_all: bool) -> pa.Table:
    wanted = _names(sql, *TABLES) or list(TABLES)  # SHOW TABLES
    with tempfile.TemporaryDirectory(prefix="hardtack-query-") as spill:
        connection = duckdb.connect(":memory:")
        try:
            connection.execute("SET temp_directory = ?", [spill])
            _make_tables(connection, folders, wanted, check_all=check_all)
            for setting in _CLOSED:
                connection.execute(setting)
            return _interruptible(connection, lambda: _answer(connection, sql, values))
        finally:
            connection.close()


def _answer(connection: Any, sql: str, values: Mapping[str, Any]) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        relation = connection.sql(sql, params=dict(values)) if values else connection.sql(sql)
        return relation.to_arrow_table()


def _interruptible(connection: Any, work: Callable[[], pa.Table]) -> pa.Table:
    """The result of `work`, which Ctrl-C ends: duckdb itself does not look for signals while it computes."""
    done, results, errors = threading.Event(), list[pa.Table](), list[BaseException]()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        while not done.wait(0.2):
            pass
    except BaseException:
        while not done.wait(0.05):
            connection.interrupt()
        raise
    if errors:
        raise errors.pop()
    return results[0]


def _make_tables(connection: Any, folders: list[Folder], wanted: Sequence[str], *, check_all: bool) -> None:
    if {"results", "flags"} & set(wanted):
        _make_results(connection, measured(folders))
    if "runs" in wanted:
        _add(connection, "runs", RUNS, [(folder,) for folder in folders])
    if "settings" in wanted:
        _add(connection, "settings", SETTINGS, settings_rows(folders))
    if {"verdicts", "views"} & set(wanted):
        groups = verdict_groups(folders, check_all=check_all)
        for group in groups:
            connection.register(group.name, group.dataset())
        connection.execute(f"CREATE VIEW verdicts AS {verdicts_sql(groups)}")
        connection.execute(f"CREATE VIEW views AS {views_sql(groups)}")
    if "metrics" in wanted:
        connection.register("metrics", metrics_table(folders))
    if "problems" in wanted:  # the last: what the others could not read is known by now
        for folder in folders:
            _ = folder.results, folder.config, folder.metrics
        rows = [(folder, text) for folder in folders for text in folder.problems]
        _add(connection, "problems", PROBLEMS, rows)


def _make_results(connection: Any, entries: list[Measured]) -> None:
    """`results` with its columns about evidence, which is checked for the rows that a query asks it for."""

    def evidence_of(row: int) -> str:
        return _text(entries[row], 0)

    def note_of(row: int) -> str:
        return _text(entries[row], 1)

    connection.create_function("_evidence_of", evidence_of, ["BIGINT"], "VARCHAR")
    connection.create_function("_evidence_note_of", note_of, ["BIGINT"], "VARCHAR")
    _add(connection, "_results", [ROW, *RESULTS], [(entry,) for entry in entries])
    connection.execute(
        "CREATE VIEW results AS SELECT * EXCLUDE (_row), _evidence_of(_row) AS evidence, "
        "nullif(_evidence_note_of(_row), '') AS evidence_note, "
        "red_flags = 0 AND _evidence_of(_row) IN ('agrees', 'no record') AS trusted FROM _results"
    )
    _add(connection, "flags", FLAGS, flags_rows(entries))


def _text(entry: Measured, place: int) -> str:
    return to_text(entry.folder.agreement(entry.result)[place]) or ""


def _add(connection: Any, name: str, columns: list[Column], rows: list[tuple[Any, ...]]) -> None:
    """A table from Arrow; columns of JSON text get the type that SQL's operators on JSON take."""
    table = make_table(columns, rows)
    json = [column.name for column in columns if column.sql_type == "JSON"]
    if not json:
        connection.register(name, table)
        return
    hidden = name if name.startswith("_") else f"_{name}"
    connection.register(f"{hidden}_as_text", table)
    casts = ", ".join(f"{column}::JSON AS {column}" for column in json)
    connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE ({casts}) FROM {hidden}_as_text")


# ---------------------------------------------------------------- mistakes in SQL


def _said(error: Exception, sql: str) -> UserError:
    return UserError(_mistake(error, sql) or f"the query failed: {shorten(error, 300)}")


def _mistake(error: Exception, sql: str) -> str | None:
    """What is wrong with the SQL, in one line; None for another fault."""
    message = str(error)
    if match := _NO_SUCH_COLUMN.search(message):
        return _no_column(next(name for name in match.groups() if name is not None), sql)
    if match := _NO_SUCH_TABLE.search(message):
        name = match[1].strip('"')
        return f"there is no table '{shorten(name)}'{did_you_mean(name, TABLES)}; tables: {', '.join(TABLES)}"
    kind, colon, rest = message.partition(" Error: ")
    if colon and kind.split("\n")[0] in ("Parser", "Binder", "Catalog", "Permission", "Conversion", "Not implemented"):
        text, _, line = rest.partition("\nLINE ")
        line = line.split("\n")[0].partition(": ")[2]
        where = f" in: {shorten(line)}" if line else ""
        if kind == "Permission":
            return f"a query reads run folders only, no other files ({shorten(text.strip(), 200)})"
        return f"the SQL is wrong: {shorten(' '.join(text.split()), 300)}{where}"
    return None


def _no_column(name: str, sql: str) -> str:
    used = _names(sql, *TABLES)
    columns = {column.name: table for table in used for column in TABLES[table][1]}
    near = did_you_mean(name, columns)
    elsewhere = [table for table, (_, own) in TABLES.items() if table not in used and name in [c.name for c in own]]
    if elsewhere:
        near = f" here; {elsewhere[0]} has it"
    where = f" in {' and '.join(used)}" if used and not elsewhere else ""
    quotes = f"; text is written in single quotes: '{name}'" if f'"{name}"' in sql else ""
    return f"there is no column '{shorten(name)}'{where}{near}{quotes}; {_HINT}"
