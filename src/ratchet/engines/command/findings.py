"""Finding the answer and the usage in what an agent printed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from ratchet.config.command_settings import Command
from ratchet.engines.command.json_path import found
from ratchet.kernel import Usage

_MULTIPLES = {"k": 1_000, "m": 1_000_000}


class Findings:
    """Takes each line as it comes. Output that is told to be JSON and is not leaves the answer unfound."""

    def __init__(self, description: Command) -> None:
        self._description = description
        self._kind, _, self._where = description.answer.partition(":")
        self._lines: list[str] = []
        self._counted: list[Usage] = []
        self._answer: str | None = None
        self.error: str | None = None

    def hear(self, line: str) -> None:
        self._lines.append(line)
        if self._kind != "json" and line.startswith("{"):
            self._look_into(_parsed(line))
        if self._description.usage_pattern is not None:
            self._count_matches(line)

    def close(self, stderr: str) -> None:
        """Nothing comes any more, but for what was written to stderr."""
        if self._kind == "json":
            self._look_into(_last_document(self.output))
        if self._description.usage_pattern is not None:
            self._count_matches(stderr)
        pattern = self._description.error_pattern
        if pattern is not None and (match := re.search(pattern, f"{self.output}\n{stderr}", re.MULTILINE)):
            self.error = self.error or match[0]

    @property
    def output(self) -> str:
        return "\n".join(self._lines)

    @property
    def usage(self) -> Usage:
        if self._description.usage_counts == "sum":
            return sum(self._counted, Usage())
        return self._counted[-1] if self._counted else Usage()

    def answer(self, file: Path | None) -> str | None:
        """The last message; `None` when there is none."""
        match self._kind:
            case "none":
                return ""
            case "stdout":
                return self.output.strip() or None
            case "last_line":
                return next((line.strip() for line in reversed(self._lines) if line.strip()), None)
            case "file":
                return _content(file)
            case _:
                return self._answer

    def _look_into(self, document: Any) -> None:
        if document is None:
            return
        description = self._description
        if self._kind in ("json", "jsonl") and (values := found(document, self._where)):
            self._answer = _text(values[-1])
        if description.error_at and (errors := found(document, description.error_at)):
            self.error = _text(errors[-1])
        counted = self._count(document)
        if counted != Usage():
            self._counted.append(counted)

    def _count(self, document: Any) -> Usage:
        def total(path: str | None) -> float:
            return sum(_number(value) for value in found(document, path)) if path else 0

        description = self._description
        return _usage(
            total(description.input_tokens_at),
            total(description.cached_tokens_at),
            total(description.output_tokens_at),
            total(description.cost_usd_at),
        )

    def _count_matches(self, text: str) -> None:
        for match in re.finditer(self._description.usage_pattern or "", text):
            groups = {"input": "", "cached": "", "output": "", "cost": ""} | match.groupdict("")
            self._counted.append(
                _usage(*(_number(groups[name]) for name in ("input", "cached", "output", "cost")))
            )


def _usage(tokens_in: float, cached: float, tokens_out: float, dollars: float) -> Usage:
    return Usage(
        input_tokens=round(tokens_in),
        cached_tokens=min(round(cached), round(tokens_in)),
        output_tokens=round(tokens_out),
        cost_microusd=math.ceil(round(dollars * 1_000_000, 3)),
    )


def _number(value: Any) -> float:
    """A count; anything that cannot be one counts as none. People's spelling is understood: `1,200` and `1.2k`."""
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        multiple = _MULTIPLES.get(text[-1:].lower(), 1)
        try:
            value = float(text[:-1] if multiple > 1 else text) * multiple
        except ValueError:
            return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return 0
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _last_document(output: str) -> Any:
    """The whole output as JSON, or what begins with the first line that opens an object: many print warnings first."""
    whole = _parsed(output)
    if whole is not None:
        return whole
    opening = re.search(r"^\{", output, re.MULTILINE)
    return _parsed(output[opening.start() :]) if opening else None


def _content(file: Path | None) -> str | None:
    # Not through a link: an agent could point it at what is not its own.
    if file is None or file.is_symlink() or not file.is_file():
        return None
    return file.read_text(errors="replace").strip() or None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
