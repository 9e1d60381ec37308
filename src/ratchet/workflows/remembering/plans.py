"""Plans that were made: by the sentence that asked for them, to be found again by the same or a similar one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.memory import Entry, Memory
from ratchet.workflows.remembering.places import scope_of, tags_of
from ratchet.workflows.remembering.sentences import mark_of, plain

KIND = "plan"
_FIELDS = {"sentence", "workflow", "hash"}


@dataclass(frozen=True, slots=True)
class RememberedPlan:
    """`hash` is that of what was saved. `likeness` is 1 for the very sentence (`exact`), else that of the meanings."""

    id: str
    sentence: str
    workflow: str
    hash: str
    likeness: float
    exact: bool


def remember_plan(
    memory: Memory, sentence: str, workflow: str, hash: str, *, tags: Iterable[str] = ()
) -> str:
    """Remember which workflow a sentence led to. A sentence has one plan: the last one that was made for it.

    The hash tells it from another workflow of the same name: several ledgers may share a memory.
    """
    mark = mark_of(sentence)
    return memory.store(
        plain(sentence),
        kind=KIND,
        tags=tags_of([_mark_tag(mark), *tags]),
        data={"sentence": plain(sentence), "workflow": workflow, "hash": hash},
        scope=scope_of(workflow),
        key=f"{KIND}:{mark}",
    )


def find_plans(memory: Memory, sentence: str, *, limit: int = 5) -> list[RememberedPlan]:
    """Remembered plans, likest first. The one of the very sentence comes before all others."""
    exact = memory.entries(kind=KIND, tags=[_mark_tag(mark_of(sentence))], limit=1)
    known = {entry.id for entry in exact}
    similar = [
        (found.entry, found.likeness)
        for found in memory.find(plain(sentence), kind=KIND, limit=limit)
        if found.entry.id not in known
    ]
    # What a person stored by hand under this kind leads to no workflow.
    return [
        _remembered(entry, likeness, exact=entry.id in known)
        for entry, likeness in [*((entry, 1.0) for entry in exact), *similar][:limit]
        if entry.data.keys() >= _FIELDS
    ]


def _mark_tag(mark: str) -> str:
    return f"sentence:{mark}"


def _remembered(entry: Entry, likeness: float, *, exact: bool) -> RememberedPlan:
    fields = {name: str(entry.data[name]) for name in _FIELDS}
    return RememberedPlan(id=entry.id, likeness=likeness, exact=exact, **fields)
