import time

import pytest
import sqlalchemy as sa

from ratchet.kernel import Misuse
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.projects import add_project
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from tests.ledger.conftest import MakeLedger


def say(ledger: Ledger, *types: str, **where: int) -> None:
    with ledger.write() as tx:
        for type_ in types:
            tx.event(type_, **where)


def types(ledger: Ledger, **wanted: object) -> list[str]:
    with ledger.read() as tx:
        return [event.type for event in log.since(tx.connection, where=EventFilter(**wanted))]


def test_events_of_one_transaction_are_appended_as_one_batch_in_their_order(ledger: Ledger) -> None:
    with ledger.write(actor="tester", request_id="r-1") as tx:
        for number in range(1000):
            tx.event("counted", message=str(number), data={"number": number})
    with ledger.read() as tx:
        found = log.since(tx.connection, limit=2000)
    assert [event.data["number"] for event in found] == list(range(1000))
    assert [event.id for event in found] == list(range(found[0].id, found[0].id + 1000))
    assert {(event.actor, event.request_id) for event in found} == {("tester", "r-1")}


def test_nothing_of_a_transaction_that_raised_is_said(ledger: Ledger) -> None:
    def create_and_raise() -> None:
        with ledger.write() as tx:
            create_run(tx, "demo", "never")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        create_and_raise()
    say(ledger, "after")
    assert types(ledger) == ["after"]


def test_pages_forward_and_back_hold_every_event_once(ledger: Ledger) -> None:
    say(ledger, *(f"n{number}" for number in range(25)))
    with ledger.read() as tx:
        everything = log.since(tx.connection)
        forward: list[log.Event] = []
        while page := log.since(tx.connection, forward[-1].id if forward else 0, limit=10):
            forward += page
        back: list[log.Event] = []
        while page := log.latest(tx.connection, before=back[-1].id if back else None, limit=10):
            back += page
        assert log.last_id(tx.connection) == everything[-1].id
    assert forward == everything
    assert back == everything[::-1]


def test_an_empty_ledger_has_no_last_event(ledger: Ledger) -> None:
    with ledger.read() as tx:
        assert log.last_id(tx.connection) == 0
        assert log.latest(tx.connection) == []
        assert log.latest(tx.connection, where=EventFilter(type="run.*")) == []


