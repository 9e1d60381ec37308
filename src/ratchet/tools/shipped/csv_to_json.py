"""The rows of a CSV text."""

from __future__ import annotations

import csv
import io
from typing import Any


def run(csv_text: str, delimiter: str = ",", numbers: bool = False) -> dict[str, Any]:
    reader = csv.DictReader(io.StringIO(csv_text.removeprefix("\ufeff")), delimiter=delimiter)
    columns = list(reader.fieldnames or [])
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} does not have {len(columns)} values")
        rows.append({name: _number(value) if numbers else value for name, value in row.items()})
    return {"columns": columns, "rows": rows, "count": len(rows)}


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
