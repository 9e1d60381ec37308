"""One session of a described agent: what it printed and used, what its end means, and its result."""

from __future__ import annotations

import errno
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from ratchet.config.engine_settings import CommandSettings, Prices
from ratchet.engines.endpoint import HiddenKeys
from ratchet.engines.engine import (
    EventKind,
    Failure,
    Fault,
    Request,
    Session,
    Transcript,
)
from ratchet.engines.program import Invocation, answer_of, check_budget, refuse_cost_limit
from ratchet.engines.providers import price_of, priced
from ratchet.engines.session_home import ForeignFile
from ratchet.kernel import Usage, decoded
from ratchet.sandbox import Finished


def found(document: Any, path: str) -> list[Any]:
    """Everything that the path leads to; nothing where it leads nowhere or to null."""
    return [
        value for each in path.split("+") for value in _along(document, each.split(".")) if value is not None
    ]


def _along(value: Any, parts: list[str]) -> Iterator[Any]:
    if not parts:
        yield value
        return
    first, *rest = parts
    for step in _steps(value, first):
        yield from _along(step, rest)


def _steps(value: Any, part: str) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values()) if part == "*" else [value[part]] if part in value else []
    if isinstance(value, list):
        if part == "*":
            return value
        return [value[int(part)]] if part.isdecimal() and int(part) < len(value) else []
    return []


_MULTIPLES = {"k": 1_000, "m": 1_000_000}


class Findings:
    """Takes each line as it comes. Output that should be JSON and is not leaves the answer unfound."""

    def __init__(self, description: CommandSettings) -> None:
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

    def answer(self, file: ForeignFile | None) -> str | None:
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


_MOST_ANSWER_BYTES = 16 * 1024 * 1024


def _content(file: ForeignFile | None) -> str | None:
    if file is None:
        return None
    try:
        return decoded(file.read(_MOST_ANSWER_BYTES)).strip() or None
    except OSError as error:
        if error.errno != errno.EFBIG:
            return None
        raise Fault(
            Failure.BAD_OUTPUT,
            f"the answer in {file.path} is no answer: {error.strerror}",
            hint="its transcript has all that it printed; check `answer` in its description",
        ) from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_SHOWN = 300
_HINTS = {
    Failure.MISSING: "install or configure it",
    Failure.NO_ACCESS: "check its key, its model and the credit of its account",
    Failure.REFUSED: "check its key, its model and the prompt",
    Failure.RATE_LIMITED: "try again later, or run fewer sessions at once",
}
_TRANSCRIPT = "its transcript has all that it printed"


def fault_of(
    description: CommandSettings, name: str, finished: Finished, output: str, error: str | None
) -> Fault | None:
    """Why the session has failed; `None` if its process ended well and reported no error."""
    if finished.exit_code == 0 and error is None:
        return None
    failure, seconds = _meaning(description, finished, output)
    said = error or output.strip()[-_SHOWN:] or "it printed nothing"
    return Fault(
        failure,
        f"{name} {_ending(finished)}: {said}",
        hint=_HINTS.get(failure, _TRANSCRIPT),
        retry_after=seconds if failure is Failure.RATE_LIMITED else None,
    )


def did_nothing(description: CommandSettings, output: str) -> bool:
    """Whether a failed session has surely done nothing."""
    return description.nothing_done is not None and re.search(description.nothing_done, output) is not None


def _meaning(description: CommandSettings, finished: Finished, output: str) -> tuple[Failure, float | None]:
    for each in description.exit_codes:
        code, _, failure = each.partition("=")
        if finished.exit_code == int(code):
            return Failure(failure), _seconds(description, output)
    for each in description.patterns:
        failure, _, pattern = each.partition("=")
        if match := re.search(pattern, output):
            return Failure(failure), _waiting(match)
    return Failure.CRASHED, None


def _seconds(description: CommandSettings, output: str) -> float | None:
    """How long to wait, from any pattern that tells it: the exit code alone does not."""
    matches = (re.search(each.partition("=")[2], output) for each in description.patterns)
    return next((seconds for match in matches if match and (seconds := _waiting(match)) is not None), None)


