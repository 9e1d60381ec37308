"""What the end of an agent's process means."""

from __future__ import annotations

import re

from ratchet.config.command_settings import Command
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.sandbox import Finished

_SHOWN = 300
_HINTS = {
    Failure.MISSING: "install or configure it",
    Failure.NO_ACCESS: "check its key, its model and the credit of its account",
    Failure.REFUSED: "check its key, its model and the prompt",
    Failure.RATE_LIMITED: "try again later, or run fewer sessions at once",
}
_TRANSCRIPT = "its transcript has all that it printed"


def fault_of(
    description: Command, name: str, finished: Finished, output: str, error: str | None
) -> Fault | None:
    """Why the session has failed; `None` if its process ended well and told of no error."""
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


def did_nothing(description: Command, output: str) -> bool:
    """Whether a failed session has surely done nothing."""
    return description.nothing_done is not None and re.search(description.nothing_done, output) is not None


def _meaning(description: Command, finished: Finished, output: str) -> tuple[Failure, float | None]:
    for each in description.exit_codes:
        code, _, failure = each.partition("=")
        if finished.exit_code == int(code):
            return Failure(failure), _seconds(description, output)
    for each in description.patterns:
        failure, _, pattern = each.partition("=")
        if match := re.search(pattern, output):
            return Failure(failure), _waiting(match)
    return Failure.CRASHED, None


def _seconds(description: Command, output: str) -> float | None:
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
    return "told of an error" if finished.exit_code == 0 else f"ended with exit code {finished.exit_code}"
