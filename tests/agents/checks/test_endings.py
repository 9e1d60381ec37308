"""That a check ends whatever happens, that it says so, and that nothing continues afterwards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ratchet.agents.checks import VersionJudge, check_version
from ratchet.config.workflow_settings import Agents
from ratchet.judges import Candidate, hear
from ratchet.kernel import Outcome
from tests.agents.checks.conftest import Check
from tests.agents.specimens import write_agent
from tests.waiting import eventually_async

MARK = "the tests have begun"
HANGS = f"import time\ndef test_it():\n    open('begun', 'w').write({MARK!r})\n    time.sleep(600)\n"


def at_work_below(directory: Path) -> list[str]:
    """The processes that have their working directory there."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and (place / "cwd").readlink().is_relative_to(directory):
                found.append(place.name)
        except OSError:
            continue
    return found


@pytest.mark.soak
def test_a_version_whose_time_ran_out_was_not_judged(check: Check, agent: Path) -> None:
    (agent / "tests.py").write_text(HANGS)
    verdict = check(agent, deadline=4).judged.verdict
    assert verdict.outcome is Outcome.ERROR
    assert "the attempt's time ran out" in verdict.reason


@pytest.mark.soak
def test_a_schema_that_takes_for_ever_to_apply_holds_nobody_up(check: Check, agent: Path) -> None:
    schema = {"type": "object", "properties": {"lesson": {"pattern": "^(a+)+$"}}}
    (agent / "state_schema.json").write_text(json.dumps(schema))
    (agent / "state.json").write_text(json.dumps({"lesson": "a" * 64 + "!"}))
    assert check(agent, deadline=3).judged.verdict.outcome is Outcome.ERROR


@pytest.mark.soak
def test_cancelling_ends_everything(agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    (agent / "tests.py").write_text(HANGS)

    async def cancelled() -> None:
        checking = asyncio.create_task(check_version(agent, Agents(), agent="greeter"))
        await eventually_async(lambda: bool(list(place.glob("*/tests/*/begun"))))
        assert at_work_below(place)
        checking.cancel()
        await asyncio.wait({checking})
        assert checking.cancelled()
        await eventually_async(lambda: not at_work_below(place))

    asyncio.run(cancelled())
    assert list(place.iterdir()) == []


def test_it_is_a_judge_like_every_other(tmp_path: Path) -> None:
    agent = write_agent(tmp_path / "staging", broken="syntax")
    judge = VersionJudge(Agents(), "greeter")
    judged = asyncio.run(hear(judge, Candidate("c" * 40, "b" * 40, agent, "codex")))
    assert judged.verdict.outcome is Outcome.FAILED
    assert judged.verdict.judge_hash == judge.hash
    assert "runner.py, line 1" in judged.verdict.reason


def test_the_hash_covers_the_settings_that_decide() -> None:
    plain = VersionJudge(Agents(), "greeter").hash
    assert plain == VersionJudge(Agents(), "other", Path("/somewhere")).hash
    decide = {
        "tests_seconds": 1.0,
        "start_seconds": 1.0,
        "call_seconds": 1.0,
        "memory_mb": 65,
        "cpus": 1.0,
        "processes": 1,
        "network": True,
    }
    others = {VersionJudge(Agents(**{name: value}), "greeter").hash for name, value in decide.items()}
    assert len(others | {plain}) == len(decide) + 1
