"""CSV files that are safe to open in a spreadsheet. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """The text of a CSV file (RFC 4180, lines end with a line feed); a cell of ``None`` is empty.

    A spreadsheet runs a text that begins with ``=``, ``+``, ``-``, ``@`` or a tab as a formula. Users choose ids,
    so such a text gets an apostrophe in front. A carriage return becomes a space: readers take it for the end of a row.
    Numbers stay as they are, also negative ones.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_harmless(cell) for cell in header])
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    return text.getvalue()


def _harmless(cell: object) -> object:
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = cell.replace("\r", " ")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
