"""What every check did, for the report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ratchet.agents.checks.finding import NotPassed
from ratchet.judges.judge import Report
from ratchet.kernel import Outcome

_NUMBERS = ("seconds", "cpu_ms", "peak_bytes", "tests", "failures", "errors", "skipped", "calls")


@dataclass(slots=True)
class Record:
    """One section for each check that was begun, in order."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)

    @contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """A section to be filled in while the check is made. What ends the check is noted and goes on."""
        section = self.sections[name] = {"outcome": Outcome.ERROR, "reason": None}
        began = time.monotonic()
        try:
            yield section
            section["outcome"] = Outcome.PASSED
        except NotPassed as finding:
            section |= {**finding.details, "outcome": Outcome.FAILED, "reason": str(finding)}
            raise
        except BaseException as error:
            section["reason"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            section["seconds"] = round(time.monotonic() - began, 3)

    @property
    def last(self) -> str:
        """The check that was begun last."""
        return next(reversed(self.sections), "files")

    @property
    def passed(self) -> list[str]:
        return [name for name, section in self.sections.items() if section.get("outcome") is Outcome.PASSED]

    def numbers(self) -> dict[str, float]:
        """What can be measured of a version."""
        return {
            f"{name}.{key}": section[key]
            for name, section in self.sections.items()
            for key in _NUMBERS
            if isinstance(section.get(key), int | float)
        }

    def report(self, name: str, **head: Any) -> Report:
        return Report(f"{name}.json", json.dumps({**head, "checks": self.sections}).encode())
