"""Reports that a command promised to write: opened with care, since the candidate's code may have written them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_REPORT_BYTES = 32 * 1024 * 1024
_LARGEST = 1e150


class BadReport(ValueError):
    """A promised report is absent or cannot be read as what it should be."""


@dataclass(frozen=True, slots=True)
class JsonReport:
    """A JSON file and the numbers to take from it, by dotted path: `{"coverage": "totals.percent_covered"}`."""

    file: str
    numbers: Mapping[str, str] = field(default_factory=dict)


def read_report(directory: Path, name: str) -> bytes:
    """The report `name` below `directory`. Raises `BadReport`.

    No part of its path may be a link, which could lead to a file that only Ratchet can read, and it must be a plain
    file: opening a pipe would wait for ever.
    """
    try:
        descriptor = _opened(directory, Path(name).parts)
    except OSError as error:
        raise BadReport(f"the report {name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise BadReport(f"the report {name} is not a plain file")
        if found.st_size > MAX_REPORT_BYTES:
            raise BadReport(
                f"the report {name} has {found.st_size} bytes; at most {MAX_REPORT_BYTES} are read"
            )
        return file.read(MAX_REPORT_BYTES)


def json_numbers(content: bytes, report: JsonReport) -> dict[str, float]:
    """The numbers that `report` promises, from its content. Raises `BadReport`."""
    document = strict_json(content, report.file)
    return {name: _number(document, path, report.file) for name, path in report.numbers.items()}


def strict_json(content: bytes, name: str) -> Any:
    """One JSON document as the standard has it: no NaN, no name twice in an object, nothing behind it."""
    try:
        return json.loads(content, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name} is not JSON: {str(error)[:200]}") from None


def finite(value: object) -> float | None:
    """`value` as a number that can be compared, if it is one: no NaN, and not so large that its square is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        return None
    return float(value)


def _opened(directory: Path, parts: tuple[str, ...]) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    held = os.open(directory, flags | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, flags | os.O_DIRECTORY, dir_fd=held)
            os.close(held)
            held = deeper
        return os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=held)
    finally:
        os.close(held)


def _number(document: Any, path: str, name: str) -> float:
    value = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    number = finite(value)
    if number is None:
        raise BadReport(f"the report {name} has no finite number at {path}")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found
