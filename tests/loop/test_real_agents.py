"""One attempt with nothing simulated but the model: the real Codex CLI proposes, tests and the real Claude judge it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ratchet.judges import CommandJudge, VerdictJudge, first_failure
from ratchet.kernel import Outcome
from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place as EnginePlace
from tests.loop.test_loop import Place, place  # noqa: F401 - a fixture

GATE = CommandJudge(name="tests", argv=("/bin/sh", "-c", 'test "$(cat number.txt)" = 1'))


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.mark.parametrize(("said", "kept"), [("pass", True), ("fail", False)])
def test_codex_proposes_and_claude_decides(
    place: Place,  # noqa: F811
    server: ModelServer,
    tmp_path_factory: pytest.TempPathFactory,
    said: str,
    kept: bool,
) -> None:
    engines = EnginePlace(tmp_path_factory.mktemp("engines"))
    author = CodexSubject(engines, server).runs("echo 1 > number.txt")
    review = f'{{"verdict": "{said}", "summary": "read it", "findings": []}}'
    reviewer = ClaudeSubject(engines, server).says(review, "done")
    plan = place.plan(author, first_failure(GATE, VerdictJudge(engine=reviewer)))
    ended = place.attempt(replace(plan, request=replace(plan.request, deadline_seconds=60)))
    assert (ended.kept, ended.outcome) == (kept, Outcome.PASSED if kept else Outcome.FAILED), ended
    assert (place.best == ended.commit) is kept
    with place.ledger.read() as tx:
        sessions = list_sessions(tx, attempt_id=ended.attempt_id)
    assert [(each.engine, each.role) for each in sessions] == [("claude", "reviewer"), ("codex", "author")]
    assert all(each.usage.tokens and each.transcript for each in sessions)
