"""The parts of the demo: acts that break, places that are taken up, pages that hold what others wrote."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ratchet.config import Loaded, load_settings
from ratchet.demo.durability import count_primes
from ratchet.demo.show import page, show
from ratchet.demo.stage import (
    ActFailed,
    ActOutcome,
    DemoCommand,
    DemoStage,
    Failed,
    Shown,
    claim,
    recorded_engine,
)
from tests.demo import bill, recording, till


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load_settings({"home": str(tmp_path)}, env={})


def fine(stage: DemoStage) -> Shown:
    stage.say("all is well")
    return Shown(
        headline="It went well.",
        facts={},
        real="All of it.",
        look=(DemoCommand("ratchet runs list", "runs"),),
    )


def broken(_stage: DemoStage) -> Shown:
    raise ActFailed("nothing came of it\n  in some line", hint="ratchet runs show 1")


def unexpected(_stage: DemoStage) -> Shown:
    raise KeyError("primes")


@pytest.mark.soak
def test_whatever_breaks_one_act_the_others_are_shown(loaded: Loaded) -> None:
    out = io.StringIO()
    acts = {"durability": unexpected, "research": broken, "workflows": fine}
    demo = show(loaded, list(acts), out, acts=acts)
    assert not demo.passed
    assert [each.passed for each in demo.outcomes] == [False, False, True]
    told = out.getvalue()
    assert "FAILED     KeyError: 'primes'" in told
    assert "FAILED     nothing came of it (ratchet runs show 1)" in told
    assert "real       It went well." in told
    assert "durability, research failed" in told
    written = demo.place.report.read_text()
    assert "2 of 3 acts failed" in written
    assert "in some line" in written


def test_two_demos_of_one_home_have_places_of_their_own(tmp_path: Path) -> None:
    with claim(tmp_path) as first, claim(tmp_path) as second:
        assert (first.number, second.number) == (1, 2)
        assert first.name("bill") != second.name("bill")
        second.end()
    with claim(tmp_path) as third:
        assert (third.number, third.taken_up) == (1, True)
        third.end()
    with claim(tmp_path) as fourth:
        assert (fourth.number, fourth.taken_up) == (3, False)


def test_what_somebody_wrote_is_text_on_the_page() -> None:
    hostile = "<script>alert('1')</script>"
    shown = Shown(
        headline=hostile,
        facts={hostile: hostile},
        real=hostile,
        recorded=hostile,
        look=(DemoCommand(hostile, hostile),),
        quotes={hostile: f"{hostile}\n+{hostile}"},
    )
    outcomes = [ActOutcome("agents", 1.0, shown), ActOutcome("research", 1.0, Failed(hostile, hostile))]
    written = page(1, outcomes, 2.0, datetime(2026, 1, 1, tzinfo=UTC))
    assert "<script" not in written
    assert "&lt;script&gt;" in written


def test_the_recordings_are_those_that_are_written_here(tmp_path: Path) -> None:
    """Change them in tests/demo, then write them with `python -m tests.demo.recording`."""
    recording.write(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    shipped = {name: Path(recorded_engine(name).removeprefix("replay:")) for name in recording.CASSETTES}
    assert made == {path.name: path.read_text() for path in shipped.values()}


def test_the_acts_ask_for_what_the_recordings_answer() -> None:
    from ratchet.demo import agents, protocols

    assert (agents.WISH, agents.FEEDBACK) == (bill.WISH, bill.FEEDBACK)
    assert protocols.WISH == till.WISH


def test_primes_are_counted() -> None:
    assert count_primes(0, 100) == 25
    assert count_primes(100, 200) == 21
