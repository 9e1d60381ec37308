"""Finding what a person means: projects, protocols and steps by their number or their name."""

from __future__ import annotations

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, find_project, get_project
from ratchet.ledger.protocols import (
    Protocol,
    ProtocolStep,
    get_protocol,
    get_protocol_step,
    list_protocol_steps,
    protocols_called,
)
from ratchet.ledger.questions import Clarification, get_clarification, list_clarifications

_LARGEST = 2**63 - 1
_MOST_QUESTIONS = 1000


def project_named(tx: Transaction, wanted: str) -> Project:
    """The project of that number, else of that name. Raises `NotFound`."""
    number = _number(wanted)
    if number is not None:
        try:
            return get_project(tx, number)
        except NotFound:
            pass  # a name may be a number, too
    found = find_project(tx, wanted)
    if found is None:
        raise _unknown("project", wanted, "`ratchet project list` shows them, `ratchet project add` adds one")
    return found


def protocol_named(tx: Transaction, wanted: str, *, project: str | None = None) -> Protocol:
    """The protocol of that number, else of that name, in all projects or in one.

    Raises `NotFound`, and `Misuse` when several projects have one of that name.
    """
    owner = None if project is None else project_named(tx, project)
    number = _number(wanted)
    if number is not None:
        found = [get_protocol(tx, number)] if _is_protocol(tx, number) else []
        found = [each for each in found if owner is None or each.project_id == owner.id]
    else:
        found = protocols_called(tx, wanted, project_id=None if owner is None else owner.id)
    if not found:
        inside = "" if owner is None else f" --project {owner.id}"
        raise _unknown("protocol", wanted, f"`ratchet protocol list{inside}` shows them")
    if len(found) > 1:
        names = ", ".join(get_project(tx, each.project_id).name for each in reversed(found))
        raise Misuse(
            f"several projects have a protocol {wanted!r}",
            hint=f"add --project with one of: {names}; or name it by its number",
        )
    return found[0]


def step_named(tx: Transaction, wanted: str, *, project: str | None = None) -> ProtocolStep:
    """A step by its number, or as PROTOCOL/NN or PROTOCOL/NAME. Raises as `protocol_named` does."""
    number = _number(wanted)
    if number is not None:
        try:
            return get_protocol_step(tx, number)
        except NotFound as error:
            error.hint = "`ratchet step list PROTOCOL` shows them; PROTOCOL/NN names one by its place"
            raise
    name, slash, place = wanted.rpartition("/")
    if not slash or not name or not place:
        raise Misuse(
            f"{wanted[:80]!r} names no step", hint="give its number, or PROTOCOL/NN such as 0007-add-login/01"
        )
    protocol = protocol_named(tx, name, project=project)
    steps = list_protocol_steps(tx, protocol.run_id)
    index = _number(place)
    found = [each for each in steps if each.name == place or each.step_index == index]
    if not found:
        names = ", ".join(each.name for each in steps)
        hint = f"it has: {names}" if steps else f"it has none yet: ratchet protocol start {protocol.run_id}"
        raise _unknown(f"step of protocol {protocol.run_id}", place, hint)
    return found[0]


def protocol_number(tx: Transaction, wanted: str, *, project: str | None = None) -> int:
    return protocol_named(tx, wanted, project=project).run_id


def step_number(tx: Transaction, wanted: str, *, project: str | None = None) -> int:
    return step_named(tx, wanted, project=project).step_id


def project_number(tx: Transaction, wanted: str) -> int:
    return project_named(tx, wanted).id


def question_named(tx: Transaction, project: Project, wanted: str) -> Clarification:
    """A question about a project or its protocols, by its key or its number. Of several, one that is open.

    Raises `NotFound`, and `Misuse` when several open ones have that key.
    """
    number = _number(wanted)
    if number is not None:
        asked = get_clarification(tx, number)
        found = [asked] if asked.project_id == project.id else []
    else:
        every = list_clarifications(tx, project_id=project.id, limit=_MOST_QUESTIONS)
        found = [each for each in every if each.key == wanted]
        found = [each for each in found if each.open] or found[-1:]
    if not found:
        raise _unknown("question", wanted, f"`ratchet project questions {project.id}` shows them")
    if len(found) > 1:
        numbers = ", ".join(str(each.id) for each in found)
        raise Misuse(
            f"there are {len(found)} open questions {wanted!r}", hint=f"name one by its number: {numbers}"
        )
    return found[0]


def _number(wanted: str) -> int | None:
    return int(wanted) if wanted.isascii() and wanted.isdecimal() and int(wanted) <= _LARGEST else None


def _is_protocol(tx: Transaction, number: int) -> bool:
    try:
        get_protocol(tx, number)
    except NotFound:
        return False
    return True


def _unknown(entity: str, wanted: str, hint: str) -> NotFound:
    number = _number(wanted)
    error = NotFound(entity, repr(wanted[:80]) if number is None else number)
    error.hint = hint
    return error
