"""Saved workflows in the ledger."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger.events import since
from ratchet.ledger.runs import create_run
from ratchet.ledger.workflows import (
    LARGEST_BYTES,
    SavedWorkflow,
    find_workflow,
    get_workflow,
    list_contents,
    list_workflows,
    remove_workflow,
    save_workflow,
)


def spec(name: str = "report", **more: Any) -> dict[str, Any]:
    return {"workflow_id": name, "version": "1.0.0", "description": "writes a report", "steps": [], **more}


def saved(ledger: Ledger, name: str = "report", **more: Any) -> SavedWorkflow:
    with ledger.write() as tx:
        return save_workflow(tx, spec(name, **more), origin="file")


def names(ledger: Ledger, **page: Any) -> list[str]:
    with ledger.read() as tx:
        return [each.name for each in list_workflows(tx, **page)]


def told(ledger: Ledger, type: str) -> list[Any]:
    with ledger.read() as tx:
        return [event.data for event in since(tx.connection, 0, where=EventFilter(type=type))]


def test_what_is_saved_comes_back_whole(ledger: Ledger) -> None:
    content = spec(extra={"nul": "\x00", "half": "\ud800", "deep": [{"a": None}]})
    with ledger.write() as tx:
        run_id = create_run(tx, "workflow", "plan:report")
        row = save_workflow(tx, content, origin="overseer", run_id=run_id)
    with ledger.read() as tx:
        assert get_workflow(tx, "report") == row
    assert (row.name, row.version, row.origin, row.run_id) == ("report", "1.0.0", "overseer", run_id)
    assert row.spec == content
    assert told(ledger, "workflow.saved") == [
        {"workflow": "report", "version": "1.0.0", "hash": row.hash, "origin": "overseer"}
    ]


def test_the_same_content_saved_again_is_the_same_row(ledger: Ledger) -> None:
    first = saved(ledger)
    with ledger.write() as tx:
        turned = dict(reversed(spec().items()))
        assert save_workflow(tx, turned, origin="other") == first
    assert len(told(ledger, "workflow.saved")) == 1


def test_another_content_under_the_name_is_the_one_that_is_run_and_the_old_one_is_kept(
    ledger: Ledger,
) -> None:
    first, second = saved(ledger), saved(ledger, version="1.1.0")
    with ledger.read() as tx:
        assert get_workflow(tx, "report") == second
        assert get_workflow(tx, "report", "1.0.0") == first
        assert list_contents(tx, "report") == [second, first]


def test_an_old_content_that_is_saved_again_is_the_one_that_is_run(ledger: Ledger) -> None:
    first = saved(ledger)
    saved(ledger, version="1.1.0")
    again = saved(ledger)
    with ledger.read() as tx:
        assert get_workflow(tx, "report") == again
    assert (again.hash, again.version) == (first.hash, first.version)
    assert again.id > first.id


def test_workflows_are_listed_once_and_the_last_saved_first(ledger: Ledger) -> None:
    for name in ("a", "b", "c"):
        saved(ledger, name)
    saved(ledger, "a", version="2.0.0")
    assert names(ledger) == ["a", "c", "b"]
    with ledger.read() as tx:
        page = list_workflows(tx, limit=2)
    assert [each.version for each in page] == ["2.0.0", "1.0.0"]
    assert names(ledger, before=page[-1].id) == ["b"]


def test_a_removed_workflow_is_gone_with_all_that_it_was(ledger: Ledger) -> None:
    saved(ledger)
    saved(ledger, version="1.1.0")
    saved(ledger, "other")
    with ledger.write() as tx:
        assert remove_workflow(tx, "report") == 2
    with ledger.read() as tx:
        assert find_workflow(tx, "report") is None
        assert list_contents(tx, "report") == []
        with pytest.raises(NotFound, match=r"workflow report 1\.0\.0"):
            get_workflow(tx, "report", "1.0.0")
    assert names(ledger) == ["other"]
    assert told(ledger, "workflow.removed") == [{"workflow": "report", "contents": 2}]
    with ledger.write() as tx, pytest.raises(NotFound):
        remove_workflow(tx, "report")


def test_the_name_of_a_removed_workflow_is_free(ledger: Ledger) -> None:
    first = saved(ledger)
    with ledger.write() as tx:
        remove_workflow(tx, "report")
    again = saved(ledger)
    assert again.id > first.id
    assert names(ledger) == ["report"]


def test_those_who_save_the_same_at_once_get_one_row(ledger: Ledger) -> None:
    start, found = threading.Barrier(4), []

    def save() -> None:
        start.wait()
        found.append(saved(ledger).id)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workflow_id": None}, "no workflow_id"),
        ({"workflow_id": "  "}, "no workflow_id"),
        ({"workflow_id": "x" * 151}, "cannot be the name"),
        ({"workflow_id": "a\nb"}, "cannot be the name"),
        ({"extra": float("nan")}, "cannot be stored as JSON"),
        ({"extra": "x" * LARGEST_BYTES}, "bytes as JSON"),
    ],
)
def test_what_cannot_be_saved_is_refused(ledger: Ledger, change: dict[str, Any], says: str) -> None:
    with ledger.write() as tx, pytest.raises(Misuse, match=says):
        save_workflow(tx, {**spec(), **change}, origin="file")
    assert names(ledger) == []
