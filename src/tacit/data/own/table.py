"""A table: a pandas data frame, where each of its rows came from, and how its values are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse, unknown_name
from tacit.data.own.problems import MOST_SHOWN, Problem, check
from tacit.data.own.reading import Reading

# Texts that stand for a missing value, in lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
PLAIN = (str, bool, int, float, np.bool_, np.number, Decimal)
LIST_CATEGORIES = "list the column's categories in [data.schema]"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one origin.

    Attributes:
        frame: A pandas.DataFrame, whose columns have different names.
        origin: The file, or what else errors call the table.
        lines: The line or row of the origin that each row comes from [n].
        unit: Whether these are lines or rows.
        reading: How texts become numbers, and which values stand for others.
        problems: Rows of the origin that could not be read.
    """

    frame: Any
    origin: str
    lines: NDArray[np.int64]
    unit: str = "row"
    reading: Reading = field(default_factory=Reading)
    problems: tuple[Problem, ...] = ()
    _texts: dict[str, tuple[list[str | None], NDArray[np.intp]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, frame: Any, origin: str, reading: Reading, first_row: int = 1) -> Table:
        """A table of a data frame; its rows are counted from `first_row`.

        Raises:
            Misuse: It has no rows, or names of columns are missing or occur twice.
        """
        if list(frame.index.names) != [None]:
            frame = frame.reset_index()
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        check_names(frame.columns, origin)
        if not len(frame):
            raise Misuse(f"{origin} has no rows.", "Give at least one row below the column names.")
        return cls(frame, origin, np.arange(first_row, first_row + len(frame)), reading=reading)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.frame.columns)

    def problem(
        self, row: int | None, column: str, what: str, remedy: str, count: int = 1
    ) -> Problem:
        """A problem of a row and of `count` rows altogether; None: of no single row."""
        if count > 1:
            what = f"{what} (and in {count - 1:,} more row{'s' if count > 2 else ''})"
        line = 0 if row is None else int(self.lines[row])
        return Problem(self.origin, line, self.unit, column, what, remedy)

    def problems_where(
        self, wrong: NDArray[np.bool_], column: str, what: str, remedy: str
    ) -> list[Problem]:
        """A problem of the rows where something is wrong [n]; none if nothing is."""
        count = int(wrong.sum())
        row = int(wrong.argmax())
        return [self.problem(row, column, what, remedy, count)] if count else []

    def require(self, name: str, key: str = "") -> None:
        """Raise Misuse if there is no such column, which `key` names; suggest a similar one."""
        if name not in self.frame:
            named = f", which {key} names" if key else ""
            known = unknown_name("", name, self.columns).remedy
            check([self.problem(None, "", f"there is no column {name!r}{named}", known)])

    def texts(self, name: str, key: str = "") -> tuple[list[str | None], NDArray[np.intp]]:
        """The different texts of a column, the first to occur first, and which each row has [n].

        None is missing. Whole numbers are written without a point.

        Raises:
            Misuse: There is no such column, or it holds lists, dates or other objects.
        """
        import pandas

        self.require(name, key)
        if name not in self._texts:
            values, recode = self.frame[name], self.reading.recode.get(name, {})
            if isinstance(values.dtype, pandas.CategoricalDtype):
                values = values.astype(object)
            if values.dtype.kind not in "biufO":
                check([self._odd(name, str(values.dtype))])
            if values.dtype == object and pandas.api.types.infer_dtype(values) != "string":
                # True equals 1, but is another text.
                values = values.map(lambda value: self._plain_text(name, value))
            which, distinct = pandas.factorize(values, use_na_sentinel=False)
            positions: dict[str | None, int] = {}
            which_text = []
            for value in distinct:
                text = self._plain_text(name, value)
                text = recode.get(text, text)
                known = None if text.lower() in MISSING else text
                which_text.append(positions.setdefault(known, len(positions)))
            self._texts[name] = list(positions), np.array(which_text, np.intp)[which]
        return self._texts[name]

    def coded(
        self, name: str, known: Sequence[str], meaning: str, problems: list[Problem]
    ) -> NDArray[np.int64]:
        """Which of the known texts each row has [n]; −1: missing, −2: another, a problem."""
        texts, which = self.texts(name)
        positions: dict[str | None, int] = {text: at for at, text in enumerate(known)}
        codes = np.array([positions.get(text, -1 if text is None else -2) for text in texts])
        bad: dict[int, tuple[str, str]] = {}
        for at in np.flatnonzero(codes == -2).tolist():
            # Later ones are not shown, and similar names take time to find.
            similar = unknown_name("", texts[at], known).remedy if len(bad) < MOST_SHOWN else ""
            bad[at] = f"{texts[at]!r} is not one of {meaning}", similar
        problems += self._problems_of_texts(name, bad)
        return codes[which]

    def numbers(
        self, name: str, problems: list[Problem], otherwise: str = LIST_CATEGORIES
    ) -> NDArray[np.float64]:
        """A column as numbers [n]; NaN is missing.

        Values that are infinite or no numbers are problems; `otherwise` is what else to do about
        them.
        """
        self.require(name)
        parsed = self.parsed(name)
        if not np.isinf(parsed).any():
            return parsed
        texts, which = self.texts(name)
        bad = {}
        for at in np.unique(which[np.isinf(parsed)]).tolist():
            text = str(texts[at])
            if text.lower().lstrip("+-") in ("inf", "infinity"):
                remedy = "Correct it, or leave it empty: it is missing."
                bad[at] = f"{text!r} is infinite", remedy
                continue
            remedy = f"Correct it, or {otherwise}."
            if "," in text and self.reading.is_plain:
                remedy = f"Write numbers with a decimal point, or set read.decimal; or {otherwise}."
            bad[at] = f"{text!r} is not a number", remedy
        problems += self._problems_of_texts(name, bad)
        return np.where(np.isinf(parsed), np.nan, parsed)

    def is_numeric(self, name: str) -> bool:
        """Whether all values of a column that are not missing are finite numbers."""
        self.require(name)
        return not bool(np.isinf(self.parsed(name)).any())

    def is_number(self, text: str | None) -> bool:
        """Whether a text is a finite number here, or would be with another decimal mark."""
        return text is not None and not all(
            math.isinf(self._number(spelling)) for spelling in (text, text.replace(",", "."))
        )

    def rows(self, chosen: NDArray[np.intp]) -> Table:
        """A table of some of the rows."""
        return replace(self, frame=self.frame.iloc[chosen], lines=self.lines[chosen])

    def parsed(self, name: str) -> NDArray[np.float64]:
        """A column as numbers: NaN where it is missing, infinity where it is no finite number."""
        if name not in self._numbers:
            values, plain = self.frame[name], name not in self.reading.recode
            parsed = None
            if plain and values.dtype.kind in "iuf":
                parsed = values.to_numpy(np.float64, na_value=np.nan)
            elif plain and self.reading.is_plain:
                parsed = _numbers_of_texts(values.to_numpy(object))
            if parsed is None:
                texts, which = self.texts(name)
                parsed = np.array([self._number(text) for text in texts])[which]
            self._numbers[name] = parsed
        return self._numbers[name]

    def _number(self, text: str | None) -> float:
        try:
            return math.nan if text is None else self.reading.number(text)
        except ValueError:
            return math.inf

    def _plain_text(self, name: str, value: Any) -> str:
        """A value as a text without spaces around it; empty if it is missing."""
        import pandas

        if isinstance(value, str):
            return value.strip()
        if value is None or value is pandas.NA or value is pandas.NaT:
            return ""
        if not isinstance(value, PLAIN):
            check([self._odd(name, f"a {type(value).__name__}")])
        if value != value:
            return ""
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        return str(int(value)) if whole else str(value)

    def _odd(self, name: str, what: str) -> Problem:
        remedy = "Convert it to numbers or texts, or leave it out."
        return self.problem(None, name, f"it holds {what}", remedy)

    def _problems_of_texts(self, name: str, bad: Mapping[int, tuple[str, str]]) -> list[Problem]:
        """A problem for each of these texts, by position: what is wrong, and the remedy."""
        if not bad:
            return []
        _, first, counts = np.unique(self.texts(name)[1], return_index=True, return_counts=True)
        return [
            self.problem(int(first[at]), name, what, remedy, int(counts[at]))
            for at, (what, remedy) in bad.items()
        ]


def _numbers_of_texts(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Texts as numbers, if all are such as Python reads them or empty: the fast way."""
    try:
        # Only texts can be joined. Python reads 1_000 as a number; `Reading.number` does not.
        if "_" in "".join(values):
            return None
        return np.where(values == "", "nan", values).astype(np.float64)
    except (TypeError, ValueError):
        return None


def check_recoding(tables: Sequence[Table]) -> None:
    """Raise Misuse if a column is recoded that no table has."""
    every = dict.fromkeys(name for table in tables for name in table.columns)
    for name in tables[0].reading.recode:
        if name not in every:
            raise unknown_name(f"No table has a column {name!r} to recode.", name, every)


def check_names(names: Iterable[str], origin: str) -> None:
    """Raise Misuse if a column has no name, or two have the same."""
    seen: set[str] = set()
    for number, name in enumerate(names, start=1):
        if not name:
            remedy = "Name it, or write the table without that column (in pandas: index=False)."
            raise Misuse(f"{origin}: column {number} has no name.", remedy)
        if name in seen:
            raise Misuse(f"{origin} has two columns {name!r}.", "Rename or remove one of them.")
        seen.add(name)
