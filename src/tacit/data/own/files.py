"""Tables in files and databases, read by pandas."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import Misuse, NotReady, first_line, unknown_name
from tacit.data.own.problems import Problem, check
from tacit.data.own.reading import Reading
from tacit.data.own.table import Table, check_names

DELIMITERS = ",;\t|"
# The package of the extra `tables` that reads each kind of file, beside pandas.
PACKAGES = {
    ".csv": "", ".tsv": "", ".dta": "", ".sas7bdat": "", ".xpt": "", ".parquet": "pyarrow",
    ".xlsx": "openpyxl", ".sav": "pyreadstat", ".zsav": "pyreadstat",
}  # fmt: skip
TABLE_SUFFIXES = tuple(PACKAGES)
INSTALL_TABLES = "Install it: pip install 'tacit-learn[tables]'"


def is_database(source: object) -> bool:
    """Whether a source is the URL of a database, such as "sqlite:///clinic.db"."""
    return isinstance(source, str) and "://" in source


def read_table(path: Path, reading: Reading | None = None) -> Table:
    """Read a table from a file; its suffix says what it is.

    Raises:
        Misuse: The file cannot be read; the message names the file and, of texts, the line.
    """
    reading = Reading() if reading is None else reading
    try:
        if path.suffix in (".csv", ".tsv"):
            return _read_csv(path, reading)
        frame = _read_frame(path, reading)
    except (Misuse, MemoryError):
        raise
    except FileNotFoundError:
        remedy = "Check the name, and that its disk is mounted."
        raise NotReady(f"There is no file {path}.", remedy) from None
    except ImportError:
        problem = f"{path} needs {PACKAGES[path.suffix]}, which is missing."
        raise Misuse(problem, f"{INSTALL_TABLES}, or write the table as CSV.") from None
    except OSError as problem:
        kind = Misuse if isinstance(problem, PermissionError | IsADirectoryError) else NotReady
        remedy = "Check its disk and its permissions."
        raise kind(f"{path} cannot be read: {problem.strerror or problem}.", remedy) from None
    except Exception as problem:  # damaged files fail in many ways
        raise Misuse(
            f"{path} cannot be read: {first_line(problem).rstrip('.')}.",
            "Write it again, or write the table as CSV.",
        ) from None
    if path.suffix != ".xlsx":
        return Table.of(frame, str(path), reading)
    # Sheets often end with empty rows. The first row has the names.
    table = Table.of(frame, str(path), reading, first_row=2)
    return table.rows(np.flatnonzero(frame.notna().any(axis=1)))


def _read_frame(path: Path, reading: Reading) -> Any:
    import pandas

    match path.suffix:
        case ".parquet":
            return pandas.read_parquet(path, engine="pyarrow")
        case ".xlsx":
            with pandas.ExcelFile(path, engine="openpyxl") as book:
                if reading.sheet and reading.sheet not in book.sheet_names:
                    problem = f"{path} has no sheet {reading.sheet!r}, which read.sheet names."
                    raise unknown_name(problem, reading.sheet, map(str, book.sheet_names))
                return book.parse(reading.sheet or 0)
        case ".dta":
            return pandas.read_stata(path)
        case ".sas7bdat":
            return pandas.read_sas(path, encoding=reading.encoding or "infer")
        case ".xpt":
            return pandas.read_sas(path, encoding=reading.encoding or "utf-8")
        case _:
            return pandas.read_spss(path)


def _read_csv(path: Path, reading: Reading) -> Table:
    """A table of texts.

    pandas.read_csv would fill up rows that are too short, and does not tell which line a row is in.
    """
    import pandas

    # UTF-8 may begin with a byte-order mark, which spreadsheets write.
    encoding = reading.encoding or "utf-8-sig"
    with path.open(encoding=encoding, errors="replace") as file:
        header = file.readline()
    separator = reading.separator or max(DELIMITERS, key=header.count)
    rows = _rows(path, encoding, separator, reading.quote)
    names = [name.strip() for name in next(rows, (0, []))[1]]
    if not names:
        remedy = "Give a first line with the names of the columns."
        raise Misuse(f"{path} is empty.", remedy)
    check_names(names, str(path))
    remedy = f"Correct the line; put quotes around values that contain {separator!r}."
    texts: list[list[str]] = []
    lines: list[int] = []
    problems: list[Problem] = []
    for line, row in rows:
        if len(row) == len(names):
            texts.append(row)
            lines.append(line)
        else:
            what = f"{len(row)} values for {len(names)} columns"
            problems.append(Problem(str(path), line, "line", "", what, remedy))
    if not lines:
        check(problems)
    frame = pandas.DataFrame(texts, columns=names, dtype=object)
    table = Table.of(frame, str(path), reading)
    return replace(table, lines=np.array(lines), unit="line", problems=tuple(problems))


def _rows(path: Path, encoding: str, separator: str, quote: str) -> Iterator[tuple[int, list[str]]]:
    """The last line and the values of each row; blank lines are none."""
    with path.open(encoding=encoding) as file:
        reader = csv.reader(file, delimiter=separator, quotechar=quote, strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except UnicodeDecodeError as problem:
            name = encoding.removesuffix("-sig").upper()
            raise Misuse(
                f"{path}, line {_first_undecodable(path, encoding)} is not text in {name}: "
                f"{problem.reason}.",
                'Save it as UTF-8, or set its encoding, e.g. read.encoding = "latin-1".',
            ) from None
        except csv.Error as problem:
            remedy = "Correct the quotes around that line."
            raise Misuse(f"{path}, line {reader.line_num}: {problem}.", remedy) from None


def _first_undecodable(path: Path, encoding: str) -> int:
    """The first line of a file that is not text in this encoding."""
    contents = path.read_bytes()
    try:
        contents.decode(encoding)
    except UnicodeDecodeError as problem:
        contents = contents[: problem.start]
    return contents.count(b"\n") + 1


def read_database(url: str, reading: Reading) -> Table:
    """Read a table or a query of a database.

    Args:
        url: A URL of SQLAlchemy, such as "sqlite:///clinic.db" or "postgresql://host/clinic".
        reading: Its `table` or `query` says what to read.

    Raises:
        Misuse: Neither is set, or the database refuses it.
    """
    import pandas

    remedy = 'Set read.table = "patients", or read.query.'
    origin = url.partition("://")[0] or url
    try:
        import sqlalchemy

        parsed = sqlalchemy.make_url(url)
        # Without user, password and folder.
        origin = Path(parsed.database or "").name or origin
        what = reading.table or reading.query
        if what is None:
            raise Misuse(f"{origin} is a database, and read.table is not set.", remedy)
        with sqlalchemy.create_engine(parsed).connect() as connection:
            if reading.query is not None:
                frame = pandas.read_sql_query(sqlalchemy.text(reading.query), connection)
            else:
                *schema, name = what.split(".")
                frame = pandas.read_sql_table(name, connection, ".".join(schema) or None)
    except ImportError as problem:
        if problem.name in ("sqlalchemy", None):
            raise Misuse(
                f"{origin} needs sqlalchemy, which is missing.", f"{INSTALL_TABLES}."
            ) from None
        needed = f"The driver {problem.name} of this database is missing."
        raise Misuse(needed, f"Install it: pip install {problem.name}") from None
    except Misuse:
        raise
    except Exception as problem:  # each driver has errors of its own
        reason = f"{type(problem).__name__}: {first_line(problem).rstrip('.')}"
        raise Misuse(f"{origin} cannot be read: {reason.replace(url, origin)}.", remedy) from None
    return Table.of(frame, f"{origin}, {what}", reading)
