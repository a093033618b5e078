"""A table: columns of values by name, and where each row came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse, unknown_name

# Texts that stand for a missing value, in lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one origin.

    Attributes:
        columns: Values by column: texts, numbers or truth values; None and NaN are missing.
        origin: The file, or what else errors call the table.
        lines: The line of each row in a text file; None if rows are counted instead.
    """

    columns: Mapping[str, Sequence[Any] | NDArray[Any]]
    origin: str
    lines: Sequence[int] | None = None
    _numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict, init=False, repr=False)
    _distinct: dict[str, tuple[list[str | None], NDArray[np.intp]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Where a row is, for messages."""
        if self.lines is not None:
            return f"{self.origin}, line {self.lines[row]}"
        return f"{self.origin}, row {row + 1}"

    def column(self, name: str, key: str = "") -> Sequence[Any] | NDArray[Any]:
        """A column; `key` is the setting that names it.

        Raises:
            Misuse: There is no such column; a similar one is suggested.
        """
        if name not in self.columns:
            named = f", which {key} names" if key else ""
            problem = f"{self.origin} has no column {name!r}{named}."
            raise unknown_name(problem, name, self.columns)
        return self.columns[name]

    def numbers(
        self, name: str, otherwise: str = "list the column's categories in [data.schema]"
    ) -> NDArray[np.float64]:
        """A column as numbers; NaN is missing. `otherwise` is what else to do about other values.

        Raises:
            Misuse: A value is no number, or infinite.
        """
        values, found = self.column(name), self._parsed(name)
        if len(wrong := np.flatnonzero(np.isinf(found))):
            row = int(wrong[0])
            text = _text(values[row])
            if text is not None and text.lower().lstrip("+-") in ("inf", "infinity"):
                problem, remedy = "is infinite", "Correct it, or leave it empty: it is missing."
            else:
                problem = "is not a number"
                remedy = f"Correct it, or {otherwise}."
                if "," in (text or ""):
                    remedy = f"Write numbers with a decimal point, or {otherwise}."
            raise Misuse(f"{self.place(row)}, column {name!r}: {text!r} {problem}.", remedy)
        return found

    def distinct_texts(self, name: str, key: str = "") -> tuple[list[str | None], NDArray[np.intp]]:
        """The different texts of a column, the first to occur first, and which each row has [n].

        None is missing. Whole numbers are written without a point.
        """
        if name not in self._distinct:
            values = self.column(name, key)
            # True equals 1, but is another text.
            typed = list(zip(map(type, values), values, strict=True))
            found: dict[str | None, int] = {}
            places = {
                one: found.setdefault(_text(one[1]), len(found)) for one in dict.fromkeys(typed)
            }
            which = np.fromiter(map(places.__getitem__, typed), np.intp, len(typed))
            self._distinct[name] = list(found), which
        return self._distinct[name]

    def row_of(self, name: str, text: str | None) -> int:
        """The first row with that text in a column."""
        found, which = self.distinct_texts(name)
        return int(np.flatnonzero(which == found.index(text))[0])

    def is_numeric(self, name: str) -> bool:
        """Whether all values of a column that are not missing are finite numbers."""
        values = self.column(name)
        if isinstance(values, np.ndarray) and values.dtype.kind == "b":
            return False
        return not bool(np.isinf(self._parsed(name)).any())

    def _parsed(self, name: str) -> NDArray[np.float64]:
        """A column as numbers: NaN where it is missing, infinity where it is no finite number."""
        if name not in self._numbers:
            values = self.columns[name]
            if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
                self._numbers[name] = values.astype(np.float64)
            else:
                self._numbers[name] = _parsed_numbers(values)
        return self._numbers[name]

    def rows(self, chosen: NDArray[np.intp]) -> Table:
        """A table of some of the rows."""
        lines = None if self.lines is None else [self.lines[row] for row in chosen]
        columns = {
            name: values[chosen]
            if isinstance(values, np.ndarray)
            else [values[row] for row in chosen]
            for name, values in self.columns.items()
        }
        return Table(columns, self.origin, lines)


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


def _parsed_numbers(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    """Values as numbers: NaN where one is missing, infinity where it is no finite number."""
    try:
        # Only texts can be joined. Those with an underscore are left to `_number`.
        if "_" not in "".join(values):
            return np.fromiter(map(float, values), np.float64, len(values))
    except (TypeError, ValueError):
        pass
    # Names and missing values occur more than once: parse each of them once.
    numbers = {value: _number(value) for value in set(values)}
    return np.fromiter(map(numbers.__getitem__, values), np.float64, len(values))


def _number(value: Any) -> float:
    # Python reads 1_000 as a number, but here it is more likely to be a name.
    if isinstance(value, str) and "_" in value:
        return math.inf
    try:
        return float(value)
    except (TypeError, ValueError):
        missing = value is None or (isinstance(value, str) and value.strip().lower() in MISSING)
        return math.nan if missing else math.inf


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return None if text.lower() in MISSING else text
