"""The pull request of a protocol: the branch is pushed, a draft is opened, and what people do with it is recorded.

Both may be repeated: a push of what is there already and a pull request that exists change nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ratchet.forges import (
    Forge,
    ForgeError,
    ForgeEvent,
    PullRequest,
    PullRequestState,
    check_on_forge,
    open_forge,
)
from ratchet.kernel import RatchetError, RunStatus, with_hint
from ratchet.ledger import EventFilter, Transaction
from ratchet.ledger.events import latest
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, change_protocol, get_protocol, list_protocol_steps
from ratchet.projects.address import PushRefused
from ratchet.projects.secrets import FORGE_TOKEN, read_secret
from ratchet.protocols.stream import ProtocolBlocked, Stream
from ratchet.runtime import Runtime
from ratchet.runtime.runs import end_run, halt_run


def forge_of(runtime: Runtime, project: Project) -> Forge:
    """May run a program, so it is not for the event loop. Raises `ForgeError` where there is none that can be used."""
    check_on_forge(project.remote)
    with runtime.ledger.read() as tx:
        token = read_secret(tx, runtime, project.id, FORGE_TOKEN)
    return open_forge(runtime.settings, project.ci_provider, project.remote, token)


_NO_REMOTE = (
    "the repository has no remote (add one with `git remote add origin URL` and set the project up again)"
)


async def publish(stream: Stream, commit: str, *, always: bool = False) -> bool:
    """Push the commit and see that there is a pull request. Whether the remote has the commit now.

    `always` is for a person who asks for it, whatever the settings say: then the text of an open one is
    written again, too. Raises `ProtocolBlocked` when the remote refuses the push. A forge that cannot be reached is
    reported as an event: the work continues without a pull request.
    """
    settings = stream.job.runtime.settings.protocols
    if stream.clone.origin is None or not (settings.push or always):
        if always:
            _skip(stream, _NO_REMOTE, again=True)
        return False
    if stream.protocol.pushed != commit:
        await _push(stream, commit)
    if (settings.pull_requests and _policy(stream) != "none") or always:
        await _see_to_pull_request(stream, again=always)
    return True


async def finish_pull_request(stream: Stream) -> None:
    """The last step has passed: the pull request is a draft no longer, and its title does not call it one."""
    known = _known(stream)
    if known is None or not known.get("draft"):
        return
    forge = await asyncio.to_thread(_forge, stream)
    if forge is None:
        return
    try:
        ready = await forge.mark_ready(known["number"])
        if ready.title == _title(stream, draft=True):
            # People gave it no other title.
            ready = await forge.update_pull_request(ready.number, title=_title(stream, draft=False))
    except ForgeError as error:
        _tell(stream, "open_pr_failed", f"the pull request could not be made ready: {with_hint(error)}")
        return
    _record(stream, ready, "pull_request_ready", f"pull request {ready.number} is ready for people")


async def _push(stream: Stream, commit: str) -> None:
    try:
        await asyncio.to_thread(stream.clone.push, commit, stream.protocol.name)
    except PushRefused as refused:
        _tell(stream, "push_refused", with_hint(refused))
        raise ProtocolBlocked(str(refused), event="push_refused", hint=refused.hint) from refused
    except RatchetError as error:
        raise ProtocolBlocked(
            f"the branch cannot be pushed: {error}", event="push_failed", hint=error.hint
        ) from error
    with stream.job.write() as tx:
        if get_protocol(tx, stream.protocol.run_id).pushed != commit:
            change_protocol(tx, stream.protocol.run_id, pushed=commit)
            stream.event(tx, "pushed", f"{commit[:12]} is at the origin", data={"commit": commit})


async def _see_to_pull_request(stream: Stream, *, again: bool) -> None:
    known = _known(stream)
    if known is not None and not again:
        return
    forge = await asyncio.to_thread(_forge, stream, again=again)
    if forge is None:
        return
    draft = _policy(stream) != "ready"
    try:
        if known is not None:
            there = await forge.update_pull_request(known["number"], body=_body(stream))
        else:
            there = await forge.open_pull_request(
                branch=stream.protocol.name,
                base=stream.protocol.base_branch,
                title=_title(stream, draft=draft),
                body=_body(stream),
                draft=draft,
            )
    except ForgeError as error:
        _tell(stream, "open_pr_failed", with_hint(error))
        return
    event = "open_pr" if known is None else "pull_request_updated"
    _record(stream, there, event, f"pull request {there.number} ({there.state}): {there.url}")


def _policy(stream: Stream) -> str:
    """What was settled about pull requests when the project was set up: `draft`, `ready` or `none`."""
    return str(stream.project.facts.get("pr_policy") or "draft")


def _forge(stream: Stream, *, again: bool = False) -> Forge | None:
    """The project's forge; nothing, with an event that says why, where there is none that can be used."""
    try:
        return forge_of(stream.job.runtime, stream.project)
    except ForgeError as error:
        _skip(stream, with_hint(error), again=again)
        return None


