"""Agents to be checked, and checking them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.checks import CheckedVersion, check_version
from ratchet.agents.checks.version import NOTHING_USED, Used
from ratchet.config.workflow_settings import Agents
from tests.agents.specimens import write_agent

Check = Callable[..., CheckedVersion]


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The directory of an agent that has nothing wrong."""
    return write_agent(tmp_path / "staging")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Checks a directory with these settings. Whatever is in it, nothing is left behind."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))

    def run(
        directory: Path,
        *,
        base: Path | None = None,
        state: dict[str, Any] | None = None,
        deadline: float | None = None,
        used: Used = NOTHING_USED,
        **settings: Any,
    ) -> CheckedVersion:
        known = Agents(**settings)
        return asyncio.run(
            check_version(
                directory,
                known,
                agent="greeter",
                base=base,
                state=state,
                used=used,
                deadline_seconds=deadline,
            )
        )

    yield run
    assert list(place.iterdir()) == []


def sections(checked: CheckedVersion) -> dict[str, Any]:
    """What the report says of each check."""
    [report] = checked.judged.reports
    assert checked.judged.verdict.report == report.sha256
    found: dict[str, Any] = json.loads(report.content)["checks"]
    return found
