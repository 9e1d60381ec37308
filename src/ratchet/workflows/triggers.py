"""Triggers: messages from outside, each of which starts one run of a saved workflow.

A message has a name that it keeps however often it is delivered. The run, its job and that name are recorded in one
transaction, so a message that is delivered twice, to one worker or to several, has one run; its source is told only
afterwards that it was taken. Secrets are never recorded: a trigger names the variables that hold them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

import sqlalchemy as sa

from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, is_name
from ratchet.ledger.tables import triggers
from ratchet.observe.logs import logger
from ratchet.operations import Listing, Param, described, filled, line_of, operation
from ratchet.runtime.call import Call
from ratchet.runtime.job import find_once

if TYPE_CHECKING:
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Transaction
    from ratchet.runtime import Runtime

LARGEST = 1024 * 1024
"""Bytes of a message. What is larger belongs into a file whose path is the message."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 300
_log = logger(__name__)


class TriggerKind(StrEnum):
    """Where messages come from."""

    REDIS = "redis"
    AMQP = "amqp"
    KAFKA = "kafka"
    FILES = "files"
    WEBHOOK = "webhook"


class Since(StrEnum):
    """Which messages of a stream count: those from when the trigger was added on, or all that it still has."""

    NEW = "new"
    START = "start"


# What each kind must be told, and what it may be told besides.
_OPTIONS: Mapping[TriggerKind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    TriggerKind.REDIS: (("url", "topic"), ("since",)),
    TriggerKind.AMQP: (("url", "topic"), ()),
    TriggerKind.KAFKA: (("url", "topic"), ("since",)),
    TriggerKind.FILES: (("folder",), ("pattern", "since")),
    TriggerKind.WEBHOOK: (("secret",), ()),
}


@dataclass(frozen=True, slots=True)
class Message:
    """`id` is the same each time it is delivered; `receipt` is what its source needs to be told that it was taken."""

    id: str
    body: bytes | Mapping[str, Any]
    receipt: Any = None


class RefusedMessage(RatchetError):
    """A message from which no run can be started, however often it is delivered."""

    http_status = 422


class UnsignedMessage(RatchetError):
    """A request that does not prove that it is from who holds the secret."""

    http_status = 401


@dataclass(frozen=True, slots=True)
class Trigger:
    name: str
    kind: TriggerKind
    workflow: str
    source: Mapping[str, Any]
    inputs: Mapping[str, Any]
    takes: str | None
    paused: bool
    created_at: int
    started: int
    refused: int
    last_at: int | None
    reason: str | None
    reason_at: int | None


@dataclass(frozen=True, slots=True)
class TakenMessage:
    """The run of a message; `repeated` if it had been started before."""

    run_id: int
    repeated: bool


def take_message(runtime: Runtime, name: str, message: Message, *, actor: str) -> TakenMessage:
    """Start the run of a message, or find the one that it has. When this returns, it is recorded.

    Raises `RefusedMessage` for one that can never start a run; that is recorded as well. Anything else that is raised
    may be over later.
    """
    # Loaded here: whoever lists triggers starts nothing.
    from ratchet.workflows.runs import prepare, start_workflow
    from ratchet.workflows.saved import load_saved

    once = f"trigger:{name}:{message.id}"
    with runtime.ledger.read() as tx:
        trigger = get_trigger(tx, name)
        known = find_once(tx, once)
    if known is not None and known.run_id is not None:
        return TakenMessage(known.run_id, repeated=True)
    _require_active(trigger)
    spec = load_saved(runtime, trigger.workflow)
    try:
        values = message_inputs(spec, trigger, message.body)
    except RefusedMessage as refused:
        with runtime.ledger.write(actor=actor) as tx:
            _count(tx, name, refused=triggers.c.refused + 1)
            data = {"message": message.id[:_SHOWN], "reason": str(refused)}
            tx.event("trigger.refused", message=f"{name}: {refused}", data=data)
        raise
    plan = prepare(runtime, spec, values)
    with runtime.ledger.write(actor=actor) as tx:
        tx.lock_keys(once)
        known = find_once(tx, once)
        if known is not None and known.run_id is not None:
            return TakenMessage(known.run_id, repeated=True)
        _require_active(get_trigger(tx, name))
        run_id = start_workflow(tx, runtime, plan, once=once)
        _count(tx, name, started=triggers.c.started + 1, last_at=tx.now)
        tx.event("trigger.fired", message=name, run_id=run_id, data={"message": message.id[:_SHOWN]})
    return TakenMessage(run_id, repeated=False)