def _skip(stream: Stream, why: str, *, again: bool) -> None:
    """Say why there is no pull request: once and not at every push, but each time when a person asks for it."""
    with stream.job.write() as tx:
        where = EventFilter(run_id=stream.protocol.run_id, type="open_pr_skipped")
        if again or [each.message for each in latest(tx.connection, where=where, limit=1)] != [why]:
            stream.event(tx, "open_pr_skipped", why)


def _known(stream: Stream) -> dict[str, Any] | None:
    with stream.job.ledger.read() as tx:
        found = get_protocol(tx, stream.protocol.run_id).pull_request
    return found if isinstance(found, dict) and "number" in found else None


def _record(stream: Stream, opened: PullRequest, event: str, message: str) -> None:
    with stream.job.write() as tx:
        change_protocol(tx, stream.protocol.run_id, pull_request=opened.as_json())
        stream.event(tx, event, message, data=opened.as_json())


def _tell(stream: Stream, event: str, message: str) -> None:
    with stream.job.write() as tx:
        stream.event(tx, event, message)


def _title(stream: Stream, *, draft: bool) -> str:
    number, _, slug = stream.protocol.name.partition("-")
    plain = f"{number} - {slug}" if slug else stream.protocol.name
    return f"WIP: {plain}" if draft else plain


def _body(stream: Stream) -> str:
    simulated = (
        "This is a simulation: recorded sessions count in it.\n\n" if stream.protocol.simulated else ""
    )
    with stream.job.ledger.read() as tx:
        steps = [
            f"{each.step_index + 1}. {each.name}" for each in list_protocol_steps(tx, stream.protocol.run_id)
        ]
    listed = "".join(f"{line}\n" for line in steps)
    return (
        f"{simulated}{stream.protocol.description or stream.protocol.name}\n\n{listed}\n"
        f"Protocol {stream.protocol.run_id}; its plan is in `{stream.root}/plan.md`. Each step is a commit that passed"
        " its checks and its review."
    )


_R = RunStatus
# The way to completed, from wherever a protocol stands.
_WAYS = {
    _R.PENDING: (_R.RUNNING, _R.COMPLETED),
    _R.PLANNING: (_R.PLANNED, _R.RUNNING, _R.COMPLETED),
    _R.PLANNED: (_R.RUNNING, _R.COMPLETED),
    _R.RUNNING: (_R.COMPLETED,),
    _R.PAUSED: (_R.RUNNING, _R.COMPLETED),
    _R.BLOCKED: (_R.RUNNING, _R.COMPLETED),
}


def settle_pull_request(tx: Transaction, runtime: Runtime, protocol: Protocol, event: ForgeEvent) -> str:
    """Do what the pull request of a live protocol asks for; what became of it, in a few words."""
    known: dict[str, Any] = protocol.pull_request if isinstance(protocol.pull_request, dict) else {}
    number = known.get("number")
    if number is not None and event.pull_request is not None and number != event.pull_request:
        return f"the protocol's pull request is {number}"
    _remember(tx, protocol, known, event)
    word = "merge request" if event.provider == "gitlab" else "pull request"
    named = f"{word} {event.pull_request}" if event.pull_request else f"the {word}"
    if event.merged:
        _report_merge(
            tx,
            protocol,
            event,
            "mr_merged" if event.provider == "gitlab" else "pr_merged",
            f"{named} was merged",
        )
        if protocol.rests_on_recording:
            reason = f"{named} was merged, but the protocol rests on a recording, so it cannot be completed"
            halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
            return "blocked"
        end_run(tx, runtime, protocol.run_id, *_WAYS[protocol.status], reason=f"{named} was merged")
        return "completed"
    if event.closed:
        reason = f"{named} was closed without being merged; open it again and resume, or cancel the protocol"
        halt_run(tx, runtime, protocol.run_id, RunStatus.BLOCKED, reason=reason)
        return "blocked"
    return "recorded"


def _remember(tx: Transaction, protocol: Protocol, known: dict[str, Any], event: ForgeEvent) -> None:
    closed = PullRequestState.CLOSED if event.closed else PullRequestState.OPEN
    reported = {
        "provider": event.provider,
        "number": event.pull_request,
        "url": event.url,
        "state": str(PullRequestState.MERGED if event.merged else closed),
        "draft": event.draft,
    }
    kept = {name: value for name, value in reported.items() if value is not None}
    if kept != {name: known.get(name) for name in kept}:
        change_protocol(tx, protocol.run_id, pull_request={**known, **kept})


def _report_merge(tx: Transaction, protocol: Protocol, event: ForgeEvent, type: str, message: str) -> None:
    tx.event(
        type,
        run_id=protocol.run_id,
        project_id=protocol.project_id,
        message=message,
        data={"spec_hash": protocol.spec_hash, "number": event.pull_request, "url": event.url},
    )