def _waiting(match: re.Match[str]) -> float | None:
    try:
        return max(0.0, float(match.groupdict().get("seconds") or ""))
    except ValueError:
        return None


def _ending(finished: Finished) -> str:
    if finished.signal is not None:
        return f"was ended by signal {finished.signal}"
    return "reported an error" if finished.exit_code == 0 else f"ended with exit code {finished.exit_code}"


# What is told line by line; an agent that prints more is still read to its end.
_NOTED = 10_000


class CommandSession:
    def __init__(
        self,
        name: str,
        description: CommandSettings,
        request: Request,
        secrets: HiddenKeys,
        prices: Mapping[str, Prices],
    ) -> None:
        self._name = name
        self._description = description
        self._request = request
        self._secrets = secrets
        self.model = request.model or description.model
        self._price = price_of(self.model, prices)
        self._transcript = Transcript(request)
        self._findings = Findings(description)
        self._noted = 0
        self._reported = Usage()
        self._text = ""
        self._layers: tuple[str, ...] = ()
        self._bounded_by: Mapping[str, str] = {}
        self.worked = False

    def check_price(self) -> None:
        """Raise `Fault` when a budget of money is given that could not be held to."""
        if self._price is None and not self._description.reports_cost:
            refuse_cost_limit(self._request, self.model, f"the model of {self._name}")

    def begin(self, invocation: Invocation) -> None:
        self.worked = True
        self._transcript.say(EventKind.STARTED, data={"program": invocation.argv[0], "model": self.model})

    def hear(self, line: bytes) -> None:
        text = self._secrets.hide(decoded(line)).rstrip("\r\n")
        self._findings.hear(text)
        self._noted += 1
        if self._noted <= _NOTED and text:
            self._transcript.say(EventKind.NOTE, text)

    def used(self) -> Usage:
        """What was used until now; the listener gets an event whenever that is more than before."""
        counted = self._findings.usage
        known = counted if counted.cost_microusd else priced(counted, self._price)
        usage = replace(known, wall_ms=self._transcript.wall_ms)
        if (usage.tokens, usage.cost_microusd) != (self._reported.tokens, self._reported.cost_microusd):
            self._reported = usage
            self._transcript.say(EventKind.USAGE, data={"model": self.model, **asdict(usage)})
        return usage

    def look(self) -> Fault | None:
        """What is to end the session while it runs."""
        return check_budget(self._request, self.used())

    def session(self, output: Any = None) -> Session:
        usage = self.used()
        return Session(
            engine=self._name,
            model=self.model,
            text=self._text,
            output=output,
            usage=usage,
            transcript=self._transcript.content,
            data={"layers": list(self._layers), "bounded_by": dict(self._bounded_by)},
        )

    def conclude(self, finished: Finished, file: ForeignFile | None) -> Session:
        """The session, now that its program has ended. Raises `Fault` unless it left something that can be used."""
        self._layers, self._bounded_by = finished.layers, finished.bounded_by
        stderr = self._secrets.hide(decoded(finished.stderr))
        self._findings.close(stderr)
        printed = f"{self._findings.output}\n{stderr}"
        if stderr.strip():
            self._transcript.say(EventKind.NOTE, stderr.strip(), {"stream": "stderr"})
        self.used()
        if fault := fault_of(self._description, self._name, finished, printed, self._findings.error):
            self.worked = not did_nothing(self._description, printed)
            raise fault
        if fault := self.look():
            raise fault
        answer = self._findings.answer(file)
        if answer is None:
            raise Fault(
                Failure.BAD_OUTPUT,
                f"{self._name} ended well but left no answer in {file.path if file else self._description.answer}",
                hint="its transcript has all that it printed; check `answer` in its description",
            )
        self._text = self._secrets.hide(answer)
        if self._text:
            self._transcript.say(EventKind.MESSAGE, self._text)
        return self.session(answer_of(self._request, self._text, self._name))
