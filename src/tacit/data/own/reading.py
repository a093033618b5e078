"""How tables are read: the dialect of texts, and which values stand for which others."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tacit.core.errors import Misuse, unknown_name

Recoding = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Reading:
    """Options of reading tables.

    Attributes:
        separator: What separates the values of a line of text; None: what the first line has most
            of, of commas, semicolons, tabs and bars.
        quote: What is around values that contain separators.
        encoding: The encoding of texts in files; None: UTF-8, or what the file itself says.
        decimal: What separates the decimals of a number.
        thousands: What separates groups of three digits; empty: nothing does.
        sheet: The sheet of an Excel file; None: the first.
        table: The table of a database, such as "patients" or "clinic.patients".
        query: A query of a database, in place of a table.
        recode: By column, the values that are written differently here, and what they stand for.
    """

    separator: str | None = None
    quote: str = '"'
    encoding: str | None = None
    decimal: str = "."
    thousands: str = ""
    sheet: str | None = None
    table: str | None = None
    query: str | None = None
    recode: Recoding = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, recode: Any = None) -> Reading:
        """Options by name, and a recoding by column, as a configuration has them.

        Raises:
            Misuse: An option is unknown, or has an impossible value.
        """
        options = {} if options is None else options
        known = [each.name for each in fields(cls) if each.name != "recode"]
        for name, value in options.items():
            if name not in known:
                raise unknown_name(f"read has an option {name!r}.", name, known)
            if not isinstance(value, str):
                raise Misuse(f"read.{name} is {value!r}.", "Give a text.")
            if name in ("separator", "quote", "decimal", "thousands") and len(value) != 1:
                raise Misuse(f"read.{name} is {value!r}.", "Give one character.")
        reading = cls(**options, recode=_recoding(recode))
        if reading.decimal in (reading.thousands, reading.separator):
            problem = f"read.decimal is {reading.decimal!r}, and another mark is the same."
            raise Misuse(problem, "Set read.separator and read.thousands to other characters.")
        if reading.table is not None and reading.query is not None:
            raise Misuse("read sets table and query.", "Set one of them.")
        try:
            codecs.lookup(reading.encoding or "utf-8")
        except (LookupError, ValueError):  # a null character
            remedy = 'Give its usual name, such as "utf-8", "latin-1" or "cp1252".'
            raise Misuse(f"read.encoding is {reading.encoding!r}.", remedy) from None
        return reading

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return self.decimal == "." and not self.thousands

    def number(self, text: str) -> float:
        """A text as a number; raises ValueError if it is none."""
        # Python reads 1_000 as a number, but here it is more likely to be a name.
        if "_" in text or (self.decimal != "." and "." in text.replace(self.thousands, "")):
            raise ValueError(text)
        whole, mark, decimals = text.partition(self.decimal)
        if self.thousands and self.thousands in whole:
            # Groups of other lengths are mistakes: 1,5 is not 15.
            if not re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(self.thousands)}\d{{3}})+", whole):
                raise ValueError(text)
            whole = whole.replace(self.thousands, "")
        return float(f"{whole}{'.' if mark else ''}{decimals}")


def _recoding(recode: Any) -> dict[str, dict[str, str]]:
    remedy = 'Give the other spellings of each column, e.g. sex = { m = "male", M = "male" }.'
    if not isinstance(recode, Mapping | None):
        raise Misuse(f"recode is {recode!r}.", remedy)
    recoding = {}
    for column, values in (recode or {}).items():
        if not isinstance(values, Mapping):
            raise Misuse(f"recode.{column} is {values!r}.", remedy)
        recoding[column] = {str(old).strip(): str(new).strip() for old, new in values.items()}
    return recoding
