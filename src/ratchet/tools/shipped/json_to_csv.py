"""Rows as a CSV text."""

from __future__ import annotations

import csv
import io
from typing import Any


def run(rows: list[dict[str, Any]], columns: list[str] | None = None) -> dict[str, Any]:
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return {"csv_text": text.getvalue(), "count": len(rows)}