def message_inputs(spec: WorkflowSpec, trigger: Trigger, body: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run: the fields of a message that the workflow declares, or the whole of it for one of them.

    What the trigger says itself is never replaced by a message, and a message names no file that is read.
    """
    from ratchet.flowkit.errors import SpecError
    from ratchet.flowkit.inputs import check_inputs, parse_input_texts

    declared = {each.name: each.type for each in spec.inputs}
    content = _content(body)
    if trigger.takes is not None:
        is_text = declared.get(trigger.takes) == "string" and not isinstance(content, str)
        given = {trigger.takes: _text(body) if is_text else content}
    elif isinstance(content, dict):
        given = {name: value for name, value in content.items() if name in declared}
    else:
        raise RefusedMessage(
            "the message is no JSON object",
            hint="`--takes INPUT` gives the whole message to one input of the workflow",
        )
    texts = {
        name: value
        for name, value in given.items()
        if isinstance(value, str) and declared.get(name) != "string"
    }
    try:
        return check_inputs(spec, {**given, **parse_input_texts(spec, texts), **trigger.inputs})
    except SpecError as error:
        raise RefusedMessage("; ".join(error.problems)) from None


def _content(body: bytes | Mapping[str, Any]) -> Any:
    """The JSON value of a message, or its text where it is none."""
    from ratchet.flowkit.errors import SpecError
    from ratchet.flowkit.jsontext import load_json

    if not isinstance(body, bytes):
        return dict(body)
    text = _text(body)
    try:
        return load_json(text)
    except SpecError:
        return text


def _text(body: bytes | Mapping[str, Any]) -> str:
    if not isinstance(body, bytes):
        return json.dumps(dict(body), ensure_ascii=False)
    if len(body) > LARGEST:
        raise RefusedMessage(f"the message has {len(body):,} bytes; at most {LARGEST:,} are taken")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RefusedMessage(f"the message is not UTF-8: {error.reason} at byte {error.start}") from None


def variable(name: str) -> str:
    """The value of a variable of the environment. Raises `Misuse` where it is not set."""
    from ratchet.config.redaction import remember_secret

    value = os.environ.get(name)
    if not value:
        raise Misuse(
            f"the variable {name} is not set", hint=f"set it where the worker and the server run: {name}=…"
        )
    remember_secret(value)
    return value


def take_webhook(
    runtime: Runtime, name: str, headers: Mapping[str, str], body: bytes, *, actor: str
) -> TakenMessage:
    """Take a signed request. `headers` are in lower case. Raises `UnsignedMessage` before anything of it counts.

    A sender of one's own names the delivery and signs `DELIVERY.BODY`. One that signs the body alone, as GitHub does,
    is known by that: a name that is not signed could be another one each time that somebody sends the request again.
    """
    unsigned = _unsigned(name)
    require_signature(name, headers)
    with runtime.ledger.read() as tx:
        trigger = find_trigger(tx, name)
    if trigger is None or trigger.kind is not TriggerKind.WEBHOOK:
        raise unsigned
    try:
        secret = variable(str(trigger.source["secret"])).encode()
    except Misuse as error:
        # For the owner. The sender has proved nothing, and is answered as any other who has not.
        _note(runtime, trigger, str(error))
        raise unsigned from None
    _note(runtime, trigger, None)
    delivery, own = headers.get("x-ratchet-delivery", ""), headers.get("x-ratchet-signature")
    if own is not None:
        signed, given, id = f"{delivery}.".encode() + body, own, f"delivery:{delivery}"
        if not 0 < len(delivery) <= 200:
            raise unsigned
    else:
        given = headers.get("x-hub-signature-256", "")
        signed, id = body, f"body:{hashlib.sha256(body).hexdigest()}"
    proof = f"sha256={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"
    if not hmac.compare_digest(proof.encode(), given.encode(errors="replace")):
        raise unsigned
    return take_message(runtime, name, Message(id, body), actor=actor)


def require_signature(name: str, headers: Mapping[str, str]) -> None:
    """Raise `UnsignedMessage` for a request that does not even claim to be signed. Nothing else of it is looked at."""
    if not headers.get("x-ratchet-signature") and not headers.get("x-hub-signature-256"):
        raise _unsigned(name)


def _unsigned(name: str) -> UnsignedMessage:
    return UnsignedMessage(
        f"the request is not signed for a trigger {name}",
        hint="send X-Ratchet-Delivery, and X-Ratchet-Signature: sha256=HMAC of DELIVERY.BODY with the secret",
    )


def unset_variables(source: Mapping[str, Any]) -> list[str]:
    """The variables that a source names and that this process does not have."""
    url = str(source.get("url", ""))
    named = [url[1:]] if url.startswith("$") else []
    return [name for name in (*named, *filter(None, [source.get("secret")])) if not os.environ.get(name)]


def _note(runtime: Runtime, trigger: Trigger, reason: str | None) -> None:
    """Let the trigger show the reason. Only a change of it is written: anyone may send requests."""
    if trigger.reason == reason:
        return
    if reason is not None:
        _log.warning("a webhook is refused", trigger=trigger.name, reason=reason)
    with runtime.ledger.write(actor=f"webhook:{trigger.name}") as tx:
        note_reason(tx, trigger.name, reason)


def _require_active(trigger: Trigger) -> None:
    if trigger.paused:
        raise Conflict(
            f"the trigger {trigger.name} is paused",
            hint=f"`ratchet trigger resume {trigger.name}` resumes it",
        )


def list_triggers(tx: Transaction) -> list[Trigger]:
    query = sa.select(triggers).order_by(triggers.c.name)
    return [_trigger(row) for row in tx.connection.execute(query).mappings()]


def find_trigger(tx: Transaction, name: str) -> Trigger | None:
    row = tx.connection.execute(sa.select(triggers).where(triggers.c.name == name)).mappings().first()
    return None if row is None else _trigger(row)


def get_trigger(tx: Transaction, name: str) -> Trigger:
    found = find_trigger(tx, name)
    if found is None:
        raise NotFound("trigger", name)
    return found


def note_reason(tx: Transaction, name: str, reason: str | None) -> None:
    """Record why no message of a trigger can be had, or that messages come again. Said once, not at each try."""
    found = find_trigger(tx, name)
    if found is None or found.reason == reason:
        return
    _count(tx, name, reason=reason, reason_at=tx.now)
    if reason is None:
        tx.event("trigger.connected", message=name)
    else:
        tx.event("trigger.unreachable", message=f"{name}: {reason}")


def _count(tx: Transaction, name: str, **values: Any) -> None:
    tx.connection.execute(sa.update(triggers).where(triggers.c.name == name).values(**values))


def _trigger(row: sa.RowMapping) -> Trigger:
    return Trigger(**{**row, "kind": TriggerKind(row["kind"])})


@dataclass(frozen=True, slots=True)
class TriggerAnswer:
    """A trigger with its state: `paused`, `active`, or `retrying` with the reason."""

    name: str
    kind: TriggerKind
    workflow: str
    source: Mapping[str, Any]
    inputs: Mapping[str, Any]
    takes: str | None = field(metadata=described("the input that takes each message as a whole"))
    state: str
    reason: str | None
    started: int = field(metadata=described("how many runs it has started"))
    refused: int = field(metadata=described("how many messages could start none"))
    created_at: int
    last_at: int | None

    @classmethod
    def of(cls, trigger: Trigger) -> Self:
        state = "paused" if trigger.paused else "active" if trigger.reason is None else "retrying"
        return filled(cls, trigger, state=state)


@dataclass(frozen=True, slots=True)
class RemovedTrigger:
    name: str
    removed: bool = True


def read_object(_call: object, text: str) -> dict[str, Any]:
    """A JSON object, as it was typed."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Misuse(f"{text[:80]!r} is not JSON: {error}", hint="""such as '{"depth": 3}'""") from None
    if not isinstance(found, dict):
        raise Misuse(f"{text[:80]!r} is no JSON object", hint="""such as '{"depth": 3}'""")
    return found


TriggerName = Annotated[str, Param("The name of a trigger.", metavar="TRIGGER", argument=True)]


@operation(
    "trigger add",
    "POST /triggers",
    examples=[
        "ratchet trigger add orders redis invoice --url redis://127.0.0.1:6379 --topic orders",
        "ratchet trigger add scans files read_scan --folder inbox --pattern '*.pdf' --takes file",
        "ratchet trigger add pushes webhook build --secret HOOK_SECRET",
    ],
    see=["trigger list", "workflow schedule"],
    done="Trigger {it.name} is set: {it.workflow} is run for each message of {it.kind}",
    then="`ratchet worker` and `ratchet serve` do so; `ratchet trigger show {it.name}` says how it goes",
)
def add(
    call: Call,
    name: Annotated[
        str, Param("What to call it; one of that name is replaced.", metavar="NAME", argument=True)
    ],
    kind: Annotated[
        TriggerKind,
        Param(
            "Where messages come from: redis, amqp, kafka, files or webhook.", metavar="KIND", argument=True
        ),
    ],
    workflow: Annotated[str, Param("The saved workflow that is run.", metavar="WORKFLOW", argument=True)],
    url: Annotated[
        str | None,
        line_of("The address of the broker; $NAME is that variable, for one with a password.", "URL"),
    ] = None,
    topic: Annotated[str | None, line_of("The stream, queue or topic.", "TOPIC")] = None,
    folder: Annotated[
        str | None, Param("Where files appear.", metavar="DIRECTORY", longest=4096, place=True)
    ] = None,
    pattern: Annotated[str | None, line_of("Only files of such names; all if not given.", "GLOB")] = None,
    secret: Annotated[str | None, line_of("The variable that holds the secret of a webhook.", "NAME")] = None,
    takes: Annotated[
        str | None,
        line_of("The input that takes each message as a whole; else its fields are inputs.", "INPUT"),
    ] = None,
    inputs: Annotated[
        dict[str, Any] | None,
        Param("Inputs of every run.", metavar="JSON", read="ratchet.workflows.triggers:read_object"),
    ] = None,
    since: Annotated[
        Since | None, Param("Messages from now on, or all that there still are; new if not given.")
    ] = None,
) -> TriggerAnswer:
    """Have a workflow run for each message that comes.

    A message of Redis streams, AMQP or Kafka, a signed request or a file that appears starts one run, also where it is
    delivered twice, and it is acknowledged after the run is recorded. The fields of a message are inputs of the
    workflow. A message that can start no run is recorded with the reason and not asked for again.
    """
    from ratchet.workflows.saved import load_saved

    if not is_name(name):
        raise Misuse(
            f"{name!r} cannot name a trigger", hint="use lower-case letters, digits, dots and dashes"
        )
    given = {
        "url": url,
        "topic": topic,
        "folder": folder,
        "pattern": pattern,
        "secret": secret,
        "since": since,
    }
    source = _source(kind, {key: value for key, value in given.items() if value is not None})
    spec = load_saved(call.runtime, workflow)
    declared = [each.name for each in spec.inputs]
    for wanted in (*(inputs or {}), *([takes] if takes is not None else [])):
        if wanted not in declared:
            raise Misuse(
                f"the workflow {workflow} has no input {wanted}",
                hint=f"it has {', '.join(declared) or 'none'}",
            )
    values = {
        "kind": str(kind),
        "workflow": workflow,
        "source": source,
        "inputs": inputs or {},
        "takes": takes,
        "paused": False,
        "reason": None,
        "reason_at": None,
    }
    with call.write() as tx:
        insert = tx.insert(triggers).values(name=name, created_at=tx.now, started=0, refused=0, **values)
        tx.connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values))
        tx.event("trigger.set", message=name, data={"kind": str(kind), "workflow": workflow})
        return TriggerAnswer.of(get_trigger(tx, name))


def _source(kind: TriggerKind, given: dict[str, Any]) -> dict[str, Any]:
    """Where messages come from. Raises `Misuse` for what this kind does not have, and for secrets."""
    needed, optional = _OPTIONS[kind]
    for name in needed:
        if name not in given:
            raise Misuse(f"a trigger of {kind} needs --{name}", hint="`ratchet trigger add --help` says more")
    if foreign := sorted(given.keys() - {*needed, *optional}):
        raise Misuse(f"--{foreign[0]} has no meaning for {kind}", hint="leave it out")
    url = given.get("url", "")
    if not url.startswith("$") and urlsplit(url if "//" in url else f"//{url}").password:
        raise Misuse(
            "the URL has a password in it, and a trigger is no place for one",
            hint="put the whole URL into a variable of the environment, and say --url '$NAME'",
        )
    names = [url[1:]] if url.startswith("$") else []
    for name in (*names, *([given["secret"]] if "secret" in given else [])):
        if _VARIABLE.fullmatch(name) is None:
            raise Misuse(f"{name!r} is not the name of a variable", hint="such as HOOK_SECRET")
    if kind.value in ("redis", "amqp", "kafka"):
        from ratchet.extras import find_extra, missing

        if find_extra(kind.value).absent:
            raise missing(kind.value, f"a trigger of {kind}")
    if kind is TriggerKind.KAFKA and not url.startswith("$"):
        from ratchet.workflows.trigger_sources import kafka_settings

        kafka_settings(url)
    if "folder" in given:
        folder = Path(given["folder"]).absolute()
        if not folder.is_dir():
            raise Misuse(f"there is no directory {folder}", hint="make it, or name another")
        given["folder"] = str(folder)
    return {name: str(value) for name, value in given.items()}


@operation(
    "trigger list",
    "GET /triggers",
    examples=["ratchet trigger list"],
    see=["trigger add", "schedule list"],
    columns={
        "trigger": "name",
        "kind": "kind",
        "workflow": "workflow",
        "state": "state",
        "started": "started",
        "refused": lambda trigger: trigger.refused or None,
        "last": "last_at",
        "reason": "reason",
    },
    empty="No triggers yet. `ratchet trigger add NAME KIND WORKFLOW` makes one.",
)
def list_(call: Call) -> Listing[TriggerAnswer]:
    """List triggers by name, with how they are."""
    with call.read() as tx:
        return Listing([TriggerAnswer.of(each) for each in list_triggers(tx)])


@operation(
    "trigger show",
    "GET /triggers/{name}",
    examples=["ratchet trigger show orders"],
    columns={
        "trigger": "name",
        "kind": "kind",
        "source": "source",
        "workflow": "workflow",
        "inputs": "inputs",
        "takes": "takes",
        "state": "state",
        "reason": "reason",
        "started": "started",
        "refused": "refused",
        "added": "created_at",
        "last": "last_at",
    },
)
def show(call: Call, name: TriggerName) -> TriggerAnswer:
    """Show one trigger: where its messages come from, and how it goes."""
    with call.read() as tx:
        return TriggerAnswer.of(get_trigger(tx, name))


@operation(
    "trigger pause",
    "POST /triggers/{name}/pause",
    examples=["ratchet trigger pause orders"],
    see=["trigger resume", "trigger remove"],
    done="Trigger {it.name} is paused",
    then="`ratchet trigger resume {it.name}` resumes it",
)
def pause(call: Call, name: TriggerName) -> TriggerAnswer:
    """Pause a trigger: its messages wait where they are, and webhooks are answered with 409."""
    return _set_paused(call, name, paused=True)


@operation(
    "trigger resume",
    "POST /triggers/{name}/resume",
    examples=["ratchet trigger resume orders"],
    done="Trigger {it.name} is resumed",
)
def resume(call: Call, name: TriggerName) -> TriggerAnswer:
    """Resume a paused trigger with the messages that have waited."""
    return _set_paused(call, name, paused=False)


@operation(
    "trigger remove",
    "DELETE /triggers/{name}",
    examples=["ratchet trigger remove orders"],
    see=["trigger pause"],
    done="Trigger {it.name} is removed",
    status=204,
)
def remove(call: Call, name: TriggerName) -> RemovedTrigger:
    """Remove a trigger. Runs that it has started stay as they are."""
    with call.write() as tx:
        if tx.connection.execute(sa.delete(triggers).where(triggers.c.name == name)).rowcount == 0:
            raise NotFound("trigger", name)
        tx.event("trigger.removed", message=name)
    return RemovedTrigger(name)


def _set_paused(call: Call, name: str, *, paused: bool) -> TriggerAnswer:
    with call.write() as tx:
        before = get_trigger(tx, name)
        if before.paused is not paused:
            _count(tx, name, paused=paused, reason=None, reason_at=None)
            tx.event("trigger.paused" if paused else "trigger.resumed", message=name)
        return TriggerAnswer.of(get_trigger(tx, name))


OPERATIONS = (add, list_, show, pause, resume, remove)