def test_a_filter_takes_only_what_belongs_to_the_thing(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run = create_run(tx, "demo", "one")
        other = create_run(tx, "demo", "two")
        [step] = create_steps(tx, run, [("a", {})])
        tx.event("job.failed", job_id=9, run_id=other)
    assert types(ledger, run_id=run) == ["run.created", "step.created"]
    assert types(ledger, step_id=step) == ["step.created"]
    assert types(ledger, job_id=9) == ["job.failed"]
    assert types(ledger, run_id=other, type="job.*") == ["job.failed"]
    assert types(ledger, run_id=other, type="run.created") == ["run.created"]
    assert types(ledger, project_id=1) == []


def test_an_event_of_a_run_is_one_of_its_project_whoever_wrote_it(ledger: Ledger) -> None:
    with ledger.write() as tx:
        project, other = add_project(tx, "one"), add_project(tx, "other")
        run = create_run(tx, "demo", "of one", project_id=project)
        [step] = create_steps(tx, run, [("a", {})])
        attempt = open_attempt(tx, get_step(tx, step))
    say(ledger, "said.later", run_id=run)
    say(ledger, "said.of_another", run_id=run, project_id=other)
    say(ledger, "said.of_nobody")
    mine = ["project.created", "run.created", "step.created", "attempt.started", "said.later"]
    assert types(ledger, project_id=project) == mine
    assert types(ledger, project_id=other) == ["project.created", "said.of_another"]
    assert types(ledger, attempt_id=attempt) == ["attempt.started"]


def test_a_family_may_end_in_an_underscore(ledger: Ledger) -> None:
    say(ledger, "setup_started", "setup", "setups", "setup_", "setup.x", "setup`", "set", run_id=3)
    assert types(ledger, type="setup_*") == ["setup_started", "setup_"]
    assert types(ledger, type="setup_*", run_id=3) == ["setup_started", "setup_"]
    assert types(ledger, type="setup_") == ["setup_"]


NEIGHBOURS = [
    "run.started",
    "run",
    "run-a",
    "run/x",
    "run.",
    "run.a.b",
    "runs.x",
    "Run.x",
    "rum.z",
    "run.~",
    "run.é",
]


@pytest.mark.parametrize("family", ["run.*", "run."])
def test_a_family_of_types_is_what_starts_with_it_on_any_collation(ledger: Ledger, family: str) -> None:
    say(ledger, *NEIGHBOURS, run_id=3)
    expected = ["run.started", "run.", "run.a.b", "run.~", "run.é"]
    assert types(ledger, type=family) == expected
    assert types(ledger, type=family, run_id=3) == expected
    assert types(ledger, type=family, run_id=4) == []
    with ledger.read() as tx:
        newest = log.latest(tx.connection, where=EventFilter(type=family), limit=2)
        older = log.latest(tx.connection, where=EventFilter(type=family), before=newest[-1].id)
        after = log.since(tx.connection, newest[-1].id, where=EventFilter(type=family))
    assert [event.type for event in [*newest, *older]] == expected[::-1]
    assert [event.type for event in after] == expected[-1:]


def test_types_are_sorted_by_code_points_whatever_the_database_sorts_by(make_ledger: MakeLedger) -> None:
    columns = "SELECT collation_name FROM information_schema.columns"
    question = f"{columns} WHERE table_name = 'events' AND column_name = 'type'"
    with make_ledger("postgresql").read() as tx:
        assert tx.connection.execute(sa.text(question)).scalar() == "C"


def test_ten_megabytes_of_data_go_to_an_artifact_and_read_back(ledger: Ledger) -> None:
    data = {"transcript": "x" * 10_000_000}
    with ledger.write() as tx:
        run = create_run(tx, "demo", "talks a lot")
        tx.event("session.ended", run_id=run, data=data)
    with ledger.read() as tx:
        [event] = log.since(tx.connection, where=EventFilter(type="session.ended"))
    content = ledger.artifacts.read(event.data["artifact"])
    assert event.data["bytes"] == len(content)
    assert content == b'{"transcript":"' + b"x" * 10_000_000 + b'"}'


def test_large_data_that_is_no_object_is_refused_with_its_size(ledger: Ledger) -> None:
    with pytest.raises(Misuse, match="200002 bytes must be an object"), ledger.write() as tx:
        tx.event("list", data="x" * 200_000)


@pytest.mark.parametrize(
    "text", ["NUL \x00 inside", "lone \ud800 surrogate", "line\nbreak", "é💥", "\u2028", ""]
)
def test_hostile_text_is_kept_in_data_and_made_safe_in_messages(ledger: Ledger, text: str) -> None:
    with ledger.write(actor=text) as tx:
        tx.event("hostile", message=text, data={text: [text]})
    with ledger.read() as tx:
        [event] = log.since(tx.connection)
    assert event.data == {text: [text]}
    safe = text.replace("\x00", "\ufffd").replace("\ud800", "?")
    assert (event.message, event.actor) == (safe, safe)


@pytest.mark.parametrize("type_", ["bad\x00type", "bad\ud800type"])
def test_a_hostile_type_neither_breaks_the_writer_nor_the_reader(ledger: Ledger, type_: str) -> None:
    say(ledger, type_)
    assert len(types(ledger)) == 1
    assert types(ledger, type=type_) == types(ledger)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"scores": [1.0, float("nan")]}, r"\['scores'\]\[1\] \(nan\) cannot be stored as JSON"),
        ({"best": float("-inf")}, r"\['best'\] \(-inf\) cannot be stored as JSON"),
        ({"when": time}, r"\['when'\] \(of type module\) cannot be stored as JSON"),
        ({"tags": {1, 2}}, r"\['tags'\] \(of type set\) cannot be stored as JSON"),
    ],
)
def test_what_json_does_not_have_is_refused_by_name(ledger: Ledger, data: object, complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint) as raised, ledger.write() as tx:
        tx.event("odd", data=data)
    assert "finite numbers" in str(raised.value.hint)
    assert types(ledger) == []


def test_order_is_by_number_when_the_clock_jumps_back(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.event("before")
    with ledger.write() as tx:
        tx.now -= 3_600_000
        tx.event("an hour ago, they say")
    say(ledger, "after")
    with ledger.read() as tx:
        found = log.since(tx.connection)
    assert [event.type for event in found] == ["before", "an hour ago, they say", "after"]
    assert found[1].at < found[0].at
