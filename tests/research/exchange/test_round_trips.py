"""Exported, imported and exported again, a run is the same, whatever its texts are."""

from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ratchet.kernel import Direction, TrialStatus, new_id
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, open_research
from ratchet.ledger.runs import create_run
from ratchet.ledger.trial_pages import latest_trials
from ratchet.ledger.trials import Ending, Submission, end_trial, open_trial
from ratchet.research.exchange import export_run, import_run, read_state
from ratchet.research.exchange.state import insight_lines, read_insights, tidied
from ratchet.research.exchange.tsv import RecordLines, read_number, records, written
from tests.research.exchange.boards import files_of

HOSTILE = (
    "\t",
    "\n",
    "\r",
    '"',
    '""',
    "|",
    "\\",
    "\x0b",
    "\x85",
    "\u2028",
    "\0",
    "\ud800",
    '</hypothesis>\n<parameter name="notes">',
    "\n001\t2026-04-28T00:00:00Z\t",
    "## Key Insights\n",
    "\n- ",
    "\n\n",
    "```",
    "exp_000 [a, keep, b=1",
)
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=8), max_size=6).map("".join)
SCORES = st.floats(-1e6, 1e6).map(lambda score: round(score, 6))
LEAKED = Submission(
    specialist="", hypothesis='a</hypothesis>\n<parameter name="notes">', commit=None, parent=0
)
ENDED = [status for status in TrialStatus if status is not TrialStatus.BASELINE]


@st.composite
def trials(draw: st.DrawFn) -> list[tuple[Submission, Ending]]:
    made = []
    best = 0
    for number in range(1, draw(st.integers(1, 8))):
        status = draw(st.sampled_from(ENDED))
        scored = status.valid or draw(st.booleans())
        submission = Submission(
            specialist=draw(TEXTS),
            domain=draw(TEXTS),
            hypothesis=draw(TEXTS),
            expected_delta=draw(TEXTS),
            notes=draw(TEXTS),
            commit=None,
            parent=draw(st.integers(0, number - 1)),
        )
        ending = Ending(
            status=status,
            reason=draw(TEXTS),
            score=draw(SCORES) if scored else None,
            delta=draw(SCORES) if status.valid else None,
            # Only what beats the best there is can be kept.
            compared_to=best if status is TrialStatus.KEEP else draw(st.integers(0, number - 1)),
            wall_ms=draw(st.integers(0, 10**9)),
        )
        best = number if status is TrialStatus.KEEP else best
        made.append((submission, ending))
    return made


def make_run(ledger: Ledger, made: list[tuple[Submission, Ending]], lessons: list[str]) -> int:
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "mine")
        open_research(
            tx, run_id, task="t", score_field="metric", direction=Direction.MAX, keep_policy="confident"
        )
        first = Submission(specialist="baseline", hypothesis="as it came", commit=None, parent=None)
        open_trial(tx, run_id, first, baseline=True)
        end_trial(tx, run_id, 0, Ending(status=TrialStatus.BASELINE, score=0.5))
        for submission, ending in made:
            number = open_trial(tx, run_id, submission).number
            end_trial(tx, run_id, number, ending)
        for lesson in lessons:
            add_lesson(tx, run_id, "opt", lesson)
    return run_id


@pytest.mark.soak
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=trials(), lessons=st.lists(TEXTS, max_size=3))
@example(made=[(LEAKED, Ending(status=TrialStatus.KEEP, score=0.0, delta=0.0, compared_to=0))], lessons=[])
def test_export_import_export_is_a_fixed_point(
    ledger: Ledger, made: list[tuple[Submission, Ending]], lessons: list[str]
) -> None:
    with TemporaryDirectory() as directory:
        place = Path(directory)
        first = make_run(ledger, made, lessons)
        export_run(ledger, first, place / "first")

        second = import_run(ledger, place, place / "first", new_id("run"), direction=Direction.MAX)
        export_run(ledger, second.run_id, place / "second")

        assert second.report.counts["rejected"] == 0
        assert files_of(place / "second") == files_of(place / "first")
        again = import_run(ledger, place, place / "second", new_id("run"), direction=Direction.MAX)
        with ledger.read() as tx:
            assert told(latest_trials(tx, again.run_id)) == told(latest_trials(tx, second.run_id))


def told(found: list[object]) -> list[dict[str, object]]:
    own = {"id", "run_id"}
    return [{name: getattr(each, name) for name in each.__slots__ if name not in own} for each in found]


@pytest.mark.soak
@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.lists(TEXTS, min_size=3, max_size=3), max_size=6))
def test_rows_are_read_as_they_were_written(rows: list[list[str]]) -> None:
    plain = [
        ["0", *(cell.replace("\0", "").encode("utf-8", "replace").decode() for cell in row)] for row in rows
    ]
    lines = RecordLines(io.BytesIO(("a\tb\tc\td\n" + "".join(map(written, plain))).encode()))
    lines.header()

    assert [list(record.cells) for record in records(lines, 4)] == plain


@pytest.mark.soak
@settings(max_examples=200, deadline=None)
@given(lessons=st.lists(TEXTS, max_size=5))
def test_lessons_are_read_as_they_were_written(lessons: list[str]) -> None:
    section = "".join(insight_lines(lessons))

    assert read_insights(section) == [text for each in lessons if (text := tidied(each))]


@settings(max_examples=100, deadline=None)
@given(
    content=st.binary(max_size=400)
    | st.lists(st.sampled_from([b"\t", b"\n", b'"', b"0", b"keep"])).map(b"".join)
)
def test_no_content_breaks_the_reader(content: bytes) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        (directory / "results.tsv").write_bytes(b"exp_id\tstatus\tscore\n000\tbaseline\t1\n" + content)
        (directory / "tree.tsv").write_bytes(content)
        (directory / "best.json").write_bytes(content)
        (directory / "KNOWLEDGE.md").write_bytes(b"## Key Insights\n" + content)

        imported = read_state(directory, direction=Direction.MIN)

    assert imported.rows[0].score == 1.0
    assert len({row.number for row in imported.rows}) == len(imported.rows)


@given(st.floats() | st.text())
def test_only_finite_numbers_are_numbers(value: float | str) -> None:
    read = read_number(str(value))

    assert read is None or abs(read) < float("inf")
