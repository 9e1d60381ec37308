"""Plain models as researchers at each kind of endpoint: several files, and several proposals in a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.kernel import TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.trial_pages import latest_trials
from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer, say
from ratchet.research.start import ResearchRequest
from tests.engines.conftest import Place
from tests.engines.llm.subject import LlmSubject
from tests.research.hill import TASK, write_hill
from tests.research.test_agents import carry

TWO_FILES = TASK.replace('recipe = ["recipe.py"]', 'recipe = ["recipe.py", "place"]')


@pytest.fixture(scope="module")
def model_server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """The hill, with its place in a file of its own."""
    recipe = "from place.here import X, Y\n\n\ndef climb(given):\n    return {'x': X, 'y': Y}\n"
    folder = write_hill(tmp_path / "hill", task=TWO_FILES, recipe=recipe)
    (folder / "place").mkdir()
    (folder / "place" / "here.py").write_text("X = 0.9\nY = 0.9\n")
    return folder


def block(path: str, old: str, new: str) -> str:
    return f"FILE: {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


SEVERAL = "\n".join(
    [
        "Three ideas.",
        "PROPOSAL 1",
        block("place/here.py", "X = 0.9", "X = 0.5"),
        "HYPOTHESIS: a smaller x should be higher up",
        "## PROPOSAL 2",
        block("place/here.py", "Y = 0.9", "Y = 0.7"),
        block("recipe.py", "    return {'x': X, 'y': Y}", "    return {'x': X, 'y': Y - 0.05}"),
        "HYPOTHESIS: a smaller y should be higher up as well",
        "PROPOSAL 3",
        block("evaluator/evaluate.py", "1 -", "99 -"),
        "HYPOTHESIS: another evaluator would be kinder to us",
    ]
)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_one_call_proposes_several_changes_of_several_files(
    kind: str, loaded: Loaded, ledger: Ledger, spread: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    subject = LlmSubject(Place(tmp_path / kind), model_server, kind)
    run_id = carry(
        loaded, ledger, subject.open(say(SEVERAL)), ResearchRequest(task=str(spread), trials=2, parallel=1)
    )
    with ledger.read() as tx:
        rows = latest_trials(tx, run_id)[::-1]
        sessions = list_sessions(tx, run_id=run_id)
    assert [(row.hypothesis, row.parent) for row in rows[1:]] == [
        ("a smaller x should be higher up", 0),
        ("a smaller y should be higher up as well", 0),
    ]
    assert rows[1].status is TrialStatus.KEEP
    # The second was made of the same program as the first, and is held against what is best by now.
    assert rows[2].compared_to == 1
    assert rows[2].measurements["means"] == {"x": 0.9, "y": pytest.approx(0.65)}
    assert len(sessions) == 1
    assert sessions[0].usage.tokens
    assert "up to 3 proposals" in subject.script.requests[0].said


def test_a_call_opens_no_more_trials_than_the_run_has_left(
    loaded: Loaded, ledger: Ledger, spread: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    subject = LlmSubject(Place(tmp_path / "llm"), model_server)
    run_id = carry(loaded, ledger, subject.open(say(SEVERAL)), ResearchRequest(task=str(spread), trials=1))
    with ledger.read() as tx:
        assert [row.number for row in latest_trials(tx, run_id)] == [1, 0]


def test_a_proposal_that_is_another_one_again_costs_no_trial(
    loaded: Loaded, ledger: Ledger, spread: Path, tmp_path: Path, model_server: ModelServer
) -> None:
    first = (
        f"PROPOSAL\n{block('place/here.py', 'X = 0.9', 'X = 0.5')}HYPOTHESIS: a smaller x should be higher\n"
    )
    same = (
        f"PROPOSAL\n{block('place/here.py', 'X = 0.9', 'X  =  0.5  # smaller')}HYPOTHESIS: really, smaller\n"
    )
    last = f"{block('place/here.py', 'X = 0.5', 'X = 0.4')}HYPOTHESIS: and smaller again should help\n"
    subject = LlmSubject(Place(tmp_path / "llm"), model_server)
    engine = subject.open(say(first + same), say(last))
    run_id = carry(loaded, ledger, engine, ResearchRequest(task=str(spread), trials=2, parallel=1))
    with ledger.read() as tx:
        rows = latest_trials(tx, run_id)[::-1]
    assert [row.hypothesis for row in rows[1:]] == [
        "a smaller x should be higher",
        "and smaller again should help",
    ]
